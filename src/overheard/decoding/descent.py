"""Which changes of one record, or of two together, lower a sum of squares?

What was heard is a straight line of the records but for noise, so that no replay is needed to say
what a change does: the inner products of the columns do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Choice = NDArray[np.int64]

_GAIN = 1e-3  # of the sum of squares, in units of the noise's variance: less is arithmetic


def descended(choice: Choice, gram: Array, told: Array, present: NDArray[np.bool_]) -> Choice:
    """The answer (n,) after the best change, again and again, until none helps.

    gram, told: inner products of the whitened columns (n (K - 1)) with each other and with what
    the answer leaves. present (K,): candidates that are there at all, whose number is kept.
    """
    n, values, rows = len(choice), len(present), np.arange(len(choice))
    whole = np.zeros((n, values, n, values), np.float32)
    whole[:, 1:, :, 1:] = gram.reshape(n, values - 1, n, values - 1)
    left = np.column_stack([np.zeros(n), told.reshape(n, values - 1)])
    for _ in range(n):
        record, other = np.nonzero(np.arange(values) != choice[:, None])
        now = choice[record]
        across = whole[record, other] - whole[record, now]  # (c, n, K)
        both = across[:, record, other] - across[:, record, now]
        alone = 2 * (left[record, other] - left[record, now]) - np.diagonal(both)
        more = present[other].astype(int) - present[now]
        pairs = alone[:, None] + alone[None, :] - 2 * both
        same = record[:, None] == record[None, :]
        pairs[same | (more[:, None] + more[None, :] != 0)] = -np.inf
        pairs[np.diag_indices(len(pairs))] = np.where(more == 0, alone, -np.inf)
        best = int(np.argmax(pairs))
        if pairs.flat[best] <= _GAIN:
            break
        for one in {best // len(pairs), best % len(pairs)}:
            i, a, b = record[one], now[one], other[one]
            left -= whole[i, b] - whole[i, a]
            choice = np.where(rows == i, b, choice)
    return choice
