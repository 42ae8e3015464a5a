"""Few equations about many records: how common each value is, and the prior that explains them.

With far fewer equations than unknowns no record is decided by the sum alone. What the sum does tell
is the share of each value (:func:`learned_share`) and how the secret goes with what else is known
of the records (:func:`tilted`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.max_entropy import Posterior, max_entropy
from overheard.decoding.measurement import Measurement

Array = NDArray[np.float64]

_ENOUGH = 1.2  # chi-square per equation that is let pass
_SHARE_SD, _SHARE_TURNS = 0.3, 3  # of a client's share around the population's; refinements
_PER_EQUATION = 5.0  # unknowns for each equation from which a prior is learned
_TILTS, _LEAST = 20, 1e-9  # solves at most; least prior probability


def few_equations(measurement: Measurement) -> bool:
    """Are the equations so few that the records' prior can be learned from them?"""
    return measurement.rank * _PER_EQUATION <= measurement.unknowns


def tilted(measurement: Measurement, prior: Any) -> Posterior:
    """The prior, tilted until it explains the equations.

    People's secrets go with what else is known of them, which no shared prior says. Tension
    between equations and such a prior is therefore not noise: while more than the noise is left,
    the answer becomes the prior of the next solve. What results is the logistic regression of the
    secret on the records' features that meets the equations (Bregman iterations, ended by the
    discrepancy principle).
    """
    found = max_entropy(measurement, prior)
    sweeps = found.iterations
    for _ in range(_TILTS):
        if found.chi2_per_equation <= _ENOUGH:
            break
        found = max_entropy(measurement, np.maximum(found.probabilities, _LEAST))
        sweeps += found.iterations
    return replace(found, iterations=sweeps)


def learned_share(measurement: Measurement, prior: Array) -> Array:
    """How common each value is (K,) among these records: the sum tells it before any record is.

    Were values drawn one by one with shares q, the total would have the mean sum_i q F_i and the
    covariance 1 + sum_i F_i' (diag q - q q') F_i: generalised least squares for q, with a wide
    normal prior around ``prior``. Without it, a client unlike the population would look like noise.
    """
    people, free, rank = measurement.records, measurement.candidates - 1, measurement.rank
    if not rank:
        return prior
    features = measurement.features[:, 1:]
    together = features.sum(axis=0)
    q = prior[1:]
    for _ in range(_SHARE_TURNS):
        spread = np.diag(q) - np.outer(q, q)
        root = np.linalg.cholesky(spread + 1e-9 * np.eye(free))
        scaled = np.einsum("ikr,kl->ilr", features, root).reshape(people * free, rank)
        covariance = scaled.T @ scaled
        covariance[np.diag_indices(rank)] += 1.0
        solved = linalg.solve(covariance, together.T, assume_a="pos", check_finite=False)
        inner = together @ solved + np.eye(free) / _SHARE_SD**2
        right = solved.T @ measurement.total + prior[1:] / _SHARE_SD**2
        q = linalg.solve(inner, right, assume_a="pos", check_finite=False)
        shares = np.maximum(np.append(1 - q.sum(), q), 0.5 / people)
        q = (shares / shares.sum())[1:]
    return np.asarray(np.append(1 - q.sum(), q))
