"""Handwritten digits, 8 x 8 pixels, from scikit-learn: a victim without any file, for tests.

Pixels are dark or not (half of the greatest value), c000 to c063, line by line. The default
attributes c043 (dark for 49 % of the digits) and c005 (37 %) mean nothing to anybody.

How the records are split: `overheard.data.dealing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.dealing import Split, deal
from overheard.data.source import BUNDLED

SENSITIVE = ("c043", "c005")
HALF = 8


def load(**split: Any) -> Dataset:
    """A victim of 100 digits and 500 of nobody's, unless ``split`` says otherwise, see `Split`."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    columns = list((np.asarray(pixels).T >= HALF).astype(np.float64))
    how = Split(**{"victim": 100, "public": 500, "attributes": SENSITIVE, **split})
    return deal(BUNDLED["digits"], columns, np.asarray(labels, dtype=np.float64), how)
