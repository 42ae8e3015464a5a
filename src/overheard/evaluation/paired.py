"""The same clients in two audits: how much more leaks, and by more than chance?

A client that gives much away gives it away in both audits, so that the difference of each client
says far more than the two means do; and a record that is guessed right in both says nothing at
all. Differences of clients still err together within a client (an attack that fails there fails
for all of its records), so that the interval is clustered by client, as that of one audit is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import t as student_t


@dataclass(frozen=True)
class Changed:
    """One client: how much more leaks after, the variance of that given the client, and how many
    records it counts for."""

    difference: float
    variance: float
    n: int


def by_record(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> Changed:
    """The same records guessed twice: only those guessed right once count.

    The variance is Bonett and Price's (2012), with one more record guessed right once on either
    side: of a few such records, none in the other direction, the plain one knows too much.
    """
    n = len(before)
    more, less = int((after & ~before).sum()), int((before & ~after).sum())
    up, down = (more + 1) / (n + 2), (less + 1) / (n + 2)
    return Changed((more - less) / n, (up + down - (up - down) ** 2) / (n + 2), n)


def by_share(before: float, after: float, n_before: int, n_after: int) -> Changed:
    """Two shares of records that are not known to be the same."""
    variance = 0.0
    for share, n in ((before, n_before), (after, n_after)):
        near = (share * n + 1) / (n + 2)
        variance += near * (1 - near) / (n + 2)
    return Changed(after - before, variance, n_after)


def by_interval(
    before: tuple[float, float, float], after: tuple[float, float, float], n: int
) -> Changed:
    """Two (value, low, high) whose 95% intervals tell their variance."""
    spreads = [(high - low) / (2 * float(ndtri(0.975))) for _, low, high in (before, after)]
    return Changed(after[0] - before[0], sum(s**2 for s in spreads), n)


def mean_change(clients: Sequence[Changed], level: float) -> tuple[float, float, float]:
    """The mean over all records of how much more leaks after, with its interval.

    A client's difference is a common one, plus what is its own, plus the noise of its records; see
    `overheard.evaluation.intervals.clustered_interval`, of which this is the same. With one client
    there is no telling what is its own, and the interval is about its records alone.
    """
    sizes = np.array([c.n for c in clients], dtype=np.float64)
    inside = np.array([c.variance for c in clients])
    differences = np.array([c.difference for c in clients])
    weights = sizes / sizes.sum()
    mean, between, freedom = float(weights @ differences), 0.0, int(sizes.sum()) - 1
    if len(clients) > 1:
        between = max(float(differences.var(ddof=1)) - float(inside.mean()), 0.0)
        freedom = len(clients) - 1
    sd = float(np.sqrt(weights**2 @ (between + inside)))
    reach = float(student_t.ppf((1 + level) / 2, max(freedom, 1))) * sd
    return mean, mean - reach, mean + reach
