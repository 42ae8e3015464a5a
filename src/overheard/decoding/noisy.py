"""Expectation propagation where the size of the noise is itself only roughly known.

:mod:`overheard.decoding.expectation_propagation` proves answers from nearly exact messages.
Behind mini-batches there is nothing to prove: the noise is large, smooth, and stated up to a
factor. So the sites are swept from the prior at full precision. While the answer leaves more than
the stated noise, the noise is raised to what it leaves (decoders.md section 3.1: by
max(1, chi-square)); while the sweeps do not come to rest, which is what understated noise does to
them, it is doubled. If that does not help, maximum entropy answers instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import softmax

from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns
from overheard.decoding.max_entropy import max_entropy as safe_answer
from overheard.decoding.measurement import Measurement
from overheard.decoding.ridge import cavities, moment_sites

Array = NDArray[np.float64]

_INFLATIONS = 6  # times that noise is raised until sweeps settle: 2**6 in all
_RESTLESS = 2.0  # factor on the noise's variance when sweeps do not settle
_ENOUGH = 1.2  # chi-square per equation that is let pass
_DAMPING, _SWEEPS = 0.25, 80  # slow enough to settle where records hang together
_PATIENCE = 12  # sweeps after which a small mean change suffices
_SETTLED = 1e-2  # largest change of a probability at which sweeps stop
_SHARE_SD, _SHARE_TURNS = 0.3, 3  # of a client's share around the population's; refinements
_PER_EQUATION = 5.0  # unknowns for each equation from which a prior is learned
_TILTS, _LEAST = 20, 1e-9  # solves at most; least prior probability
_SITE_FLOOR = 1e-2  # smallest precision of a site: moments may ask for less than none


def noisy_posterior(
    measurement: Measurement, prior: Any = None, points: Array | None = None
) -> tuple[Posterior, float]:
    """Posterior, and the variance of the noise in units of what was stated (one or more).

    points (K, c): where candidates are, if every record's features lie in few dimensions.
    ``method`` is "expectation_propagation", or "max_entropy" where that did not settle.
    ``chi2_per_equation`` is in units of the raised noise. Cost per sweep O(m K r^2 + r^3), some
    tens of sweeps in all.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    unknowns = count_unknowns(p0)
    if not measurement.rank or not unknowns:
        return Posterior(p0, 0.0, measurement.rank, unknowns, 0, True, "prior"), 1.0
    measurement = measurement.capped(PRECISION)
    variance, sweeps = 1.0, 0
    for _ in range(_INFLATIONS):
        probabilities, open_share, used, settled = _sweep(measurement, p0, points)
        sweeps += used
        chi2 = measurement.chi2_per_equation(probabilities)
        # what the mean leaves is less than the noise: the part that undecided records absorbed
        shown = chi2 + open_share
        if settled and shown <= _ENOUGH:
            return Posterior(
                probabilities,
                chi2,
                measurement.rank,
                unknowns,
                sweeps,
                True,
                "expectation_propagation",
            ), variance
        more = shown if settled else _RESTLESS
        variance *= more
        measurement = measurement.inflated(float(np.sqrt(more)))
    safe = safe_answer(measurement, p0)
    return replace(safe, iterations=safe.iterations + sweeps), variance


def few_equations(measurement: Measurement) -> bool:
    """Are the equations so few that the records' prior can be learned from them?"""
    return measurement.rank * _PER_EQUATION <= measurement.unknowns


def tilted(measurement: Measurement, prior: Any) -> tuple[Posterior, float]:
    """Few equations about many records: the prior, tilted until it explains them.

    People's secrets go with what else is known of them, which no shared prior says. Tension
    between equations and such a prior is therefore not noise: while more than the noise is left,
    the answer becomes the prior of the next solve. What results is the logistic regression of the
    secret on the records' features that meets the equations (Bregman iterations, ended by the
    discrepancy principle). Returned as by :func:`noisy_posterior`.
    """
    found = safe_answer(measurement, prior)
    sweeps = found.iterations
    for _ in range(_TILTS):
        if found.chi2_per_equation <= _ENOUGH:
            break
        found = safe_answer(measurement, np.maximum(found.probabilities, _LEAST))
        sweeps += found.iterations
    return replace(found, iterations=sweeps), max(found.chi2_per_equation, 1.0)


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


def _sweep(
    measurement: Measurement, prior: Array, points: Array | None
) -> tuple[Array, float, int, bool]:
    """Probabilities after parallel updates of all sites; the variance per equation that undecided
    records could still explain (0 when all are decided); sweeps; and whether they settled."""
    at = np.eye(measurement.candidates)[:, 1:] if points is None else points
    features = np.ascontiguousarray(np.linalg.pinv(at) @ measurement.features)
    precision, shift = _sites(prior, points)
    p = prior
    for count in range(1, _SWEEPS + 1):
        try:
            cavity = cavities(features, measurement.total, precision, shift)
        except linalg.LinAlgError:  # a site lost positive definiteness: confident nonsense
            return p, 0.0, count, False
        new = _tilt(prior, at, *cavity)
        change, p = np.abs(new - p), new
        # a handful of records that swing for ever do not matter to the others
        if change.max() < _SETTLED or (count >= _PATIENCE and change.mean() < _SETTLED / 20):
            return p, _open_share(features, precision), count, True
        # sites that give the Gaussian posterior the moments of cavity times discrete prior
        site = _sites(p, points)[0] - cavity[0]
        values, vectors = np.linalg.eigh(site)
        site = (vectors * np.maximum(values, _SITE_FLOOR)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        site_shift = ((cavity[0] + site) @ (p @ at)[:, :, None])[:, :, 0] - cavity[1]
        precision = (1 - _DAMPING) * precision + _DAMPING * site
        shift = (1 - _DAMPING) * shift + _DAMPING * site_shift
    return p, 0.0, _SWEEPS, False


def _open_share(features: Array, precision: Array) -> float:
    """tr(F' Q F) / r for the posterior covariance Q of Gaussian sites: between 0 and 1."""
    n, k, r = features.shape
    root = np.linalg.cholesky(np.linalg.inv(precision))
    scaled = (np.swapaxes(root, 1, 2) @ features).reshape(n * k, r)
    inner = scaled.T @ scaled
    inner[np.diag_indices(r)] += 1.0
    kept = float(np.trace(linalg.inv(inner, check_finite=False)))
    return 1.0 - kept / float(r)


def _sites(probabilities: Array, points: Array | None) -> tuple[Array, Array]:
    """Gaussian with the moments of points (K, c), or of indicators: precision and shift."""
    if points is None:
        return moment_sites(probabilities)
    p = np.maximum(probabilities, _LEAST)
    p = p / p.sum(axis=1, keepdims=True)
    mean = p @ points
    apart = points - mean[:, None]
    spread = np.einsum("nk,nkc,nkd->ncd", p, apart, apart, optimize=True)
    precision = np.linalg.inv(spread + _LEAST * np.eye(points.shape[1]))
    return precision, (precision @ mean[:, :, None])[:, :, 0]


def _tilt(prior: Array, points: Array, precision: Array, shift: Array) -> Array:
    """Discrete prior times Gaussian cavity, at the points."""
    logits = np.log(np.maximum(prior, 1e-300)) + shift @ points.T
    logits -= 0.5 * np.einsum("kc,ncd,kd->nk", points, precision, points, optimize=True)
    return np.asarray(softmax(logits, axis=1))
