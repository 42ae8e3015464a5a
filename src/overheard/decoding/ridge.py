"""Rung 1: solve the linear equations, and take the answer when nothing about it is ambiguous.

With as many independent equations as unknowns, and little noise, the indicators follow from
regularised least squares (decoders.md section 2, rung 1). The regulariser is the prior: indicators
are given the prior's mean and covariance, so the solve is the Gaussian posterior

    Q = (D D' + T)^-1,     mean = Q (D t + nu),

T and nu being the prior's precision and precision times mean, block-diagonal over records. A
record's own prior is then taken out again (the cavity) and the discrete prior put in its place:
that gives probabilities over the candidates instead of a number to round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns
from overheard.decoding.measurement import Measurement

Array = NDArray[np.float64]

CERTAIN = 1e-6
"""An answer is ambiguous when any record's best candidate leaves more than this probability."""

_RARE = 1e-6  # probability with which a correct answer fails the test of fit
_SLACK = 1.5  # noise variances may be understated by this factor
_SMALLEST = 1e-10  # probabilities are raised to this before they become a precision
_RESOLUTION = 1e-13  # relative variances below this are rounding


def ridge(measurement: Measurement, prior: Any = None) -> Posterior:
    """Probabilities from one linear solve; ``converged`` says whether the answer is exact.

    ``converged`` is True when the rank reaches the unknowns, every record is certain (within
    1e-6) and the rounded answer explains the total (chi-square test, see :func:`fits`). Then no
    other rung is needed. Otherwise the probabilities are a first approximation: they ignore that
    *other* records are discrete too. Cost O(m K r^2), once.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    unknowns = count_unknowns(p0)
    measurement = measurement.capped(PRECISION)
    probabilities = p0
    if measurement.rank and unknowns:
        precision, shift = cavities(
            measurement.features[:, 1:], measurement.total, *moment_sites(p0)
        )
        probabilities = tilt(p0, precision, shift)
    answer = np.asarray(probabilities.argmax(axis=1), dtype=np.intp)
    one_hot = np.eye(measurement.candidates)[answer]
    chi2 = measurement.chi2_per_equation(one_hot)
    exact = (
        measurement.rank >= unknowns
        and float(1.0 - probabilities.max(axis=1).min()) <= CERTAIN
        and fits(chi2 * measurement.rank, measurement.rank)
    )
    return Posterior(probabilities, chi2, measurement.rank, unknowns, 1, exact, "ridge")


def fits(chi2: float, equations: int) -> bool:
    """Could a correct answer leave this sum of squares? (One in a million does not.)

    The noise variance may be understated by half. A wrong answer whose difference lies below the
    noise passes, as it must: no test on the total can tell it from the right one.
    """
    return likely(chi2 / _SLACK, equations)


def likely(chi2: float, equations: int) -> bool:
    """As :func:`fits`, with the noise taken at its word."""
    return equations == 0 or chi2 <= float(special.chdtri(equations, _RARE))


def moment_sites(probabilities: Array) -> tuple[Array, Array]:
    """Gaussian with the moments of one-hot indicators: precision (n, k, k), shift (n, k).

    k = K - 1 free indicators. The covariance diag(p) - p p' has the inverse
    diag(1 / p) + 1 / p_0, and precision times mean is 1 / p_0 in every entry.
    """
    p = np.maximum(probabilities, _SMALLEST)
    p = p / p.sum(axis=1, keepdims=True)
    k = p.shape[1] - 1
    precision = np.zeros((len(p), k, k))
    precision[:, np.arange(k), np.arange(k)] = 1.0 / p[:, 1:]
    precision += 1.0 / p[:, :1, None]
    return precision, np.repeat(1.0 / p[:, :1], k, axis=1)


def cavities(features: Array, total: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """What the measurement and the other records say about each record, its own site left out.

    features: (n, k, r) whitened differences; total: (r,); precision (n, k, k) and shift (n, k):
    Gaussian sites. Returns the cavity's precision and shift. By the matrix inversion lemma the
    work is in r dimensions: O(n k r^2 + r^3). Sites must be positive definite.
    """
    n, k, r = features.shape
    root = np.linalg.cholesky(np.linalg.inv(precision))
    turned = np.swapaxes(root, 1, 2)
    scaled = (features * root if k == 1 else turned @ features).reshape(n * k, r)
    inner = scaled.T @ scaled
    inner[np.diag_indices(r)] += 1.0
    lower = linalg.cholesky(inner, lower=True, check_finite=False, overwrite_a=True)
    gain = linalg.solve_triangular(lower, scaled.T, lower=True, check_finite=False)
    prior_mean = (root @ (turned @ shift[:, :, None]))[:, :, 0]
    surprise = total - prior_mean.ravel() @ features.reshape(n * k, r)
    surprise = linalg.solve_triangular(lower, surprise, lower=True, check_finite=False)
    mean = prior_mean + (root @ (surprise @ gain).reshape(n, k, 1))[:, :, 0]
    if k == 1:
        kept = np.maximum(1.0 - np.einsum("rn,rn->n", gain, gain), _RESOLUTION)
        inverse = precision / kept[:, None, None]
    else:
        blocks = np.ascontiguousarray(gain.T).reshape(n, k, r)
        kept = np.eye(k) - blocks @ np.swapaxes(blocks, 1, 2)
        kept[:, np.arange(k), np.arange(k)] += _RESOLUTION
        inverse = np.linalg.inv(root @ kept @ turned)
    return inverse - precision, (inverse @ mean[:, :, None])[:, :, 0] - shift


def tilt(prior: Array, precision: Array, shift: Array) -> Array:
    """Discrete prior times Gaussian cavity, at the K one-hot points (candidate 0 is the origin)."""
    with np.errstate(divide="ignore"):
        logits = np.log(prior)
    logits[:, 1:] += shift - 0.5 * np.einsum("nkk->nk", precision)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float64)
