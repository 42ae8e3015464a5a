"""Gaussian stand-ins for discrete records: moments, cavities and tilted distributions.

A record takes one of K points in c dimensions (by default the K one-hot indicators with the first
left out, c = K - 1). Expectation propagation replaces its discrete prior by a Gaussian *site* with
precision Lambda (c, c) and shift eta = Lambda mu (c,). The posterior of all records under Gaussian
sites is then linear algebra; a record's *cavity* is that posterior with its own site taken out, and
its *tilted* distribution is the cavity times the discrete prior (Minka 2001; Rasmussen and Williams
2006, section 3.6).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]

_RESOLUTION = 1e-13  # relative variances below this are rounding
_LEAST = 1e-6  # probability in a matched site: below, float64 loses the other candidates'


def moment_sites(
    probabilities: Array, points: Array | None = None, least: float = 1e-10
) -> tuple[Array, Array]:
    """The Gaussian with the moments of points (K, c) under probabilities (n, K): Lambda, eta.

    Probabilities below ``least`` are raised to it, so that every precision is finite. Indicators
    (``points`` None) have the covariance diag(p) - p p', whose inverse is diag(1 / p) + 1 / p_0.
    """
    p = np.maximum(probabilities, least)
    p = p / p.sum(axis=1, keepdims=True)
    if points is None:
        free = np.arange(p.shape[1] - 1)
        precision = np.repeat(1.0 / p[:, :1, None], len(free), axis=1).repeat(len(free), axis=2)
        precision[:, free, free] += 1.0 / p[:, 1:]
        return precision, np.repeat(1.0 / p[:, :1], len(free), axis=1)
    mean = p @ points
    centred = points - mean[:, None]
    spread = np.swapaxes(centred * p[:, :, None], 1, 2) @ centred
    precision = np.linalg.inv(spread + least * np.eye(points.shape[1]))
    return precision, (precision @ mean[:, :, None])[:, :, 0]


def cavities(features: Array, total: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """What the measurement and the other records say about each record, its own site left out.

    features: (n, c, r) whitened; total: (r,); precision (n, c, c) and shift (n, c): positive
    definite sites. Returns the cavities' precisions and shifts. By the matrix inversion lemma the
    work is in r dimensions: O(n c r^2 + r^3). LinAlgError if a site is not positive definite.
    """
    n, k, r = features.shape
    root = np.linalg.cholesky(np.linalg.inv(precision))
    turned = np.swapaxes(root, 1, 2)
    scaled = (turned @ features).reshape(n * k, r)
    inner = scaled.T @ scaled
    inner[np.diag_indices(r)] += 1.0
    lower = linalg.cholesky(inner, lower=True, check_finite=False, overwrite_a=True)
    gain = linalg.solve_triangular(lower, scaled.T, lower=True, check_finite=False)
    prior_mean = (root @ (turned @ shift[:, :, None]))[:, :, 0]
    surprise = total - prior_mean.ravel() @ features.reshape(n * k, r)
    surprise = linalg.solve_triangular(lower, surprise, lower=True, check_finite=False)
    mean = prior_mean + (root @ (surprise @ gain).reshape(n, k, 1))[:, :, 0]
    blocks = np.ascontiguousarray(gain.T).reshape(n, k, r)
    shrunk = (1 + _RESOLUTION) * np.eye(k) - blocks @ np.swapaxes(blocks, 1, 2)
    inverse = np.linalg.inv(root @ shrunk @ turned)
    return inverse - precision, (inverse @ mean[:, :, None])[:, :, 0] - shift


def tilt(prior: Array, precision: Array, shift: Array, points: Array | None = None) -> Array:
    """Discrete prior (n, K) times Gaussian cavity, at the points: probabilities (n, K)."""
    with np.errstate(divide="ignore"):
        logits = np.log(prior)
    if points is None:
        logits[:, 1:] += shift - 0.5 * np.einsum("nkk->nk", precision)
    else:
        logits += shift @ points.T
        logits -= 0.5 * (points @ precision * points).sum(axis=2)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float64)


def match(
    probabilities: Array,
    precision: Array,
    shift: Array,
    points: Array | None = None,
    min_precision: float = 1e-2,
) -> tuple[Array, Array]:
    """Sites that give the Gaussian posterior the moments of the tilted distribution.

    precision, shift: the cavities. Where a cavity is narrower than the discrete moments allow, the
    exact site has a negative precision: it is raised to ``min_precision``, and the mean is kept.
    """
    p = np.maximum(probabilities, _LEAST)
    p = p / p.sum(axis=1, keepdims=True)
    mean = p[:, 1:] if points is None else p @ points
    site = moment_sites(p, points, _LEAST)[0] - precision
    values, vectors = np.linalg.eigh(site)
    low = values[:, 0] < min_precision
    raised = vectors[low] * np.maximum(values[low], min_precision)[:, None, :]
    site[low] = raised @ np.swapaxes(vectors[low], 1, 2)
    return site, ((precision + site) @ mean[:, :, None])[:, :, 0] - shift
