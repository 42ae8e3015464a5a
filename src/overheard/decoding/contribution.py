"""How much each client's updates helped, from sums of updates only.

Along the mean gradient of other people's records an honest client's update is 1 on average, an
update of nothing 0, a negated one -1. Each round tells the sum over its participants, with noise;
what a client did on average is the posterior mean of a linear model (kerkouche2023 names such a
score as future work).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Contributions(NamedTuple):
    """Mean and standard deviation (N,) of each client's share; 1 is the average honest client."""

    mean: Array
    sd: Array


def contributions(
    sums: Array, variance: Array, participation: Array, spread: float = 1.0
) -> Contributions:
    """From the rounds' sums of shares (T,) with the variance of each.

    ``spread``: the standard deviation of shares before listening, around 1.
    """
    a, weight = participation, 1 / variance
    precision = (a * weight[:, None]).T @ a + np.eye(a.shape[1]) / spread**2
    right = a.T @ (weight * (sums - a.sum(axis=1)))
    covariance = np.linalg.inv(precision)
    return Contributions(1 + covariance @ right, np.sqrt(np.diag(covariance)))
