"""95% confidence intervals for means of per-unit scores.

Shares of one client's records: Wilson's score interval, which keeps its coverage near 0 and 1
where a bootstrap collapses to a point. Other means: bootstrap over records. Several clients: a
random effect per client, because records of one client err together. How often each contains the
truth is measured by ``reliability/simulations.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    mean = float(records.mean())
    sizes = np.array([len(values) for values in clients], dtype=np.float64)
    inside = np.array([_variance_of_mean(values) for values in clients])
    weights = sizes / sizes.sum()
    between, freedom = 0.0, len(clients) - 1 if len(clients) > 1 else len(records) - 1
    if len(clients) > 1:
        spread = float(np.var([values.mean() for values in clients], ddof=1))
        between = max(spread - float(inside.mean()), 0.0)
    sd = float(np.sqrt(weights**2 @ (between + inside)))
    reach = float(student_t.ppf((1 + level) / 2, max(freedom, 1))) * sd
    if not share:
        return mean - reach, mean + reach
    least, most = share_interval(records, level)
    if len(clients) == 1 or not 0 < mean < 1:
        return least, most
    low, high = expit(logit(mean) + np.array([-1, 1]) * reach / (mean * (1 - mean)))
    return float(min(low, least)), float(max(high, most))


def _variance_of_mean(values: Array) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0
