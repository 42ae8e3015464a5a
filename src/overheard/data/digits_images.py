"""Handwritten digits as images, from scikit-learn: always there, for tests and the quick start.

Each of the 8 x 8 pixels is drawn four times, which makes images of 16 x 16, the smallest that LeNet
takes. How the images are split: `overheard.data.dealing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.dealing import Shares, deal_images
from overheard.data.source import BUNDLED

SIDE, DARKEST = 8, 16


def load(**shares: Any) -> Dataset:
    """20 clients of 10 digits each, unless ``shares`` says otherwise, see `Shares`."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    grey = np.round(np.asarray(pixels) * (255 / DARKEST)).astype(np.uint8)
    large = grey.reshape(-1, SIDE, SIDE).repeat(2, axis=1).repeat(2, axis=2)
    how = Shares(**{"clients": 20, "auxiliary": 1000, **shares})
    shape = (1, 2 * SIDE, 2 * SIDE)
    return deal_images(BUNDLED["digits_images"], large.reshape(len(large), -1), labels, shape, how)
