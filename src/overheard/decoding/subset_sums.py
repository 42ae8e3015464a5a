"""Posterior of records from sums over few of them each: leaves of trees, cells of tables.

Model. Record i has one of K values s_i. Every equation r is a sum over the records of one *cell*,
relative to candidate 0,

    residual[r] = sum_i difference[r, i, s_i] + e[r],          difference[r, i, 0] = 0,

with e Gaussian of a stated standard deviation (gradients and Hessians of a leaf, known to seven
digits), or, where the sum is an integer, |e| at most half the width of an interval and nothing else
known of it (counts of a table: the interval has width 0 where the count itself was released).

A cell with few undecided records is a subset sum problem: of the many answers usually one meets the
totals of both its equations. Three steps, the cheapest sufficient one for each record:

1. **Conditioning.** A value is ruled out if no answer of the cell's records that has it meets the
   cell's totals. Cells are solved exactly, by listing all answers of either half of their records
   and sorting (meet in the middle: Horowitz and Sahni 1974), or, where there are too many, by
   comparing the total with the least and the largest sum of the others (bounds consistency). A
   record with one possible value is *proven*: it is subtracted everywhere, which makes other cells
   smaller, until nothing changes. Nothing is assumed of how common values are.
2. **Enumeration.** Undecided records that share no equation with others form components; of the
   small ones all answers are listed in the same way: what they rule out, and the exact posterior.
3. **Expectation propagation** (:func:`overheard.decoding.posterior.decode`) for all that is left.
   Its answer is under-determined and no cell confirms it, so it is believed up to
   ``Options.max_unproven`` only.

Records that enter every equation alike are a *group*, of which only the count of each value can be
known; the counts are shared by the records' priors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns, fits
from overheard.decoding.measurement import BLOCK, Measurement, from_differences
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.ties import decode_tied, same_rows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Of a float64 sum, relative to its terms."""


@dataclass(frozen=True)
class Options:
    """Settings of :func:`decode_subset_sums`.

    tolerance: standard deviations of Gaussian noise beyond which an answer is ruled out.
    max_unproven: largest probability that expectation propagation alone may give a value, unless
        the prior gives it more.
    contradicted: share of the solved cells that no answer may meet; beyond it, noise, records or
        description are not as stated. Integer sums are exact: none may be contradicted.
    half: answers of half a cell's records that are listed.
    matches: pairs of halves that may meet one equation; of cells with more only bounds are used.
    numbers: of a table of sums or answers that are held at a time.
    counts: of values that are listed of one group; larger groups are left to the posterior.
    """

    tolerance: float = 8.0
    max_unproven: float = 0.99
    contradicted: float = 0.05
    half: int = 1 << 18
    matches: int = 1 << 18
    numbers: int = 1 << 24
    counts: int = 1 << 13


