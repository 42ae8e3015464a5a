"""Images for a federation of many equal clients: how kerkouche2023 splits MNIST and the like.

The images are shuffled once by the seed. The first ones go to the clients, so many to each; the
last ones are nobody's (`Dataset.outside`): the adversary's auxiliary data, out of which a target
record is taken where one is asked for. A record is a row of bytes and its class.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.data.source import Source
from overheard.data.victim import shuffled
from overheard.errors import FixConfig, FixData
from overheard.programs.records import Records

CLIENT, IMAGE, TARGET = "client", "image", "class"
Bytes = NDArray[np.uint8]
IDX_BYTES = 0x08


@dataclass(frozen=True)
class Shares:
    """``clients`` clients of so many ``records`` each, and ``auxiliary`` images of nobody's."""

    clients: int = 50
    records: int = 10
    auxiliary: int = 6000
    seed: int = 0


def deal_images(
    source: Source,
    images: Bytes,
    labels: NDArray[np.generic],
    shape: tuple[int, int, int],
    how: Shares,
) -> Dataset:
    """The dataset of so many clients and of images that are nobody's."""
    clients, records, auxiliary = how.clients, how.records, how.auxiliary
    if clients < 1 or records < 1 or auxiliary < 0:
        raise FixConfig(
            f"{source.name}: clients = {clients}, records = {records}, auxiliary = {auxiliary}; at "
            "least 1 client of at least 1 record, and 0 or more auxiliary images"
        )
    wanted, rows = clients * records, len(labels)
    if wanted + auxiliary > rows:
        raise FixConfig(
            f"{source.name}: {clients} clients of {records} images and {auxiliary} auxiliary ones "
            f"need {wanted + auxiliary}; there are {rows}: ask for fewer"
        )
    width = len(str(clients - 1))
    names = np.array([f"client {i:0{width}d}" for i in range(clients)])
    table = Records({IMAGE: images, TARGET: labels.astype(np.float64)})
    inside, outside = shuffled(source, table, wanted, auxiliary, how.seed)
    return source.dataset(
        Records({CLIENT: np.repeat(names, records), **inside.columns}),
        client=CLIENT,
        target=TARGET,
        task="classification",
        sensitive=(),
        outside=outside,
        images={IMAGE: shape},
    )


def read_idx(file: Path, shape: tuple[int, ...], most: int = 100_000) -> Bytes:
    """The bytes (n, *shape) of a gzipped IDX file; whatever it claims, at most ``most`` rows."""
    words = 1 + len(shape)
    size = int(np.prod(shape, dtype=np.int64))
    try:
        with gzip.open(file) as content:
            head = content.read(4 + 4 * words)
            kind = np.frombuffer(head[:4], np.uint8).tolist()
            count, *rest = np.frombuffer(head[4:], ">u4").tolist()
            if kind != [0, 0, IDX_BYTES, words] or tuple(rest) != shape or not 1 <= count <= most:
                raise ValueError(f"its head says {kind}, {count} x {tuple(rest)}")
            raw = content.read(count * size + 1)
            if len(raw) != count * size:
                raise ValueError(f"it has not exactly {count * size} bytes of content")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FixData(
            f"{file}: is not a gzipped IDX file of bytes n x {shape}: {error}; fetch it again"
        ) from error
    return np.frombuffer(raw, np.uint8).reshape(count, *shape)


def read_idx_pair(files: tuple[Path, ...], side: int) -> tuple[Bytes, Bytes]:
    """Square images (n, side * side) and their labels (n,), from one file of each."""
    images, labels = files
    pixels, classes = read_idx(images, (side, side)), read_idx(labels, ())
    if len(pixels) != len(classes):
        raise FixData(f"{images}: {len(pixels)} images, but {len(classes)} labels in {labels.name}")
    return pixels.reshape(len(pixels), side * side), classes
