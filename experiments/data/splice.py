"""UCI splice junctions: 60 nucleotides around a point; is it a junction, and of which kind?

Stands in for the genome data of lyu2021, which is another set of splice sites (20 nucleotides, 2
classes) that we could not obtain: the order of the methods compares, not the numbers.

Of 3,190 sequences the 15 with an uncertain nucleotide (D, N, S or R) are left out: 3,175, of which
2,991 are distinct. Columns are c000 to c059, each A, C, G or T. The classes are EI (762), IE (765)
and N (1,648), or with ``classes = 2`` junction and neither. With ``numbers`` A, C, G and T are the
numbers 1 to 4, one input a column, which is what lyu2021's equation (2) is about.

Which attributes. The counts of the four nucleotides at lyu2021's 7-th and 17-th position vary, in
units of their mean, by 0.047 and 0.035; so do those at c001 (0.046, majority 0.269) and c049
(0.035, majority 0.263).

How the records are split: `overheard.data.bundled`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import unpacked
from overheard.data.bundled import deal
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig, FixData

SOURCE = SOURCES["splice"]
SENSITIVE = ("c001", "c049")
LENGTH, NUCLEOTIDES, KINDS = 60, ("A", "C", "G", "T"), ("EI", "IE", "N")


def load(
    folder: str | Path | None = None,
    classes: int = 3,
    numbers: bool = False,
    **split: Any,
) -> Dataset:
    """A victim of 500 sequences, unless ``split`` says otherwise, see `deal`."""
    if classes not in (2, 3):
        raise FixConfig(f"splice: classes = {classes} is neither 2 (junction or not) nor 3")
    (file,) = SOURCE.locate(folder)
    lines = unpacked(file).decode("utf-8", "replace").splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    if not rows or any(len(row) != LENGTH + 1 or row[-1] not in KINDS for row in rows):
        raise FixData(f"{file}: is not the table of splice junctions (60 nucleotides, EI, IE or N)")
    table = np.array([row for row in rows if set(row[:-1]) <= set(NUCLEOTIDES)])
    labels = table[:, -1]
    if classes == 2:
        labels = np.where(labels == "N", "neither", "junction")
    columns = list(table[:, :-1].T)
    if numbers:
        columns = [np.searchsorted(NUCLEOTIDES, column) + 1.0 for column in columns]
    how = {"victim": 500, "attributes": SENSITIVE, **split}
    ordinal = frozenset(how["attributes"]) if numbers else frozenset()
    return deal(SOURCE, columns, labels, ordinal=ordinal, **how)
