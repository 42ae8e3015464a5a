"""Which values follow from single cells, when a cell holds few unknown records?

A leaf of a tree with a dozen undecided records is a subset sum: its gradient and its Hessian are
known to seven digits, and of the thousands of answers usually one meets both. What follows from one
cell makes others smaller, so cells are looked at again, smallest first, until nothing new follows.

A value is taken only when *every* other one was tried with every combination of the cell's other
records and misses by more than the noise can: nothing is assumed of how common values are. Records
alike (ties) are one unknown count. Cells are listed by meeting in the middle: two halves of at most
4,096 combinations each, one of them sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.sparse_equations import SparseEquations

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOLERANCE = 8.0
"""Standard deviations of noise beyond which a combination is ruled out."""
HALF = 1 << 12
"""Combinations of half a cell's records."""
MATCHES = 1 << 16
"""Combinations that meet one equation; where there are more the cell is left for later."""
MOST_OPTIONS = 64
"""Multisets of values that records alike may have; larger ties are left to other decoders."""


@dataclass(frozen=True)
class Peeled:
    """values: (m,) candidates, -1 where undecided; records alike get theirs in order.

    contradictions: cells that no combination explains: noise or recipe are not as stated.
    """

    values: Ints
    contradictions: int


@dataclass
class _Cell:
    """groups: (u,); options: each group's contributions (options, rows); residual, sd: (rows,)."""

    groups: Ints
    difference: Array  # (u, rows, K - 1)
    residual: Array
    sd: Array
    tried: int = -1


def peeled(
    equations: SparseEquations, ties: NDArray[np.intp], known: Ints | None = None
) -> Peeled:
    """What single cells prove; ties (m,): equal numbers for records alike. known: (m,) candidates
    that are taken for granted, -1 where none is; records alike are known together."""
    sizes = np.bincount(ties)
    options = [_multisets(equations.candidates, int(size)) for size in sizes]
    possible = _possible(options, ties, known, equations.candidates)
    cells = list(_cells(equations, ties))
    contradictions, moved = set[int](), True
    while moved:
        moved = False
        for number in sorted(range(len(cells)), key=lambda c: _size(cells[c], possible)):
            cell = cells[number]
            size = _size(cell, possible)
            if size > HALF**2 or not size or cell.tried == size or number in contradictions:
                continue
            cell.tried = size
            found = _listed(cell, options, possible)
            if found is None:
                continue
            if not all(f.any() for f in found):
                contradictions.add(number)
                continue
            for group, left in zip(cell.groups, found, strict=True):
                before = possible[group]
                if before is not None and left.sum() < before.sum():
                    possible[group], moved = left, True
            cell.tried = _size(cell, possible)
    return Peeled(_values(ties, options, possible), len(contradictions))


def _multisets(candidates: int, size: int) -> Array | None:
    """Counts (options, K - 1) of the candidates but the first among records alike."""
    if comb(candidates + size - 1, size) > MOST_OPTIONS:
        return None
    listed = np.array(list(combinations_with_replacement(range(candidates), size)))
    return np.asarray(
        (listed[:, :, None] == np.arange(1, candidates)).sum(axis=1), dtype=np.float64
    )


def _possible(
    options: list[Array | None], ties: NDArray[np.intp], known: Ints | None, candidates: int
) -> list[Flags | None]:
    """Which options each group still has."""
    possible = [None if o is None else np.ones(len(o), dtype=bool) for o in options]
    if known is None:
        return possible
    counts = np.zeros((len(options), candidates))
    np.add.at(counts, (ties[known >= 0], known[known >= 0]), 1)
    for group in np.unique(ties[known >= 0]):
        option = options[group]
        if option is not None and counts[group].sum() == np.count_nonzero(ties == group):
            possible[group] = np.all(option == counts[group, 1:], axis=1)
    return possible


