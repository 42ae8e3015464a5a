"""Which values follow from single cells, when a cell holds few unknown records?

A leaf of a tree with a dozen undecided records is a subset sum: its gradient and its Hessian are
known to seven digits, and of the thousands of answers usually one meets both. What follows from one
cell makes others smaller, so cells are looked at again, smallest first, until nothing new follows.

* `Cells.peel`: a value is taken only when *every* other one was tried with every combination of
  the cell's other records and misses by more than the noise can. Nothing is assumed of how common
  values are. Cells are listed by meeting in the middle: two halves of at most 4,096 combinations.
* `Cells.search`: of larger cells only the records that another decoder doubts most are listed,
  the others held at its answer. A combination that meets the sums is taken when chance would hardly
  have brought one about: its prior times its likelihood, against the density of the sums over all
  combinations, leaves other answers 1 in 10,000. Sums that lie on a lattice (counts: a Hessian of
  squared error) are met by chance far more often than their rounding suggests; the density is that
  of the lattice's points. Whose change a few others make up for is not decided by it.

Records that enter every equation alike are one unknown count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import comb, prod

import numpy as np
from numpy.typing import NDArray
from scipy import special

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
MOST_OPTIONS = 512
"""Multisets of values that records alike may have; larger groups are left to other decoders."""
ODDS = 1e4
"""How much likelier than all others together a combination must be that `search` takes."""
FEW = 1e-9
"""Least chance of an option that another decoder rules out: it may be wrong."""


@dataclass
class _Cell:
    """groups: (u,) that enter it; difference: (u, rows, K - 1); residual, sd: (rows,)."""

    groups: Ints
    difference: Array
    residual: Array
    sd: Array
    tried: float = -1.0  # combinations when it was last listed


@dataclass
class Cells:
    """The cells of some equations and what is still possible in them.

    alike: (m,) equal numbers for records that enter every equation alike. possible: of each group
    the multisets of values (``options``) that were not ruled out. contradictions: cells that no
    combination explains: noise or recipe are not as stated.
    """

    equations: SparseEquations
    alike: NDArray[np.intp] = field(init=False)
    options: list[Array | None] = field(init=False)
    possible: list[Flags] = field(init=False)
    contradictions: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.alike = self.equations.alike()
        sizes = np.bincount(self.alike)
        self.options = [_multisets(self.equations.candidates, int(size)) for size in sizes]
        self.possible = [np.ones(0 if o is None else len(o), dtype=bool) for o in self.options]
        self._left = np.array([len(p) for p in self.possible])  # options of each group
        self._settled = np.zeros((len(sizes), self.equations.candidates - 1))  # where one is left
        self._cells = list(_cells(self.equations, self.alike))

    @property
    def listed(self) -> int:
        """Cells of which every combination was looked at."""
        return sum(cell.tried > 0 for cell in self._cells)

    def values(self) -> Ints:
        """(m,) candidates, -1 where undecided; records alike get theirs in order."""
        values = np.full(len(self.alike), -1, dtype=np.int64)
        ends = np.cumsum(np.bincount(self.alike))[:-1]
        members = np.split(np.argsort(self.alike, kind="stable"), ends)
        for rows, option, left in zip(members, self.options, self.possible, strict=True):
            if option is not None and left.sum() == 1:
                counts = option[left][0].astype(np.int64)
                first = len(rows) - int(counts.sum())
                values[rows] = np.repeat(np.arange(len(counts) + 1), [first, *counts])
        return values

    def proven(self) -> Flags:
        """(m,) whether a record's value is decided: of records alike, that all have the same."""
        values, count = self.values(), len(self.possible)
        low, high = np.full(count, self.equations.candidates), np.full(count, -1)
        np.minimum.at(low, self.alike, values)
        np.maximum.at(high, self.alike, values)
        return np.asarray(((low == high) & (low >= 0))[self.alike])

    def peel(self) -> None:
        """Rule out what single cells rule out, until nothing more follows."""
        moved = True
        while moved:
            moved = False
            sizes = [self._combinations(cell) for cell in self._cells]
            for number in np.argsort(sizes, kind="stable"):
                cell = self._cells[number]
                size = self._combinations(cell)
                if not 1 < size <= HALF**2 or cell.tried == size or number in self.contradictions:
                    continue
                cell.tried = size
                moved |= self._listed(int(number), cell)

    def _listed(self, number: int, cell: _Cell) -> bool:
        """Whether listing a cell whole ruled something out."""
        rest = self._open(cell)
        pairs = _Pairs(rest, [self._contribution(rest, at) for at in range(len(rest.groups))])
        if pairs.too_many:
            return False
        if not pairs.count:
            self.contradictions.add(number)
            return False
        moved = False
        for at, group in enumerate(rest.groups):
            seen = np.flatnonzero(self.possible[group])[np.unique(pairs.option(at))]
            if len(seen) < self._left[group]:
                self._keep(group, seen)
                moved = True
        cell.tried = self._combinations(cell)
        return moved

    def _open(self, cell: _Cell) -> _Cell:
        """The cell without the groups that are decided."""
        done = self._left[cell.groups] == 1
        known = self._settled[cell.groups[done]]
        taken = np.einsum("urk,uk->r", cell.difference[done], known)
        rest = cell.difference[~done]
        return _Cell(cell.groups[~done], rest, cell.residual - taken, cell.sd)

    def _keep(self, group: int, options: Ints) -> None:
        """Nothing but these options is possible of a group."""
        self.possible[group] = np.isin(np.arange(len(self.possible[group])), options)
        self._left[group] = len(options)
        option = self.options[group]
        if len(options) == 1 and option is not None:
            self._settled[group] = option[options[0]]

    def search(self, probabilities: Array) -> bool:
        """Decide cells around another decoder's answer (m, K); whether any was."""
        chances = self._chances(probabilities)
        moved = False
        for number, cell in enumerate(self._cells):
            if self._combinations(cell) > 1 and number not in self.contradictions:
                moved |= self._searched(self._open(cell), chances)
        return moved

    def _searched(self, cell: _Cell, chances: list[Array]) -> bool:
        mine = [chances[group][self.possible[group]] for group in cell.groups]
        each = [self._contribution(cell, at) for at in range(len(cell.groups))]
        best = [int(np.argmax(chance)) for chance in mine]
        listed, size = set[int](), 1
        for at in sorted(range(len(mine)), key=lambda j: float(mine[j].max())):
            size *= len(mine[at])
            if size > HALF**2:
                break
            listed.add(at)
        held = [c if at in listed else c[best[at]][None] for at, c in enumerate(each)]
        pairs = _Pairs(cell, held)
        if pairs.too_many or not pairs.count:
            return False
        answer = np.stack(
            [pairs.option(at) if at in listed else np.full(pairs.count, best[at])
             for at in range(len(mine))], axis=1,
        )  # fmt: skip
        prior = sum(np.log(chance)[answer[:, at]] for at, chance in enumerate(mine))
        score = prior - 0.5 * np.square(pairs.misses()).sum(axis=1)
        top = int(np.argmax(score))
        steps = _steps(np.concatenate(each))
        odds = float(score[top]) - np.log(steps).sum() - _density(cell, each, mine)
        if odds < np.log(ODDS) or special.softmax(score)[top] < 1 - 1 / ODDS:
            return False
        chosen = answer[top]
        for at in _not_exchangeable(each, mine, chosen):
            group = cell.groups[at]
            self._keep(group, np.flatnonzero(self.possible[group])[chosen[at]][None])
        return True

    def _chances(self, probabilities: Array) -> list[Array]:
        """Of each group the chance of every option, by the mean of its records."""
        sizes = np.bincount(self.alike)
        mean = np.stack([np.bincount(self.alike, p) for p in probabilities.T], axis=1)
        logs = np.log(np.maximum(mean / sizes[:, None], FEW))
        found = []
        for option, size, log in zip(self.options, sizes, logs, strict=True):
            if option is None:
                found.append(np.zeros(0))
                continue
            counts = np.column_stack([size - option.sum(axis=1), option])
            found.append(special.softmax(counts @ log - special.gammaln(counts + 1).sum(axis=1)))
        return found

    def _combinations(self, cell: _Cell) -> float:
        """Of what is undecided in a cell; 0 where a group has too many options to list."""
        with np.errstate(over="ignore"):  # infinitely many are too many, too
            return float(np.prod(self._left[cell.groups], dtype=np.float64))

    def _contribution(self, cell: _Cell, at: int) -> Array:
        """What each possible option of a group brings to the cell (options, rows), in noise."""
        group = cell.groups[at]
        option = self.options[group]
        assert option is not None
        return np.asarray(option[self.possible[group]] @ cell.difference[at].T / cell.sd)


