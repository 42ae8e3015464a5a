"""Handwritten digits, 8 x 8 pixels, from scikit-learn: a victim without any file, for tests.

Pixels are dark or not (half of the greatest value), c000 to c063, line by line. The default
attributes c043 (dark for 49 % of the digits) and c005 (37 %) mean nothing to anybody.

How the records are split: `overheard.data.victim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.victim import Source, deal

WHAT = "1,797 digits of 64 pixels, dark or not; which of 10? One victim; for tests"
LICENCE = "CC BY 4.0"
ORIGIN = "UCI Machine Learning Repository, Optical Recognition of Handwritten Digits, 1998"
NOTE = "not a data set of any paper here: small, and always there"
BUNDLED = "comes with scikit-learn"
SENSITIVE = ("c043", "c005")
HALF = 8


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    victim: int = 100,
    participants: int = 1,
    public: int = 500,
    attributes: Sequence[str] = SENSITIVE,
) -> Dataset:
    """A victim of so many digits; ``seed`` shuffles, ``attributes`` the sensitive columns."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    columns = list((np.asarray(pixels).T >= HALF).astype(np.float64))
    source = Source("digits", ORIGIN, LICENCE)
    classes = np.asarray(labels, dtype=np.float64)
    return deal(source, columns, classes, attributes, victim, participants, public, seed)
