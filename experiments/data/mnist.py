"""MNIST: 60,000 handwritten digits of 28 x 28 pixels; which of 10?

How the images are split: `overheard.data.bundled`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import FileSource, table, unpacked
from overheard.data.bundled import Bytes, deal_images
from overheard.data.dataset import Dataset
from overheard.errors import FixData

SIDE = 28


def load(
    folder: str | Path | None = None, source: FileSource = SOURCES["mnist"], **shares: Any
) -> Dataset:
    """50 clients of 10 digits each, unless ``shares`` says otherwise, see `deal_images`."""
    found = source.locate(folder)
    images, labels = _csv(*found) if len(found) == 1 else _idx(*found)
    if labels.max() > 9 or images.shape != (len(labels), SIDE * SIDE):
        raise FixData(f"{found[0]}: no images of {SIDE} x {SIDE} and labels 0 to 9; fetch it again")
    return deal_images(source, images, labels, (1, SIDE, SIDE), **shares)


def _csv(file: Path) -> tuple[Bytes, Bytes]:
    """Images and labels of a table with a header, the label first."""
    cells = np.column_stack(list(table(file).values())).astype(np.uint8)
    return np.ascontiguousarray(cells[:, 1:]), cells[:, 0]


def _idx(images: Path, labels: Path) -> tuple[Bytes, Bytes]:
    """Of two IDX files: a head of 16 or 8 bytes, and then a byte for each pixel or label."""
    classes = np.frombuffer(unpacked(labels)[8:], np.uint8)
    pixels = np.frombuffer(unpacked(images)[16:], np.uint8)
    if pixels.size != len(classes) * SIDE * SIDE:
        raise FixData(f"{images}: {pixels.size} bytes for {len(classes)} labels; fetch it again")
    return pixels.reshape(len(classes), -1), classes