def _multisets(candidates: int, size: int) -> Array | None:
    """Counts (options, K - 1) of the candidates but the first among records alike."""
    if comb(candidates + size - 1, size) > MOST_OPTIONS:
        return None
    listed = np.array(list(combinations_with_replacement(range(candidates), size)))
    counts = (listed[:, :, None] == np.arange(1, candidates)).sum(axis=1)
    return np.asarray(counts, dtype=np.float64)


def _cells(equations: SparseEquations, alike: NDArray[np.intp]) -> Iterator[_Cell]:
    first = np.unique(alike, return_index=True)[1]
    mine = np.isin(equations.record, first)
    row, group = equations.row[mine], alike[equations.record[mine]]
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


class _Pairs:
    """The combinations of a cell's options that meet its sums, by meeting in the middle."""

    def __init__(self, cell: _Cell, contributions: list[Array]) -> None:
        rows = len(cell.sd)
        self.counts = [len(c) for c in contributions]
        self.halves = _halved(self.counts)
        one, two = (_sums([contributions[j] for j in half], rows) for half in self.halves)
        self.gap = cell.residual / cell.sd - two
        self.left = one
        met = _meeting(one, self.gap)
        self.too_many = met is None
        self.met = met or (np.zeros(0, dtype=np.int64),) * 2
        self.count = len(self.met[0])

    def option(self, at: int) -> Ints:
        """Which option of a group each combination has."""
        half = int(at in self.halves[1])
        place = self.halves[half].index(at)
        below = prod(self.counts[j] for j in self.halves[half][place + 1 :])
        return self.met[half] // below % self.counts[at]

    def misses(self) -> Array:
        """By how much each combination misses the sums (count, rows), in noise."""
        return np.asarray(self.left[self.met[0]] - self.gap[self.met[1]])


