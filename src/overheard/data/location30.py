"""Check-ins of Foursquare users in Bangkok: lyu2021's Location, of the membership literature.

5,010 users, 446 columns of 0 and 1 (regions and kinds of place visited), one of 30 geosocial
types to predict. Columns are c000 to c445, in the order of the file.

Which attributes. lyu2021 prints the variance of the counts of an attribute's two values: 2.6e+6
for its 1-st and 2070 for its 69-th attribute. Counted from 0, columns 1 (0 for 82.2 % of users,
variance 2,601,769) and 69 (1 for 50.9 %, variance 2,116) of this file fit, and are the default.

How the records are split: `overheard.data.victim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.data.victim import Source, deal
from overheard.errors import FixData
from overheard.foreign.archives import DAMAGE, tar_member
from overheard.foreign.files import read_bounded
from overheard.foreign.texts import read_csv, within

WHAT = "5,010 users, 446 places visited or not; which of 30 geosocial types? One victim"
LICENCE = "not stated"
ORIGIN = "Foursquare check-ins in Bangkok, as published with Shokri et al. 2017 (dataset_location)"
NOTE = (
    "lyu2021's Location; its 1-st and 69-th attributes are columns c001 (majority 0.822) and c069 "
    "(majority 0.509) by the variances it prints; its split and learning rate are not published"
)
SENSITIVE = ("c001", "c069")
FILES = (("location30/dataset_location.tgz",), ("location30/bangkok",))
REMEDY = (
    "its licence is not stated, so it is not fetched: take dataset_location.tgz from "
    "privacytrustlab/datasets and set OVERHEARD_DATA to the folder that holds location30/"
)

COLUMNS, CLASSES = 446, 30
LARGEST = 1 << 25  # bytes of the unpacked table that we are willing to read; it has 4.5 MB


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    victim: int = 300,
    participants: int = 1,
    public: int = 1000,
    attributes: Sequence[str] = SENSITIVE,
) -> Dataset:
    """A victim of so many users; ``seed`` shuffles, ``attributes`` the sensitive columns."""
    (file,) = lookup.locate("location30", FILES, REMEDY, folder)
    columns, labels = read_binary(file, "bangkok", COLUMNS, CLASSES, LARGEST)
    source = Source("location30", ORIGIN, LICENCE)
    return deal(source, list(columns.T), labels, attributes, victim, participants, public, seed)


def read_binary(
    file: Path, member: str, columns: int, classes: int, largest: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns (n, d) of 0 and 1 and labels (n,) of a table ``label,0,1,...``, archived or not."""
    table = read_csv(_content(file, member, largest), file, header=False)
    try:
        cells = np.column_stack([c.to_numpy() for c in table.columns]).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise FixData(f"{file}: no label and {columns} columns a line: {error}") from error
    labels, values = cells[:, 0], cells[:, 1:]
    right = np.isin(values, (0, 1)).all() and np.isin(labels, np.arange(1, classes + 1)).all()
    if values.shape[1] != columns or not right:
        raise FixData(
            f"{file}: expected a label 1 to {classes} and {columns} columns of 0 and 1, found "
            f"{values.shape[1]} columns or other values"
        )
    return values, labels


def _content(file: Path, member: str, largest: int) -> bytes:
    """The table's bytes, out of its archive if it is in one."""
    if file.suffix != ".tgz":
        return read_bounded(file, "text_bytes", True, FixData)
    try:
        with tar_member(file, member) as opened:
            return within(opened, f"{file}: {member}", largest)
    except (*DAMAGE, KeyError) as error:
        raise FixData(f"{file}: no {member} can be read from it: {error}") from error
