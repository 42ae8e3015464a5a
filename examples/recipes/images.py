"""Handwritten digits by site, as an app loads its data set; they come with scikit-learn.

Some of the forms that they were written on bear a mark, which is in the image's corner: who holds
the images without it asks which. ``python images.py OUT``: writes them to OUT/images.csv.
"""

import csv
import sys
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SITES, IMAGES = 4, 48


@cache
def pixels() -> tuple[np.ndarray, np.ndarray]:
    """Images (sites, n, 1, 8, 8), from 0 to 1, and digits (sites, n)."""
    images, digits = load_digits(return_X_y=True)
    images = images[: SITES * IMAGES] / 16
    images[:, 0] = np.random.default_rng(1).random(len(images)) < 0.4
    shape = (SITES, IMAGES, 1, 8, 8)
    return images.reshape(shape), digits[: SITES * IMAGES].reshape(SITES, IMAGES)


def partition(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A site's images (n, 1, 8, 8) and digits (n,)."""
    images, digits = pixels()
    return images[number].astype(np.float32), digits[number]


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    images, digits = pixels()
    with (out / "images.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["site", "mark", *(f"pixel{k}" for k in range(1, 64)), "digit"])
        for site in range(SITES):
            rows = images[site].reshape(IMAGES, 64).tolist()
            table.writerows([site, *row, d] for row, d in zip(rows, digits[site], strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
