"""Decide what is sure, take it out, and look again: for nearly as many equations as unknowns.

Between the exact solve (rank reaches the unknowns) and expectation propagation lies a case that is
common in small networks: a few equations are missing. With the Gaussian that has the prior's mean
and variance in place of each 0/1 value, the posterior mean and standard deviation of every value
are one linear solve. A value whose mean is next to 0 or 1 and whose deviation is small is decided;
the rest has fewer unknowns and the same equations. Usually two passes decide everything.

The answer is accepted only when every record was decided and the whole answer explains the total
to within its noise. Two records that cannot be told apart never have a small deviation, so they
are never decided here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns
from overheard.decoding.measurement import Measurement
from overheard.decoding.ridge import fits

Array = NDArray[np.float64]

NEAR = 0.1  # a value is decided when its mean is this close to 0 or 1 ...
SURE = 0.12  # ... and its standard deviation below this
PASSES = 12  # each decides what the last one made clear; a few suffice


def successive(measurement: Measurement, prior: object = None) -> Posterior:
    """Decide the records of a two-valued measurement pass by pass.

    ``converged`` is True only if every record was decided and the answer fits; the probabilities
    are then zeros and ones. Otherwise they are the prior and should not be used. Never converges
    for more than two candidates.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    unknowns = count_unknowns(p0)
    refused = Posterior(p0, np.inf, measurement.rank, unknowns, 0, False, "successive")
    if measurement.candidates != 2 or not measurement.rank:
        return refused
    mean, variance = p0[:, 1], p0[:, 1] * (1 - p0[:, 1])
    rows = measurement.features[:, 1]
    value = np.round(mean)
    free = variance > 0
    for number in range(1, PASSES + 1):
        if not free.any():
            answer = np.eye(2)[value.astype(int)]
            chi2 = measurement.chi2_per_equation(answer)
            proven = fits(chi2 * measurement.rank, measurement.rank)
            return Posterior(answer, chi2, measurement.rank, unknowns, number, proven, "successive")
        left = measurement.total - value[~free] @ rows[~free]
        middle, deviation = _gaussian(rows[free], left, mean[free], variance[free])
        nearest = np.round(middle)
        sure = (np.abs(middle - nearest) < NEAR) & (deviation < SURE)
        sure &= (nearest >= 0) & (nearest <= 1)
        if not sure.any():
            break
        decided = np.flatnonzero(free)[sure]
        value[decided] = nearest[sure]
        free[decided] = False
    return refused


def _gaussian(rows: Array, total: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Posterior mean and standard deviation of each value, given total = rows' x + unit noise."""
    weighted = rows * variance[:, None]
    inner = rows.T @ weighted
    inner[np.diag_indices_from(inner)] += 1.0
    try:
        factor = linalg.cho_factor(inner, lower=True, check_finite=False)
    except linalg.LinAlgError:  # beside nearly exact messages the unit noise is below rounding
        return _gaussian_by_svd(rows, total, mean, variance)
    solved = linalg.cho_solve(factor, weighted.T, check_finite=False)  # (r, n)
    middle = mean + solved.T @ (total - mean @ rows)
    explained = np.einsum("nr,rn->n", weighted, solved)
    return middle, np.sqrt(np.maximum(variance - explained, 0.0))


def _gaussian_by_svd(
    rows: Array, total: Array, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """The same without squaring the rows; several times slower."""
    deviation = np.sqrt(variance)
    left, size, right = linalg.svd(rows * deviation[:, None], full_matrices=False)
    gain = size / (size**2 + 1)
    middle = mean + deviation * (left @ (gain * (right @ (total - mean @ rows))))
    explained = np.square(left) @ (size * gain)
    return middle, deviation * np.sqrt(np.maximum(1 - explained, 0.0))
