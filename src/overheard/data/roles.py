"""What is each column of a table: an id, a date, free text, a constant, a category, a number?

Read from the cells alone, as text: nothing is refused here. `overheard check` prints it and writes
the smallest federation file from it; `file.load` refuses ids and dates as inputs by the same words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from overheard.data.dataset import MOST_VALUES

_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
)
NOT_INPUTS = ("id", "date", "free text", "constant")
"""Roles of columns that are left out unless somebody says otherwise."""
CLIENTS = frozenset(
    "client hospital site clinic centre center bank branch node silo institution org school".split()
)
TARGETS = frozenset("target label y outcome cost price score class diagnosis los".split())


@dataclass(frozen=True)
class Role:
    """A column: what it is, how many cells are empty, its values, and those that few have."""

    name: str
    what: str
    gaps: int
    values: int
    rare: tuple[str, ...] = ()

    @property
    def inputs(self) -> int:
        """How many inputs of a model it is."""
        return 0 if self.what in NOT_INPUTS else self.values if self.what == "category" else 1


def role_of(name: str, cells: Sequence[Any], numbers: bool, gaps: int = 0, few: int = 5) -> Role:
    """The role of a column by its cells that are there; ``few``: who have a value that is rare."""
    counts = Counter(str(cell) for cell in cells)
    rare = sorted(value for value, count in counts.items() if count < few)
    every = len(counts) == len(cells) > MOST_VALUES
    if len(counts) < 2:
        return Role(name, "constant", gaps, len(counts))
    if numbers:
        values = np.asarray(cells, dtype=np.float64)
        running = every and values.max() - values.min() == len(values) - 1
        whole = bool((values == np.round(values)).all())
        return Role(name, "id" if running and whole else "number", gaps, len(counts))
    if all(_DATE.fullmatch(value.strip()) for value in counts):
        return Role(name, "date", gaps, len(counts))
    if every:
        spaced = sum(" " in value.strip() for value in counts)
        return Role(name, "free text" if 2 * spaced > len(counts) else "id", gaps, len(counts))
    if len(counts) > max(MOST_VALUES, len(cells) // 10):
        return Role(name, "free text", gaps, len(counts))
    return Role(name, "category", gaps, len(counts), tuple(rare))


def called(names: Sequence[str], words: frozenset[str]) -> str:
    """The first name that has one of these words in it; empty where none has."""
    split = {name: set(re.split(r"[^a-z]+", name.lower())) for name in names}
    return next((name for name, parts in split.items() if parts & words), "")
