"""Which answers are close to one: one record otherwise, or two?

Replays tell whether an answer is right, and of answers there are too many to replay: these are the
first to try.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Choice = NDArray[np.int64]
Changes = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Records (c,) and the candidates (c,) that they become."""

DOUBTED, TRIED = 32, 64
"""Records, the least sure, and answers with one or two of them changed: a pass costs as much."""


def single_changes(choice: Choice, values: int) -> Changes:
    """Every change of one record of an answer (n,)."""
    record, other = np.nonzero(np.arange(values) != choice[:, None])
    return record, other


def likeliest(found: Array, choice: Choice, present: NDArray[np.bool_]) -> Choice:
    """The answer and those (S, n), one or two records otherwise, that probabilities (n, K) make
    likeliest."""
    log = np.log(np.maximum(found, 1e-300))
    record, other = single_changes(choice, len(present))
    cost = log[record, choice[record]] - log[record, other]
    some = np.argsort(cost, kind="stable")[:DOUBTED]
    record, other, cost = record[some], other[some], cost[some]
    score = -np.add.outer(cost, cost)
    score[np.diag_indices(len(score))] /= 2
    return np.append(choice[None], best_pairs(choice, (record, other), score, present), axis=0)


def best_pairs(
    choice: Choice, changes: Changes, score: Array, present: NDArray[np.bool_]
) -> Choice:
    """The answers (S, n) with the pairs of changes (on the diagonal: one) that score most, with
    as many members. ``score``: (c, c), symmetric."""
    record, other = changes
    more = present[other].astype(int) - present[choice[record]]
    one, two = np.triu_indices(len(record))
    pair = one != two
    keeps = (more[one] + pair * more[two] == 0) & ~(pair & (record[one] == record[two]))
    worth = np.where(keeps, score[one, two], -np.inf)
    best = np.argsort(-worth, kind="stable")[:TRIED]
    best = best[np.isfinite(worth[best])]
    made = np.repeat(choice[None], len(best), axis=0)
    for each in (one[best], two[best]):
        made[np.arange(len(best)), record[each]] = other[each]
    return made