def _halved(counts: list[int]) -> tuple[list[int], list[int]]:
    """The groups in two parts of about equally many combinations."""
    parts: tuple[list[int], list[int]] = ([], [])
    sizes = [1, 1]
    for at in sorted(range(len(counts)), key=lambda j: -counts[j]):
        into = int(sizes[1] < sizes[0])
        parts[into].append(at)
        sizes[into] *= counts[at]
    return parts


def _sums(contributions: list[Array], rows: int) -> Array:
    """The sums of all combinations (n, rows), the last group's options turning fastest."""
    total = np.zeros((1, rows))
    for each in contributions:
        total = (total[:, None] + each[None]).reshape(-1, rows)
    return total


def _meeting(left: Array, right: Array) -> tuple[Ints, Ints] | None:
    """Which rows of ``left`` and ``right`` agree to within the tolerance in every column."""
    column = int(np.argmax(np.ptp(right, axis=0) + np.ptp(left, axis=0)))
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


def _density(cell: _Cell, each: list[Array], chances: list[Array]) -> float:
    """The logarithm of how dense the sums lie at the residual, over all combinations: Gaussian."""
    rows = len(cell.sd)
    mean, covariance = -cell.residual / cell.sd, np.eye(rows)
    for contribution, chance in zip(each, chances, strict=True):
        share = chance / chance.sum()
        middle = share @ contribution
        mean = mean + middle
        covariance += (contribution - middle).T @ ((contribution - middle) * share[:, None])
    # rows that say the same are one, up to the noise: no variance is below it
    sizes, axes = np.linalg.eigh(covariance)
    sizes, along = np.maximum(sizes, 1.0), axes.T @ mean
    return float(-0.5 * (np.log(2 * np.pi * sizes) + along**2 / sizes).sum())