@dataclass(frozen=True)
class SubsetSums:
    """Equations over few records each, as a sparse matrix.

    row, record: (z,) where an entry stands; difference: (z, K - 1), what each candidate adds beyond
    candidate 0. Of each equation (R,): residual, what was released less what all records add under
    candidate 0; sd of its noise; half_width of the interval of an integer sum, NaN of others; cell:
    equal where equations hold the same records.
    """

    records: int
    candidates: int
    row: Ints
    record: Ints
    difference: Array
    residual: Array
    sd: Array
    half_width: Array
    cell: Ints

    @property
    def rows(self) -> int:
        return len(self.residual)

    def given(self, values: Ints) -> SubsetSums:
        """What remains when some records are known: values (m,), -1 where not."""
        known = values[self.record] >= 0
        entry = np.flatnonzero(values[self.record] > 0)
        taken = self.difference[entry, values[self.record[entry]] - 1]
        return replace(
            self,
            row=self.row[~known],
            record=self.record[~known],
            difference=self.difference[~known],
            residual=self.residual - np.bincount(self.row[entry], taken, self.rows),
        )

    def residual_at(self, values: Ints) -> Array:
        """What an answer (m,) leaves unexplained (R,), in units of the noise."""
        return self.given(values).residual / self.sd

    def groups(self) -> NDArray[np.intp]:
        """(m,) equal numbers for records that enter every equation in the same way."""
        order = np.lexsort((self.row, self.record))
        keys: dict[bytes, int] = {}
        result = np.empty(self.records, dtype=np.intp)
        ends = np.cumsum(np.bincount(self.record, minlength=self.records))[:-1]
        for record, part in enumerate(np.split(order, ends)):
            key = self.row[part].tobytes() + self.difference[part].tobytes()
            result[record] = keys.setdefault(key, len(keys))
        return result

    def measurement(self, asked: Flags | None = None) -> Measurement:
        """All equations, white and reduced, of the records ``asked`` (m,), all by default; others
        must enter none that has a residual. One QR of blocks of rows, never normal equations."""
        asked = np.ones(self.records, dtype=bool) if asked is None else asked
        free = self.candidates - 1
        column = self.record[:, None] * free + np.arange(free)
        row = np.broadcast_to(self.row[:, None], column.shape)
        every = sparse.coo_matrix(
            ((self.difference / self.sd[row]).ravel(), (row.ravel(), column.ravel())),
            shape=(self.rows, self.records * free),
        ).tocsr()[:, np.repeat(asked, free)]
        unknowns, total = every.shape[1], self.residual / self.sd
        block, upper = max(2 * unknowns, BLOCK // (unknowns + 1)), np.zeros((0, unknowns + 1))
        for start in range(0, self.rows, block):
            some = slice(start, start + block)
            dense = np.column_stack([every[some].toarray(), total[some]])
            upper = np.asarray(np.linalg.qr(np.vstack([upper, dense]), mode="r"))
        features = np.ascontiguousarray(upper[:, :-1].T).reshape(-1, free, len(upper))
        reduced = from_differences(features, upper[:, -1], 1.0)
        # rows that the factorisation rotated away hold zeros, or the noise's last component
        return replace(reduced, residual_dof=self.rows - reduced.rank)


def sums_over_cells(
    term: Array, cell: Ints, total: Array, sd: Array, half_width: Array | None = None
) -> SubsetSums:
    """One equation a cell whose total (C,) was released (NaN: it was not).

    term, cell: (K, m), what each record adds under each candidate, and to which cell's sum.
    """
    count, records = term.shape
    known, cells = np.isfinite(total), len(total)
    shape, people = (cells, records), np.arange(records)
    added = [sparse.csr_matrix((t, (c, people)), shape) for t, c in zip(term, cell, strict=True)]
    gaps = [sparse.coo_matrix((one - added[0])[known]) for one in added[1:]]
    free = np.eye(count - 1)
    for gap in gaps:
        gap.eliminate_zeros()
    sums = [np.bincount(c, np.abs(t), cells) for t, c in zip(term, cell, strict=True)]
    noise = np.maximum(sd, ROUNDING * (np.max(sums, axis=0) + np.abs(total)))
    return SubsetSums(
        records,
        count,
        np.concatenate([gap.row for gap in gaps]).astype(np.int64),
        np.concatenate([gap.col for gap in gaps]).astype(np.int64),
        np.concatenate([np.outer(gap.data, unit) for gap, unit in zip(gaps, free, strict=True)]),
        (total - np.bincount(cell[0], term[0], cells))[known],
        np.where(noise > 0, noise, 1.0)[known],  # 0: nobody is in the cell
        (np.full(cells, np.nan) if half_width is None else half_width)[known],
        np.flatnonzero(known),
    )


def joined(parts: list[SubsetSums], same_cells: bool = False) -> SubsetSums:
    """The equations of several messages about the same records, or several of the same cells."""
    sizes = [0 if same_cells else int(part.cell.max(initial=-1)) + 1 for part in parts]
    before = {"row": np.cumsum([0, *(p.rows for p in parts)]), "cell": np.cumsum([0, *sizes])}
    columns = {
        name: np.concatenate(
            [getattr(part, name) + (before[name][at] if name in before else 0)
             for at, part in enumerate(parts)]
        )
        for name in ("row", "record", "difference", "residual", "sd", "half_width", "cell")
    }  # fmt: skip
    return SubsetSums(parts[0].records, parts[0].candidates, **columns)


@dataclass(frozen=True)
class Decoded:
    """The posterior; which records were proven by conditioning alone, without a prior (of a group,
    those that all have the same value); the mean square of what is left of the equations whose
    records are all decided, in units of the noise, NaN without any."""

    posterior: Posterior
    proven: Flags
    chi2: float


def decode_subset_sums(
    equations: SubsetSums, prior: Any = None, options: Options | None = None
) -> Decoded:
    """Probabilities (m, K) of each record's candidates. prior: None (uniform), (K,) or (m, K)."""
    p0 = check_prior(prior, equations.records, equations.candidates)
    state = Conditioning(equations, options)
    most = 0.0 if np.isfinite(equations.half_width).any() else state.options.contradicted
    if state.contradictions > most * max(state.solved, 1):
        ties = same_rows(np.column_stack([state.group, p0]))
        result = decode_tied(equations.measurement(), ties, p0)
        result, proven = replace(result, flag=POOR_FIT), np.zeros(len(p0), dtype=bool)
    else:
        result, proven = _completed(equations, state, p0), state.proven()
    decided = np.where(result.confidence > 1 - 1e-9, result.guess, -1)
    rest = equations.given(decided)
    closed = np.bincount(rest.row, minlength=rest.rows) == 0
    squares = np.square(rest.residual[closed] / rest.sd[closed])
    return Decoded(result, proven, float(squares.mean()) if len(squares) else float("nan"))


def _completed(equations: SubsetSums, state: Conditioning, p0: Array) -> Posterior:
    """Conditioning, then the exact posterior of small components, then `decode` for the rest."""
    values, unknowns = state.values(), count_unknowns(p0)
    shares = np.eye(equations.candidates)[values]
    listed, open_ = values >= 0, equations.given(values)
    for records, share in state.posteriors(open_, p0):
        shares[records], listed[records] = share, True
    if listed.all():
        residual = equations.residual_at(values) if (values >= 0).all() else np.zeros(0)
        chi2, rows = float(residual @ residual), len(residual)
        flag = "" if fits(chi2, rows) else POOR_FIT
        result = Posterior(
            p0, chi2 / max(rows, 1), unknowns, unknowns, 1, not flag, "conditioning", flag
        )
    else:
        # components share no equation: those of a listed one say nothing of the rest
        rest, apart = ~listed, np.unique(open_.row[listed[open_.record]])
        open_.residual[apart] = 0.0
        ties = same_rows(np.column_stack([state.group, p0])[rest])
        result = decode_tied(open_.measurement(rest), ties, p0[rest])
        shares[rest] = _modest(result.probabilities, p0[rest], state.options.max_unproven)
        result = replace(result, rank=result.rank + int(listed.sum()) * (equations.candidates - 1))
    for group in np.flatnonzero(np.bincount(state.group) > 1):
        alike = np.flatnonzero(state.group == group)
        if (values[alike] >= 0).all():
            counts = np.bincount(values[alike], minlength=equations.candidates)
            shares[alike] = given_counts(p0[alike], counts)
    return replace(result, probabilities=shares, unknowns=unknowns)


def _modest(probabilities: Array, p0: Array, limit: float) -> Array:
    """Mixed with the prior until no value is more probable than ``limit`` or its prior."""
    rows, best = np.arange(len(p0)), probabilities.argmax(axis=1)
    p, before = probabilities[rows, best], p0[rows, best]
    most = np.maximum(before, limit)
    weight = np.where(p > most, (most - before) / np.maximum(p - before, 1e-300), 1.0)
    return p0 + weight[:, None] * (probabilities - p0)


def given_counts(prior: Array, counts: Ints) -> Array:
    """Probabilities (g, K) of a group's records, given how many of them have each value.

    Exact: the coefficient of x^counts in the product of the records' generating polynomials
    p_i0 + p_i1 x_1 + p_i2 x_2 + ..., with record i left out, says how likely the others make up
    for each of its values (the conditional Bernoulli distribution, if there are two).
    """
    if (prior == prior[0]).all() or (counts > 0).sum() == 1:
        return np.tile(counts / counts.sum(), (len(prior), 1))
    odds = np.maximum(prior, 1e-12)
    chances = np.zeros_like(prior)
    for i in range(len(prior)):
        others = _coefficients(np.delete(odds, i, axis=0), counts)
        for k in np.flatnonzero(counts):
            need = counts - (np.arange(len(counts)) == k)
            chances[i, k] = odds[i, k] * others[tuple(need[1:])]
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _coefficients(prior: Array, counts: Ints) -> Array:
    """Of the product of the polynomials p_i0 + sum_k p_ik x_k, up to x^counts, scaled."""
    result = np.zeros(tuple(counts[1:] + 1))
    result[(0,) * result.ndim] = 1.0
    for p in prior:
        longer = p[0] * result
        for axis in range(result.ndim):
            ahead, behind = np.moveaxis(longer, axis, 0), np.moveaxis(result, axis, 0)
            ahead[1:] += p[axis + 1] * behind[:-1]
        result = longer / longer.max()
    return result


@dataclass
class _Cell:
    """Some equations over the same groups. groups: (u,); difference: (u, rows, K - 1), what one
    record of each adds; total, slack: (rows,), the sum and how far off it may be; sd: (rows,),
    infinite where every sum within the slack is as likely as another."""

    groups: Ints
    difference: Array
    total: Array
    slack: Array
    sd: Array
    tried: float = 0.0  # answers of its groups when it was last looked at
    solved: bool = False  # every one of them was
    contradicted: bool = False  # none of them meets the totals


class Conditioning:
    """Which counts of values are possible in each group, given every cell by itself.

    group: (m,), the group of each record. possible: of each group the counts (n, K - 1) of the
    candidates but the first that were not ruled out; none at all if there are too many to list.
    solved: how many cells could be listed whole; contradictions: how many of them, and of the
    integer sums whose records are all decided, no answer meets.
    """

    def __init__(self, equations: SubsetSums, options: Options | None = None) -> None:
        self.group, self.options = equations.groups(), options or Options()
        self.candidates = equations.candidates
        self.sizes = np.bincount(self.group)
        self.possible = [
            _counts(self.candidates, int(size), self.options.counts) for size in self.sizes
        ]
        self.solved = self.contradictions = 0
        self._number = np.array([len(counts) for counts in self.possible])
        self._condition([*self._parts(equations, equations.cell)])
        self._condition([*self.components(equations.given(self.values()))])
        open_ = equations.given(self.values())
        closed = np.bincount(open_.row, minlength=open_.rows) == 0
        self.contradictions += int((closed & (np.abs(open_.residual) > open_.half_width)).sum())

    def values(self) -> Ints:
        """(m,) candidates, -1 where undecided; the records of a group get theirs in order."""
        values = np.full(len(self.group), -1, dtype=np.int64)
        members = np.split(np.argsort(self.group, kind="stable"), np.cumsum(self.sizes)[:-1])
        for group in np.flatnonzero(self._number == 1):
            counts = self.possible[group][0].astype(np.int64)
            first = self.sizes[group] - counts.sum()
            values[members[group]] = np.repeat(np.arange(self.candidates), [first, *counts])
        return values

    def proven(self) -> Flags:
        """(m,) whether a record has one possible value: its group has, in all of its records."""
        values = self.values()
        first = values[np.unique(self.group, return_index=True)[1]]
        others = np.bincount(self.group, values != first[self.group])
        return np.asarray((values >= 0) & (others[self.group] == 0))

    def components(self, open_: SubsetSums) -> Iterator[_Cell]:
        """The equations that are open, those together that any undecided records connect."""
        links = sparse.coo_matrix(
            (np.ones(len(open_.row)), (open_.row, open_.rows + self.group[open_.record])),
            shape=(open_.rows + len(self.sizes),) * 2,
        )
        part = sparse.csgraph.connected_components(links, directed=False)[1]
        return self._parts(open_, part[: open_.rows])

    def posteriors(self, open_: SubsetSums, prior: Array) -> Iterator[tuple[Ints, Array]]:
        """Groups' records (n,), of components that can be listed, and the exact posterior share
        (K,) of each value among them."""
        logs = np.log(np.maximum(prior, 1e-300))
        mean = np.stack([np.bincount(self.group, log) for log in logs.T], 1) / self.sizes[:, None]
        for cell in self.components(open_):
            answers = self._solutions(cell)
            if answers is None or not len(answers[1]):
                continue
            chosen, misses = answers
            score = -0.5 * np.square(misses / cell.sd).sum(axis=1)
            for group, option in zip(cell.groups, chosen, strict=True):
                some = self.possible[group][option]
                counts = np.column_stack([self.sizes[group] - some.sum(axis=1), some])
                score += counts @ mean[group] - special.gammaln(counts + 1).sum(axis=1)
            weight = special.softmax(score)
            for group, option in zip(cell.groups, chosen, strict=True):
                share = np.bincount(option, weight, self._number[group]) @ self.possible[group]
                share = np.append(self.sizes[group] - share.sum(), share) / self.sizes[group]
                yield np.flatnonzero(self.group == group), np.maximum(share, 0.0)

    def _parts(self, equations: SubsetSums, part: NDArray[Any]) -> Iterator[_Cell]:
        """The equations of each ``part`` (R,) as one cell."""
        mine = np.isin(equations.record, np.unique(self.group, return_index=True)[1])
        row, group = equations.row[mine], self.group[equations.record[mine]]
        difference = equations.difference[mine]
        order = np.argsort(part[row], kind="stable")
        whole = np.isfinite(equations.half_width)
        slack = np.where(whole, equations.half_width, self.options.tolerance * equations.sd)
        sd = np.where(whole, np.inf, equations.sd)
        starts = np.flatnonzero(np.diff(part[row][order], prepend=-1))
        for entries in np.split(order, starts[1:]) if len(order) else []:
            rows, at = np.unique(row[entries], return_inverse=True)
            groups, who = np.unique(group[entries], return_inverse=True)
            dense = np.zeros((len(groups), len(rows), self.candidates - 1))
            np.add.at(dense, (who, at), difference[entries])
            yield _Cell(groups, dense, equations.residual[rows], slack[rows], sd[rows])

    def _condition(self, cells: list[_Cell]) -> None:
        """Rule out what single cells rule out, smallest cells first, until nothing changes."""
        moved = True
        while moved:
            moved = False
            for cell in sorted(cells, key=self._answers):
                size = self._answers(cell)
                if size <= 1 or cell.contradicted or cell.tried == size:
                    continue
                answers = self._solutions(cell)
                cell.solved |= answers is not None
                if answers is None:
                    used = self._within_bounds(cell)
                else:
                    used = [np.flatnonzero(np.bincount(option)) for option in answers[0]]
                cell.contradicted = not all(map(len, used))
                if cell.contradicted:
                    continue
                for group, options in zip(cell.groups, used, strict=True):
                    moved |= len(options) < self._number[group]
                    self.possible[group] = self.possible[group][options]
                    self._number[group] = len(options)
                cell.tried = self._answers(cell)
        self.solved += sum(cell.solved for cell in cells)
        self.contradictions += sum(cell.contradicted for cell in cells)

    def _answers(self, cell: _Cell) -> float:
        """Answers of a cell's groups; 0 where one has too many counts to list."""
        with np.errstate(over="ignore"):  # infinitely many are too many, too
            return float(np.prod(self._number[cell.groups], dtype=np.float64))

    def _within_bounds(self, cell: _Cell) -> list[Ints]:
        """Which counts of each group leave the others a sum between the least and the largest
        that they can have."""
        adds = [
            self.possible[g] @ gap.T for g, gap in zip(cell.groups, cell.difference, strict=True)
        ]
        low, high = (np.array([end(each, axis=0) for each in adds]) for end in (np.min, np.max))
        up = cell.total + cell.slack - low.sum(axis=0)
        down = high.sum(axis=0) - cell.total + cell.slack
        return [
            np.flatnonzero(((each - least <= up) & (most - each <= down)).all(axis=1))
            for each, least, most in zip(adds, low, high, strict=True)
        ]

    def _solutions(self, cell: _Cell) -> tuple[list[Ints], Array] | None:
        """All answers that meet the totals of a cell: of each group the place of its counts (n,)
        among those possible, and by how much the sums are missed (n, rows). None: too many."""
        numbers, rows, limits = self._number[cell.groups], len(cell.total), self.options
        halves: tuple[list[int], list[int]] = ([], [])
        sizes = [1.0, 1.0]
        for at in np.argsort(-numbers, kind="stable").tolist():
            into = int(sizes[1] < sizes[0])
            halves[into].insert(0, at)  # the largest last: what is listed grows late
            sizes[into] *= numbers[at]
        if not min(sizes) or max(sizes) > limits.half or max(sizes) * rows > limits.numbers:
            return None
        sums = []
        for half in halves:
            total = np.zeros((1, rows))
            for at in half:
                adds = self.possible[cell.groups[at]] @ cell.difference[at].T
                total = (total[:, None] + adds).reshape(-1, rows)
            sums.append(total)
        met = _meeting(sums[0], cell.total - sums[1], cell.slack, limits.matches)
        if met is None or len(met[0]) * (rows + len(numbers)) > limits.numbers:
            return None
        chosen: dict[int, Ints] = {}
        for half, index in zip(halves, met, strict=True):
            for at in reversed(half):  # the last varies fastest
                index, chosen[at] = np.divmod(index, numbers[at])
        misses = cell.total - sums[0][met[0]] - sums[1][met[1]]
        return [chosen[at] for at in range(len(numbers))], misses


def _counts(candidates: int, size: int, most: int) -> Array:
    """Counts (n, K - 1) of the candidates but the first among so many records; none if more than
    ``most``. Stars and bars: the bars stand between the records of different candidates."""
    bars = candidates - 1
    if comb(size + bars, bars) > most:
        return np.zeros((0, bars))
    places = np.array(list(combinations(range(size + bars), bars)), dtype=np.float64)
    return np.diff(places, axis=1, append=size + bars) - 1


def _meeting(left: Array, right: Array, slack: Array, most: int) -> tuple[Ints, Ints] | None:
    """Which rows of ``left`` and ``right`` agree to within the slack in every column; None if
    more than ``most`` do in the column that tells most apart."""
    spread = np.ptp(right, axis=0) + np.ptp(left, axis=0)
    column = int(np.argmax(spread / np.maximum(slack, 1e-9 * spread.max() + 1e-300)))
    order = np.argsort(left[:, column], kind="stable")
    ordered, wanted, within = left[order, column], right[:, column], slack[column]
    low = np.searchsorted(ordered, wanted - within)
    counts = np.searchsorted(ordered, wanted + within, side="right") - low
    total = int(counts.sum())
    if total > most:
        return None
    two = np.repeat(np.arange(len(right)), counts)
    one = order[np.arange(total) - np.repeat(np.cumsum(counts) - counts - low, counts)]
    agree = (np.abs(left[one] - right[two]) <= slack).all(axis=1)
    return one[agree], two[agree]
