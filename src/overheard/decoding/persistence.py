"""How much of what a client's records answer in one round they answer again in another.

Records from elsewhere answer the rounds' filters too. The correlation of those answers between two
rounds is that of an honest client's, which is a sum over records of the same kind. What is common
to rounds (a record leans the same way for as long as the model changes little) is told apart from
what each round has of its own (dropout, other batches) by factor analysis: the common part has low
rank, the own part is diagonal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData

Array = NDArray[np.float64]
FACTORS, STEPS = 8, 20
"""At most so many factors, found in so many steps; ten are enough for four digits."""
EDGE = 2.5
"""What chance makes of so many records, above which an eigenvalue counts as a factor."""
USUAL, WORTH = 0.25, 30
"""Before any record has answered: a quarter of the variance persists; it counts as 30 records."""


def common_part(answers: NDArray[np.floating]) -> Array:
    """The part of the correlation between rounds (T, T) that is common, from answers (T, n).

    Its diagonal is the share of each round's variance that is met again in others; it has no
    negative eigenvalue. Few records say little: the fewer, the nearer it is to ``USUAL``.
    """
    rounds, records = answers.shape
    if records < 2:
        raise FixData(f"{records} record(s) have no spread; give at least two")
    centred = answers - answers.mean(axis=1, keepdims=True, dtype=np.float64)
    lengths = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit = centred / np.where(lengths > 0, lengths, 1.0)
    usual = np.full((rounds, rounds), USUAL)
    correlation = (records * unit @ unit.T + WORTH * usual) / (records + WORTH)
    common, own = usual, np.full(rounds, 1 - USUAL)
    for _ in range(STEPS):
        correlation[np.diag_indices(rounds)] = 1 - own
        values, vectors = np.linalg.eigh(correlation)
        kept = values > EDGE * np.sqrt(rounds / (records + WORTH)) * own.mean()
        kept[:-FACTORS], kept[-1] = False, True
        common = (vectors[:, kept] * np.maximum(values[kept], 0)) @ vectors[:, kept].T
        own = np.clip(1 - np.diag(common), 0.0, 1.0)
    return np.asarray(common)
