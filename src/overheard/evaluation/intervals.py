"""95% confidence intervals for means of per-unit scores, and for differences of two audits.

Shares of one client's records: Wilson's score interval, which keeps its coverage near 0 and 1
where a bootstrap collapses to a point. Other means: bootstrap over records. Several clients: a
random effect per client, because records of one client err together. How often each contains the
truth is measured by ``experiments/robustness/simulations.py``.

The same clients in two audits: a client that gives much away gives it away in both, so that the
difference of each client says far more than the two means do; and a record that is guessed right in
both says nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import t as student_t

Array = NDArray[np.float64]
RESAMPLES = 2000
FEW = 10


def share_interval(hits: Array, level: float = 0.95) -> tuple[float, float]:
    """Wilson interval of the mean of zeros and ones."""
    n, right, z = len(hits), int(hits.sum()), float(ndtri((1 + level) / 2))
    share = right / n
    width = 2 * (n + z**2)
    centre = (2 * n * share + z**2) / width
    reach = z / width * float(np.sqrt(4 * n * share * (1 - share) + z**2))
    return 0.0 if right == 0 else centre - reach, 1.0 if right == n else centre + reach


def mean_interval(
    values: Array, rng: np.random.Generator, level: float = 0.95
) -> tuple[float, float]:
    """Bootstrap-t interval of a mean: resampled means studentised by their own spread.

    It keeps its coverage on skewed scores, where the plain percentile interval is too short.
    With no spread at all it is a point. Below ten values resampling says too little, and it is
    Student's interval.
    """
    n, mean, spread = len(values), values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
    if spread == 0.0:
        return float(mean), float(mean)
    if n < FEW:
        reach = float(student_t.ppf((1 + level) / 2, n - 1) * spread / np.sqrt(n))
        return float(mean - reach), float(mean + reach)
    draws = values[rng.integers(0, n, (RESAMPLES, n))]
    spreads = draws.std(axis=1, ddof=1)
    usable = spreads > 0
    t = (draws.mean(axis=1)[usable] - mean) / spreads[usable]
    low, high = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
    return float(mean - high * spread), float(mean - low * spread)


def clustered_interval(
    clients: Sequence[Array], level: float = 0.95, share: bool = False
) -> tuple[float, float]:
    """Interval of the pooled mean, clustered by client: what clients like these would give.

    A client's mean is a common mean, plus what is its own, plus the noise of its records. The
    spread between clients, less what their records explain, is the variance of the middle part;
    Student's quantile on C - 1 degrees pays for having seen only C clients. It covers 93-97% from
    4 clients on, equal or unequal in size (a bootstrap over 4 clients covers 85%); more where the
    clients are alike, or two or three, who say little of others; and down to 90% where a few
    clients of very different sizes are nearly all alike but for a straggler.
    ``share``: the scores are zeros and ones; the interval is made on the scale of log-odds, where
    clients near 0 or 1 are not skewed, and is never shorter than that of the records alone.

    With one client this is the interval of its records, by Student or, for shares, Wilson.
    """
    records = np.concatenate(clients)
    facts = [(v.mean(), v.var(ddof=1) / len(v) if len(v) > 1 else 0.0, len(v)) for v in clients]
    _, reach = _random_effect(np.array(facts, dtype=np.float64), level)
    mean = float(records.mean())
    if not share:
        return mean - reach, mean + reach
    least, most = share_interval(records, level)
    if len(clients) == 1 or not 0 < mean < 1:
        return least, most
    low, high = expit(logit(mean) + np.array([-1, 1]) * reach / (mean * (1 - mean)))
    return float(min(low, least)), float(max(high, most))


def _random_effect(facts: Array, level: float) -> tuple[float, float]:
    """Of clients' values, the variances that their records explain and their sizes (C, 3): the mean
    by size, and how far its interval reaches."""
    values, inside, sizes = np.ascontiguousarray(facts.T)
    weights = sizes / sizes.sum()
    between, freedom = 0.0, int(sizes.sum()) - 1
    if len(values) > 1:
        between = max(float(values.var(ddof=1)) - float(inside.mean()), 0.0)
        freedom = len(values) - 1
    sd = float(np.sqrt(weights**2 @ (between + inside)))
    return float(weights @ values), float(student_t.ppf((1 + level) / 2, max(freedom, 1))) * sd


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

    Clustered as in `clustered_interval`. With one client there is no telling what is its own, and
    the interval is about its records alone.
    """
    facts = [(c.difference, c.variance, c.n) for c in clients]
    mean, reach = _random_effect(np.array(facts, dtype=np.float64), level)
    return mean, mean - reach, mean + reach
