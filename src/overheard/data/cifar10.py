"""CIFAR-10: 50,000 colour photographs of 32 x 32 pixels; of which of 10 things?

They come as five large PNG files, a photograph in each row. Where only the first is at hand, its
10,000 photographs are dealt from. How they are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.images import Bytes, Shares, deal_images
from overheard.data.source import sources
from overheard.errors import FixData
from overheard.foreign import png
from overheard.foreign.files import read_bounded
from overheard.foreign.notation import read_json

SOURCE = sources()["cifar10"]
SIDE, CHANNELS, ROWS = 32, 3, 10_000


def load(folder: str | Path | None = None, **shares: Any) -> Dataset:
    """50 clients of 25 photographs each, unless ``shares`` says otherwise, see `Shares`."""
    *batches, answers = SOURCE.locate(folder)
    images = np.concatenate([read_batch(file) for file in batches])
    labels = read_labels(answers)[: len(images)]
    if len(labels) < len(images):
        raise FixData(f"{answers}: {len(labels)} labels for {len(images)} images; fetch it again")
    how = Shares(**{"records": 25, "auxiliary": 5000, **shares})
    return deal_images(SOURCE, images, labels, (CHANNELS, SIDE, SIDE), how)


def read_batch(file: Path) -> Bytes:
    """Images (n, 3072), one channel after the other, of a PNG with a photograph in each row."""
    raw = read_bounded(file, "table_bytes", True, FixData)
    try:
        width, height = png.size_of(raw)
    except ValueError as error:
        raise FixData(f"{file}: is not a PNG file: {error}; fetch it again") from error
    if width != SIDE * SIDE or not 1 <= height <= ROWS:  # before anything is unpacked
        raise FixData(
            f"{file}: its head says {width} x {height} pixels; expected {SIDE * SIDE} and up to "
            f"{ROWS} rows; fetch it again"
        )
    try:
        pixels = png.pixels(raw)
    except ValueError as error:
        raise FixData(f"{file}: is not a PNG file that is read: {error}; fetch it again") from error
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(height, -1)


def read_labels(file: Path) -> Bytes:
    """The labels (n,), 0 to 9."""
    try:
        labels = np.asarray(read_json(file, error=FixData))
    except (ValueError, FixData) as error:
        raise FixData(f"{file}: is not a list of labels: {error}; fetch it again") from error
    if labels.ndim != 1 or labels.dtype.kind != "i" or not np.isin(labels, np.arange(10)).all():
        raise FixData(f"{file}: is not a list of labels 0 to 9; fetch it again")
    return labels.astype(np.uint8)
