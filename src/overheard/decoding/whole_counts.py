"""Which values do released counts leave possible, and how likely is each?

Records that a program cannot tell apart are a group, of which only the number with each candidate
matters. A released count bounds a sum of such numbers:

    low  <=  sum_g sum_k n[g, k] c[g, k]  <=  high,        sum_k n[g, k] = size of g,

all of them whole. That is more than a Gaussian can say, and it is exact. Given the prior, a group's
numbers are multinomial, so the posterior is a sum over everything that meets the bounds. It is
summed group by group: what came before matters only through the counts that later groups still
change (forwards), and likewise from the other end (backwards); no answer is left out or counted
twice. Groups that share no count are summed apart. Nothing here rounds but the probabilities: what
is possible is decided in whole numbers, so that a value is called the only one exactly if it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from overheard.decoding.max_entropy import check_prior
from overheard.errors import FixData

Array = NDArray[np.float64]
Groups = NDArray[np.intp]
State = tuple[int, ...]
MOST_STEPS = 400_000
"""Sums of (state, answer of a group) in one part, each of up to ``WIDE`` counts; parts that need
more are left open."""
WIDE = 8  # counts in a sum up to which one costs as much as another


@dataclass(frozen=True)
class WholeCounts:
    """What the bounds say of each group.

    shares: (G, K), expected share of each candidate; NaN where it was ``left_open``, because too
    many answers are possible. certified: (G,), there is one answer only. may: (G, K), which
    candidates some record of the group can have, as far as was looked. possible: whether there is
    any answer at all.
    """

    shares: Array
    certified: NDArray[np.bool_]
    left_open: NDArray[np.bool_]
    may: NDArray[np.bool_]
    possible: bool


def whole_counts(
    counts: Any, low: Any, high: Any, groups: Groups, prior: Any = None
) -> WholeCounts:
    """The exact posterior of every group that can be summed, and which answers are the only ones.

    counts: (m, K, R) whole numbers that each record adds under each candidate, the same within a
    group; low, high: (R,); groups: (m,) numbers from 0; prior: (K,), or (m, K), the same within a
    group; candidates of no prior are not possible.
    """
    adds, least, most = (np.asarray(x, dtype=np.int64) for x in (counts, low, high))
    if adds.ndim != 3 or least.shape != adds.shape[2:] or most.shape != least.shape:
        raise FixData(
            f"counts {adds.shape} with bounds {least.shape} and {most.shape}; expected "
            "(records, candidates, rows) and (rows,) twice"
        )
    p0 = check_prior(prior, adds.shape[0], adds.shape[1])
    first, sizes = np.unique(groups, return_index=True)[1], np.bincount(groups)
    if (adds != adds[first][groups]).any():
        raise FixData("records of one group add different counts; they are no group")
    base = (adds[first, 0] * sizes[:, None]).sum(axis=0)
    rows = adds[first] - adds[first, :1]
    least, most = least - base, most - base
    moved = (rows != 0).any(axis=(0, 1))
    possible = bool(((least <= 0) & (most >= 0))[~moved].all())
    rows, least, most = rows[:, :, moved], least[moved], most[moved]
    found = WholeCounts(
        np.full(p0[first].shape, np.nan),
        np.zeros(len(first), dtype=bool),
        np.zeros(len(first), dtype=bool),
        p0[first] > 0,
        possible,
    )
    for part in _parts(rows):
        used = (rows[part] != 0).any(axis=(0, 1))
        bounds = (least[used], most[used])
        solved = _sum(rows[part][:, :, used], *bounds, sizes[part], p0[first[part]])
        if solved is None:
            possible = False
            continue
        found.shares[part], found.certified[part] = solved
        found.left_open[part] = np.isnan(solved[0]).any(axis=1)
        found.may[part] &= ~(found.certified[part][:, None] & (solved[0] <= 0))
    return replace(found, certified=found.certified & possible, possible=possible)


def _parts(rows: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Groups that share no row are summed apart."""
    touched = (rows != 0).any(axis=1)
    left = np.ones(len(rows), dtype=bool)
    for start in range(len(rows)):
        if not left[start]:
            continue
        inside = np.zeros(len(rows), dtype=bool)
        inside[start] = True
        while True:
            grown = inside | (touched[:, touched[inside].any(axis=0)].any(axis=1) & left)
            if (grown == inside).all():
                break
            inside = grown
        left &= ~inside
        yield np.flatnonzero(inside)


def _answers(size: int, prior: Array) -> tuple[NDArray[np.int64], Array] | None:
    """Numbers of each candidate (n, K) among ``size`` records alike, and their log prior."""
    may = np.flatnonzero(prior > 0)
    if comb(size + len(may) - 1, len(may) - 1) > MOST_STEPS:
        return None
    listed = []
    for bars in combinations(range(size + len(may) - 1), len(may) - 1):
        ends = (-1, *bars, size + len(may) - 1)
        listed.append([b - a - 1 for a, b in pairwise(ends)])
    numbers = np.zeros((len(listed), len(prior)), dtype=np.int64)
    numbers[:, may] = listed
    logs = special.gammaln(size + 1) - special.gammaln(numbers[:, may] + 1).sum(axis=1)
    return numbers, logs + numbers[:, may] @ np.log(prior[may])


