"""MNIST: 60,000 handwritten digits of 28 x 28 pixels; which of 10?

How the images are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.images import Bytes, Shares, deal_images, read_idx_pair
from overheard.data.source import sources
from overheard.errors import FixData
from overheard.foreign.texts import CsvFormat
from overheard.foreign.texts import read_csv as read_csv_table

SOURCE = sources()["mnist"]
SIDE = 28


def load(folder: str | Path | None = None, **shares: Any) -> Dataset:
    """50 clients of 10 digits each, unless ``shares`` says otherwise, see `Shares`."""
    found = SOURCE.locate(folder)
    images, labels = read_csv(found[0]) if len(found) == 1 else read_idx_pair(found, SIDE)
    return deal_images(SOURCE, images, labels, (1, SIDE, SIDE), Shares(**shares))


def read_csv(file: Path) -> tuple[Bytes, Bytes]:
    """Images and labels of a table with a header, the label first."""
    import pyarrow as pa

    try:
        table = read_csv_table(file, file, how=CsvFormat(kind=pa.uint8()))
        cells = np.column_stack([column.to_numpy() for column in table.columns])
    except (pa.ArrowException, ValueError, FixData) as error:
        raise FixData(f"{file}: is not a table of bytes: {error}; fetch it again") from error
    if cells.shape[1] != 1 + SIDE * SIDE or not len(cells) or cells[:, 0].max() > 9:
        raise FixData(
            f"{file}: has {cells.shape} cells; expected a label 0 to 9 and {SIDE * SIDE} pixels a "
            "line; fetch it again"
        )
    return np.ascontiguousarray(cells[:, 1:]), cells[:, 0]
