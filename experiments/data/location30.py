"""Check-ins of Foursquare users in Bangkok: lyu2021's Location, of the membership literature.

5,010 users, 446 columns of 0 and 1 (regions and kinds of place visited), one of 30 geosocial
types to predict. Columns are c000 to c445, in the order of the file.

Which attributes. lyu2021 prints the variance of the counts of an attribute's two values: 2.6e+6
for its 1-st and 2070 for its 69-th attribute. Counted from 0, columns 1 (0 for 82.2 % of users,
variance 2,601,769) and 69 (1 for 50.9 %, variance 2,116) of this file fit, and are the default.

How the records are split: `overheard.data.bundled`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SOURCES
from experiments.data.files import table
from overheard.data.bundled import deal
from overheard.data.dataset import Dataset
from overheard.errors import FixData

SOURCE = SOURCES["location30"]
SENSITIVE = ("c001", "c069")

COLUMNS, CLASSES = 446, 30


def load(folder: str | Path | None = None, **split: Any) -> Dataset:
    """A victim of 300 users, unless ``split`` says otherwise, see `deal`."""
    (file,) = SOURCE.locate(folder)
    columns, labels = read_binary(file, "bangkok", COLUMNS, CLASSES)
    how = {"victim": 300, "attributes": SENSITIVE, **split}
    return deal(SOURCE, list(columns.T), labels, **how)


def read_binary(
    file: Path, member: str, columns: int, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns (n, d) of 0 and 1 and labels (n,) of a table ``label,0,1,...``, archived or not."""
    labels, *values = table(file, member=member, header=False).values()
    right = np.isin(values, (0, 1)).all() and np.isin(labels, np.arange(1, classes + 1)).all()
    if len(values) != columns or not right:
        raise FixData(
            f"{file}: expected a label 1 to {classes} and {columns} columns of 0 and 1, found "
            f"{len(values)} columns or other values"
        )
    return np.column_stack(values), labels