def _sum(
    rows: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    sizes: NDArray[Any],
    prior: Array,
) -> tuple[Array, NDArray[np.bool_]] | None:
    """Shares (G, K), NaN where too many answers are left, and whether they are the only ones (G,);
    None: there is no answer."""
    order = _order(rows)
    unknown = np.full(prior.shape, np.nan), np.zeros(len(rows), dtype=bool)
    listed = [_answers(int(sizes[g]), prior[g]) for g in order]
    if any(one is None for one in listed):
        return unknown
    answers = [one for one in listed if one is not None]
    moves = [numbers @ rows[g] for g, (numbers, _) in zip(order, answers, strict=True)]
    if not _narrowed(answers, moves, low, high):
        return None
    for g, (numbers, _) in zip(order, answers, strict=True):
        if len(numbers) == 1:
            unknown[0][g], unknown[1][g] = numbers[0] / sizes[g], True
    # what later groups can still add to each row, at least and at most
    after_low = np.cumsum([m.min(axis=0) for m in moves[::-1]], axis=0)[::-1]
    after_high = np.cumsum([m.max(axis=0) for m in moves[::-1]], axis=0)[::-1]
    none = np.zeros((1, rows.shape[2]), dtype=np.int64)
    after_low, after_high = (np.vstack([x[1:], none]) for x in (after_low, after_high))
    forward: list[dict[State, float]] = [{(0,) * rows.shape[2]: 0.0}]
    steps: list[list[tuple[State, int, State]]] = []
    spent = 0
    for place, (_, logs) in enumerate(answers):
        spent += len(forward[-1]) * len(logs) * max(1, rows.shape[2] // WIDE)
        if spent > MOST_STEPS:
            return unknown
        # a row that nobody later moves is met or not, and then forgotten; so is one that is met
        # whatever comes
        floor, ceiling = low - after_high[place], high - after_low[place]
        safe_low, safe_high = low - after_low[place], high - after_high[place]
        reached: dict[State, float] = {}
        taken: list[tuple[State, int, State]] = []
        for state, weight in forward[-1].items():
            sums = np.asarray(state) + moves[place]
            fits = ((sums >= floor) & (sums <= ceiling)).all(axis=1)
            safe = (sums >= safe_low) & (sums <= safe_high)
            sums = np.where(safe, safe_low, sums)
            for answer in np.flatnonzero(fits).tolist():
                following = tuple(sums[answer].tolist())
                total = weight + logs[answer]
                old = reached.get(following)
                reached[following] = total if old is None else float(np.logaddexp(old, total))
                taken.append((state, answer, following))
        forward.append(reached)
        steps.append(taken)
    if not forward[-1]:
        return None
    return _backwards(order, answers, forward, steps, sizes, prior)


def _narrowed(
    answers: list[tuple[NDArray[np.int64], Array]],
    moves: list[NDArray[np.int64]],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> bool:
    """Leave out a group's answers that no answers of the others can make up for, until nothing
    changes; False if a group has none left."""
    while True:
        lows, highs = (np.array([at(m, axis=0) for m in moves]) for at in (np.min, np.max))
        least, most = low - highs.sum(axis=0), high - lows.sum(axis=0)
        before = sum(map(len, moves))
        for g, (numbers, logs) in enumerate(answers):
            may = ((moves[g] >= least + highs[g]) & (moves[g] <= most + lows[g])).all(axis=1)
            if not may.any():
                return False
            answers[g], moves[g] = (numbers[may], logs[may]), moves[g][may]
        if sum(map(len, moves)) == before:
            return True


def _order(rows: NDArray[np.int64]) -> list[int]:
    """Groups in an order in which rows are finished early: next, the one that opens fewest."""
    touched = (rows != 0).any(axis=1)
    wide, left = touched.sum(axis=1), np.ones(len(rows), dtype=bool)
    shut = np.ones(rows.shape[2], dtype=bool)
    order: list[int] = []
    for _ in range(len(rows)):
        opens = (touched & shut).sum(axis=1) * (wide.max(initial=0) + 1) - wide
        best = int(np.where(left, opens, np.iinfo(np.int64).max).argmin())
        order.append(best)
        left[best] = False
        shut &= ~touched[best]
    return order


def _backwards(
    order: Sequence[int],
    answers: Sequence[tuple[NDArray[np.int64], Array]],
    forward: Sequence[dict[State, float]],
    steps: Sequence[Sequence[tuple[State, int, State]]],
    sizes: NDArray[Any],
    prior: Array,
) -> tuple[Array, NDArray[np.bool_]]:
    """From the ends of all answers back to each group's own part in them."""
    shares, single = prior.copy(), np.zeros(len(prior), dtype=bool)
    behind = dict.fromkeys(forward[-1], 0.0)
    for place in range(len(order) - 1, -1, -1):
        group, (numbers, logs) = order[place], answers[place]
        whole = np.full(len(numbers), -np.inf)
        before: dict[State, float] = {}
        for state, answer, following in steps[place]:
            if following not in behind:
                continue  # it leads nowhere
            rest = behind[following] + logs[answer]
            old = before.get(state)
            before[state] = rest if old is None else float(np.logaddexp(old, rest))
            whole[answer] = np.logaddexp(whole[answer], rest + forward[place][state])
        likely = special.softmax(whole)
        shares[group] = likely @ numbers / sizes[group]
        single[group] = bool((whole > -np.inf).sum() == 1)
        behind = before
    return shares, single
