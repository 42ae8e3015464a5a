"""Fashion-MNIST: 60,000 articles of clothing, 28 x 28 pixels; which of 10 kinds?

How the images are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from overheard.data.dataset import Dataset
from overheard.data.images import Shares, deal_images, read_idx_pair
from overheard.data.source import sources

SOURCE = sources()["fashion"]
SIDE = 28


def load(folder: str | Path | None = None, **shares: Any) -> Dataset:
    """50 clients of 10 articles each, unless ``shares`` says otherwise, see `Shares`."""
    images, labels = read_idx_pair(SOURCE.locate(folder), SIDE)
    return deal_images(SOURCE, images, labels, (1, SIDE, SIDE), Shares(**shares))
