"""Handwritten digits as images, from scikit-learn: always there, for tests and the quick start.

Each of the 8 x 8 pixels is drawn four times, which makes images of 16 x 16, the smallest that LeNet
takes. How the images are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.images import deal_images
from overheard.data.victim import Source

WHAT = "1,797 digits as images of 16 x 16; which of 10? Many equal clients; for tests"
LICENCE = "CC BY 4.0"
ORIGIN = "UCI Machine Learning Repository, Optical Recognition of Handwritten Digits, 1998"
NOTE = "not a data set of any paper here: small, and always there"
BUNDLED = "comes with scikit-learn"
SIDE, DARKEST = 8, 16


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    clients: int = 20,
    records: int = 10,
    auxiliary: int = 1000,
) -> Dataset:
    """Clients of so many digits each; ``seed`` shuffles."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    grey = np.round(np.asarray(pixels) * (255 / DARKEST)).astype(np.uint8)
    large = grey.reshape(-1, SIDE, SIDE).repeat(2, axis=1).repeat(2, axis=2)
    return deal_images(
        Source("digits_images", ORIGIN, LICENCE),
        large.reshape(len(large), -1),
        np.asarray(labels),
        (1, 2 * SIDE, 2 * SIDE),
        clients,
        records,
        auxiliary,
        seed,
    )
