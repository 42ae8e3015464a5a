"""HS3D: 20 nucleotides of a human gene; is an intron's end among them? lyu2021's genome data.

The Homo Sapiens Splice Sites Dataset: 2,880 true ends of introns, as many as lyu2021 has, and false
ones, of which a fixed draw of ten for each true one is taken (28,800, as there), of its first part.
Of a sequence's 140 nucleotides the first 20 are the columns c000 to c019; A, G, C and T are the
numbers 1 to 4, so that a column is one input, as lyu2021's equation (2) has it. That the paper
prepared its data so follows from its counts (20 attributes, 28,800 and 2,880 records), from the
tiny Cramer's V that it prints, and from its numbers, which are met with these inputs only.

Which attributes. Counted from 0, as in Location, the paper's 7-th and 17-th are c007 and c017. The
counts of the four nucleotides vary by 77,610 at its 17-th, by about 78,000 at c017 (the least of
all columns); at c007 by more than the 138,019 of its 7-th: its draw of false sites was another.

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
from overheard.errors import FixData
from overheard.randomness import stream

SOURCE = SOURCES["hs3d"]
SENSITIVE = ("c007", "c017")
LENGTH, COLUMNS, NUCLEOTIDES, FALSE_PER_TRUE = 140, 20, "AGCT", 10


def load(folder: str | Path | None = None, **split: Any) -> Dataset:
    """A victim of 500 sequences, unless ``split`` says otherwise, see `deal`."""
    ends, others = SOURCE.locate(folder)
    true, false = sequences(ends, "IE_true.seq"), sequences(others, "IE_false.seq.001")
    if not true or len(false) < FALSE_PER_TRUE * len(true):
        raise FixData(f"{ends}, {others}: are not HS3D's files of introns' ends; fetch them again")
    drawn = stream(0, "hs3d").permutation(len(false))[: FALSE_PER_TRUE * len(true)]
    letters = np.array([list(s[:COLUMNS]) for s in (*true, *(false[i] for i in drawn))])
    columns = [
        sum((column == n) * (k + 1.0) for k, n in enumerate(NUCLEOTIDES)) for column in letters.T
    ]
    labels = np.repeat(["end", "neither"], [len(true), len(drawn)])
    how = {"victim": 500, "attributes": SENSITIVE, **split}
    return deal(SOURCE, columns, labels, ordinal=frozenset(how["attributes"]), **how)


def sequences(file: Path, member: str) -> list[str]:
    """Behind ``GENE (numbers):``, 140 nucleotides; the file's head has none."""
    lines = unpacked(file, member).decode("latin-1").splitlines()
    found = (line.rpartition(":")[2].strip() for line in lines)
    return [s for s in found if len(s) == LENGTH and set(s) <= set(NUCLEOTIDES)]