def _cells(equations: SparseEquations, ties: NDArray[np.intp]) -> Iterator[_Cell]:
    first = np.unique(ties, return_index=True)[1]
    mine = np.isin(equations.record, first)
    row, group = equations.row[mine], ties[equations.record[mine]]
    difference = equations.difference[mine]
    cell = equations.cell[row]
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    for part in np.split(order, starts[1:]) if len(order) else []:
        rows, at = np.unique(row[part], return_inverse=True)
        groups, who = np.unique(group[part], return_inverse=True)
        dense = np.zeros((len(groups), len(rows), equations.candidates - 1))
        np.add.at(dense, (who, at), difference[part])
        yield _Cell(groups, dense, equations.residual[rows], equations.sd[rows])


def _size(cell: _Cell, possible: list[Flags | None]) -> int:
    """Combinations of what is undecided in a cell; 0 where nothing is, or an unlisted tie."""
    total, undecided = 1, False
    for group in cell.groups:
        left = possible[group]
        if left is None:
            return 0
        count = int(left.sum())
        undecided |= count > 1
        total *= count
        if total > HALF**2:
            return total
    return total if undecided else 0


def _listed(
    cell: _Cell, options: list[Array | None], possible: list[Flags | None]
) -> list[Flags] | None:
    """Of each group the options that some combination of the others allows; None: too many."""
    contributions = []
    for at, group in enumerate(cell.groups):
        option, left = options[group], possible[group]
        assert option is not None
        assert left is not None
        contributions.append((option[left] @ cell.difference[at].T) / cell.sd)
    halves, split = _halved([len(c) for c in contributions])
    sums = [_sums([contributions[j] for j in half], len(cell.sd)) for half in halves]
    target = cell.residual / cell.sd
    pairs = _meeting(sums[0], target - sums[1])
    if pairs is None:
        return None
    found = []
    for at, group in enumerate(cell.groups):
        half = int(at not in split)
        place = halves[half].index(at)
        counts = [len(contributions[j]) for j in halves[half]]
        digit = pairs[half] // int(np.prod(counts[place + 1 :], dtype=np.int64)) % counts[place]
        before = possible[group]
        assert before is not None
        left = np.zeros(len(before), dtype=bool)
        left[np.flatnonzero(before)[np.unique(digit)]] = True
        found.append(left)
    return found


def _halved(counts: list[int]) -> tuple[tuple[list[int], list[int]], set[int]]:
    """The groups in two parts of about equally many combinations."""
    parts: tuple[list[int], list[int]] = ([], [])
    sizes = [1, 1]
    for at in sorted(range(len(counts)), key=lambda j: -counts[j]):
        into = int(sizes[1] < sizes[0])
        parts[into].append(at)
        sizes[into] *= counts[at]
    return parts, set(parts[0])


def _sums(contributions: list[Array], rows: int) -> Array:
    """The sums of all combinations (n, rows), the last group's options turning fastest."""
    total = np.zeros((1, rows))
    for each in contributions:
        total = (total[:, None] + each[None]).reshape(-1, rows)
    return total


def _meeting(left: Array, right: Array) -> tuple[Ints, Ints] | None:
    """Which rows of ``left`` and ``right`` agree to within the tolerance in every column."""
    column = int(np.argmax(np.ptp(right, axis=0)))
    order = np.argsort(left[:, column], kind="stable")
    ordered = left[order, column]
    low = np.searchsorted(ordered, right[:, column] - TOLERANCE)
    high = np.searchsorted(ordered, right[:, column] + TOLERANCE, side="right")
    counts = high - low
    total = int(counts.sum())
    if total > MATCHES:
        return None
    two = np.repeat(np.arange(len(right)), counts)
    ends = np.cumsum(counts)
    one = order[np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(low, counts)]
    agree = (np.abs(left[one] - right[two]) <= TOLERANCE).all(axis=1)
    return one[agree], two[agree]


def _values(
    ties: NDArray[np.intp], options: list[Array | None], possible: list[Flags | None]
) -> Ints:
    values = np.full(len(ties), -1, dtype=np.int64)
    members = np.split(np.argsort(ties, kind="stable"), np.cumsum(np.bincount(ties))[:-1])
    for group, rows in enumerate(members):
        option, left = options[group], possible[group]
        if option is None or left is None or left.sum() != 1:
            continue
        counts = option[left][0].astype(np.int64)
        first = len(rows) - int(counts.sum())
        values[rows] = np.repeat(np.arange(len(counts) + 1), [first, *counts])
    return values
