"""95% confidence intervals for means of per-unit scores.

Shares of one client's records: Wilson's score interval, which keeps its coverage near 0 and 1
where a bootstrap collapses to a point. Other means: bootstrap over records. Several clients:
bootstrap over clients and then over records, because records of one client err together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
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
    clients: Sequence[Array], rng: np.random.Generator, level: float = 0.95
) -> tuple[float, float]:
    """Interval of the pooled mean, clustered by client.

    Each resample draws clients with replacement and records within them. With one client this is
    the bootstrap over its records.
    """
    picks = rng.integers(0, len(clients), (RESAMPLES, len(clients)))
    sums = np.zeros(RESAMPLES)
    counts = np.zeros(RESAMPLES)
    for which, values in enumerate(clients):
        times = (picks == which).sum(axis=1)
        n, spread = len(values), values.std(ddof=1) if len(values) > 1 else 0.0
        # the mean of n resampled records is normal to within what matters here
        noise = rng.normal(0.0, 1.0, RESAMPLES) * spread * np.sqrt(n * np.maximum(times, 0))
        sums += times * n * values.mean() + noise
        counts += times * n
    low, high = np.quantile(sums / counts, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
