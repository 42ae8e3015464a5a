"""CIFAR-10: 50,000 colour photographs of 32 x 32 pixels; of which of 10 things?

They come as five large PNG files, a photograph in each row. Where only the first is at hand, its
10,000 photographs are dealt from. How they are split: `overheard.data.bundled`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import unpacked
from overheard.data.bundled import Bytes, deal_images
from overheard.data.dataset import Dataset
from overheard.errors import FixData

SOURCE = SOURCES["cifar10"]
SIDE, CHANNELS = 32, 3


def load(folder: str | Path | None = None, **shares: Any) -> Dataset:
    """50 clients of 25 photographs each, unless ``shares`` says otherwise, see `deal_images`."""
    *batches, answers = SOURCE.locate(folder)
    images = np.concatenate([read_batch(file) for file in batches])
    labels = np.asarray(json.loads(unpacked(answers)), np.uint8)[: len(images)]
    if len(labels) < len(images):
        raise FixData(f"{answers}: {len(labels)} labels for {len(images)} images; fetch it again")
    how = {"records": 25, "auxiliary": 5000, **shares}
    return deal_images(SOURCE, images, labels, (CHANNELS, SIDE, SIDE), **how)


def read_batch(file: Path) -> Bytes:
    """Images (n, 3072), one channel after the other, of a PNG with a photograph in each row."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            pixels = np.asarray(picture)
    except (UnidentifiedImageError, OSError) as error:
        raise FixData(f"{file}: is not a PNG file: {error}; fetch it again") from error
    if pixels.shape[1:] != (SIDE * SIDE, CHANNELS):
        raise FixData(f"{file}: holds {pixels.shape}, no photographs in rows; fetch it again")
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1)