def _steps(vectors: Array) -> Array:
    """How far apart in each row sums of whole multiples of vectors (n, rows) lie, in noise.

    Hermite's form: where Euclid's algorithm on a row ends in one number above the tolerance, the
    sums lie on multiples of it, and the vectors left over say how those of one multiple lie apart
    in the other rows. Elsewhere sums lie anywhere, blurred by the noise.
    """
    steps = np.full(vectors.shape[1], (2 * np.pi) ** 0.5)
    rows = set(range(vectors.shape[1]))
    while rows:
        for row in rows:
            reduced = _euclid(vectors, row)
            if reduced is not None:
                steps[row], vectors = reduced
                rows.remove(row)
                break
        else:
            break
    return steps


def _euclid(vectors: Array, row: int) -> tuple[float, Array] | None:
    """The common divisor of a row's numbers and the vectors that are left with 0 there; None
    where there is none above the tolerance."""
    left = vectors
    while True:
        sizes = np.abs(left[:, row])
        live = sizes > TOLERANCE
        if not live.any():
            return None
        least = int(np.argmin(np.where(live, sizes, np.inf)))
        if live.sum() == 1:
            return float(sizes[least]), np.delete(left, least, axis=0)
        times = np.rint(left[:, row] / left[least, row])
        times[least] = 0.0
        if sizes[least] < TOLERANCE * np.abs(times).max():  # its own blur is taken so many times
            return None
        left = left - times[:, None] * left[least]


def _not_exchangeable(each: list[Array], chances: list[Array], chosen: Ints) -> list[int]:
    """The groups whose change no changes of up to three others would make up for, to an answer that
    is not ruled out.

    Four are needed because records of one margin and two labels differ by whole numbers: who takes
    one of each away there and adds one of each elsewhere changes neither sum.
    """
    gains = [np.log(chance / chance[at]) for chance, at in zip(chances, chosen, strict=True)]
    least = -np.log(ODDS) - 3 * max(float(gain.max()) for gain in gains)
    near = [
        np.flatnonzero((g > least) & (np.arange(len(g)) != at))
        for g, at in zip(gains, chosen, strict=True)
    ]
    owner = np.repeat(np.arange(-1, len(each)), [1, *map(len, near)])  # -1: no change
    gain = np.concatenate([[0.0], *(g[n] for g, n in zip(gains, near, strict=True))])
    change = np.concatenate(
        [
            np.zeros((1, each[0].shape[1])),
            *(c[n] - c[at] for c, n, at in zip(each, near, chosen, strict=True)),
        ]
    )
    one, two = np.triu_indices(len(owner), 1)
    apart = owner[one] != owner[two]
    one, two = np.append(0, one[apart]), np.append(0, two[apart])
    met = (
        None
        if len(one) > MATCHES
        else _meeting(change[one] + change[two], -change[one] - change[two])
    )
    if met is None:
        return []
    four = np.stack([one[met[0]], two[met[0]], one[met[1]], two[met[1]]], axis=1)
    who = owner[four]
    twice = ((who[:, :2, None] == who[:, None, 2:]) & (who[:, :2, None] >= 0)).any(axis=(1, 2))
    doubted = set(who[~twice & (gain[four].sum(axis=1) > -np.log(ODDS))].ravel().tolist())
    return [at for at in range(len(each)) if at not in doubted]
