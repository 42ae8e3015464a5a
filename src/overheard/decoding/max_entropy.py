"""The least committal distribution over the records that explains the measurement.

Among all distributions of the candidates, the one closest to the prior (in relative entropy) that
meets the measured total up to its noise factorises over records (decoders.md section 2):

    p_ik  proportional to  prior_ik exp(F_ik . lambda),

    lambda = argmin  sum_i log sum_k prior_ik exp(F_ik . lambda) - t . lambda + |lambda|^2 / 2

in whitened rows. The dual is smooth and strictly convex, so it has exactly one solution, whatever
the rank; it is found by Newton's method with a line search, while the noise is lowered from far
above its true level (annealing). At the solution ``lambda = t - sum_i sum_k p_ik F_ik``: the
multipliers are the whitened residual.

What it is not: the exact posterior. It ignores correlations between records that the total
induces, so it is under-confident where noise is large. It is exact in the limit of one record, and
when the measurement determines the answer.

With far fewer equations than unknowns no record is decided by the sum alone. What the sum does tell
is the share of each value (:func:`learned_share`) and how the secret goes with what else is known
of the records (:func:`tilted`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.measurement import Measurement, finite
from overheard.errors import FixData

Array = NDArray[np.float64]

PRECISION = 1e6
"""Largest singular value (signal over noise) that Newton's method is asked to resolve."""

_CHUNK = 4096  # records whose outer products are summed at once: bounds memory at 20,000 records
_ROUNDING = 1e-13  # what float64 leaves of a sum, relative to its terms


@dataclass(frozen=True)
class Posterior:
    """Probabilities per record and candidate, with what is needed to judge them.

    probabilities: (m, K), rows sum to one. chi2_per_equation: mean squared whitened residual of
    the expected total (a good fit lies at or below one; 0 without equations). rank and unknowns:
    independent equations above the noise, and free indicators given the prior's zeros.
    method: what answered. flag: empty, or in words why the answer must not be relied on. notes:
    what else is to be said of how it was reached. settled: more equations or rounds add nothing.
    """

    probabilities: Array
    chi2_per_equation: float
    rank: int
    unknowns: int
    iterations: int
    converged: bool
    method: str
    flag: str = ""
    notes: dict[str, float | int | str] = field(default_factory=dict)
    settled: bool = True

    @property
    def guess(self) -> NDArray[np.intp]:
        """The most probable candidate of each record (m,)."""
        return np.asarray(self.probabilities.argmax(axis=1), dtype=np.intp)

    @property
    def confidence(self) -> Array:
        """Probability of the guess (m,); its mean is the accuracy that the decoder expects."""
        return np.asarray(self.probabilities.max(axis=1), dtype=np.float64)

    @property
    def entropy_bits(self) -> Array:
        """What is still unknown about each record, in bits (m,)."""
        return np.asarray(special.entr(self.probabilities).sum(axis=1) / np.log(2))


def check_prior(prior: Any, records: int, candidates: int) -> Array:
    """The prior as (m, K). ``None`` is uniform; (K,) is shared; (m, K) is per record.

    Zeros are allowed (a masked candidate). Raises FixData on any other shape, NaN, negative
    values, or rows that do not sum to one within 1e-6.
    """
    if prior is None:
        return np.full((records, candidates), 1.0 / candidates)
    p = finite("prior", prior)
    if p.shape not in ((candidates,), (records, candidates)):
        raise FixData(
            f"prior has shape {p.shape}; expected ({candidates},) or ({records}, {candidates})"
        )
    if (p < 0).any():
        raise FixData("prior: probabilities must not be negative")
    sums = p.sum(axis=-1)
    if (np.abs(sums - 1.0) > 1e-6).any():
        raise FixData(
            f"prior: probabilities sum to {float(np.min(sums)):.6g} to {float(np.max(sums)):.6g}; "
            "each record's must sum to one"
        )
    return np.broadcast_to(p / sums[..., None], (records, candidates)).copy()


def count_unknowns(prior: Array) -> int:
    """Free indicators: candidates that the prior allows, less one per record."""
    return int((prior > 0).sum()) - len(prior)


def fits(chi2: float, equations: int, slack: float = 1.5, rare: float = 1e-6) -> bool:
    """Could a correct answer leave this sum of squares? (One in a million does not.)

    The noise variance may be understated by half (``slack``). A wrong answer whose difference lies
    below the noise passes, as it must: no test on the total can tell it from the right one.
    """
    return equations == 0 or chi2 <= slack * float(special.chdtri(equations, rare))


def max_entropy(measurement: Measurement, prior: Any = None) -> Posterior:
    """The maximum-entropy distribution given the measurement (see the module's docstring).

    Cost: O(m K r^2 + r^3) per Newton step, a few steps per decade of the condition number.
    ``converged`` is False when the Newton decrement (squared, in nats) did not reach 1e-14 in 500
    steps; the probabilities are then those of the last accepted step and ``chi2_per_equation``
    shows how far off they are.
    Singular values above 1e6 are lowered to it first: the probabilities differ by less than 1e-5,
    and the Hessian stays within what float64 can factorise.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    measurement = measurement.capped(PRECISION)
    dual = _Dual(measurement, p0)
    multipliers, iterations = np.zeros(measurement.rank), 0
    # noise variances from a tenth of the largest squared singular value, a hundredth each stage
    variance = 0.1 * float((measurement.differences**2).sum(axis=0).max(initial=0.0))
    while variance > 10.0:
        multipliers, used, _ = dual.minimise(multipliers, variance, 1e-3, 30)
        iterations, variance = iterations + used, variance / 100.0
    multipliers, used, converged = dual.minimise(multipliers, 1.0, 1e-14, 500 - iterations)
    p, steps, unknowns = dual.value(multipliers, 1.0)[3], iterations + used, count_unknowns(p0)
    chi2, rank = measurement.chi2_per_equation(p), measurement.rank
    return Posterior(p, chi2, rank, unknowns, steps, converged, "max_entropy")


class _Dual:
    """Value, gradient and Hessian of the dual, and its minimum; noise variance is an argument."""

    def __init__(self, measurement: Measurement, prior: Array) -> None:
        self.measurement = measurement
        self.features, self.total = measurement.differences, measurement.total
        with np.errstate(divide="ignore"):
            self.log_prior = np.log(prior)

    def value(self, multipliers: Array, variance: float) -> tuple[float, float, Array, Array]:
        """Objective, the size of its terms (for rounding), gradient, probabilities."""
        logits = self.log_prior.copy()
        logits[:, 1:] += (self.features @ multipliers).reshape(len(logits), -1)
        top = logits.max(axis=1, keepdims=True)
        p = np.exp(logits - top)
        sums = p.sum(axis=1, keepdims=True)
        p /= sums
        log_partition = np.log(sums) + top
        fit = float(self.total @ multipliers)
        ridge = 0.5 * variance * float(multipliers @ multipliers)
        gradient = self.features.T @ p[:, 1:].ravel() - self.total + variance * multipliers
        size = float(np.abs(log_partition).sum()) + abs(fit) + ridge
        return float(log_partition.sum()) - fit + ridge, size, gradient, p

    def hessian(self, p: Array, variance: float) -> Array:
        """sum_i Cov_{p_i}(F_i) + variance I. One candidate after the other joins the mean of those
        before it (West 1979), so that nothing cancels."""
        out = variance * np.eye(len(self.total))
        undecided = np.flatnonzero(p.max(axis=1) < 1.0)
        for start in range(0, len(undecided), _CHUNK):
            part = undecided[start : start + _CHUNK]
            f, mean = self.measurement.features[part], np.zeros((len(part), len(self.total)))
            weight = p[part, 0]
            for k in range(1, p.shape[1]):
                share = p[part, k] / np.maximum(weight + p[part, k], 1e-300)
                apart = f[:, k] - mean
                half = apart * np.sqrt(share * weight)[:, None]
                out += half.T @ half
                mean += apart * share[:, None]
                weight = weight + p[part, k]
        return out

    def minimise(
        self, start: Array, variance: float, tolerance: float, max_iterations: int
    ) -> tuple[Array, int, bool]:
        """Damped Newton at one noise variance: (multipliers, iterations, converged)."""
        x = start
        value, size, gradient, p = self.value(x, variance)
        for iteration in range(max_iterations):
            factor = linalg.cho_factor(self.hessian(p, variance), check_finite=False)
            step = -linalg.cho_solve(factor, gradient, check_finite=False)
            slope = float(gradient @ step)
            if -slope <= tolerance:
                return x, iteration, True
            length = 1.0
            while True:
                new = self.value(x + length * step, variance)
                new_slope = float(new[2] @ step)
                most = value + 1e-4 * length * slope + _ROUNDING * (size + new[1])
                # Convexity: a slope that is still negative proves descent even where the
                # difference of the two values drowns in rounding.
                if new_slope <= 0.0 or (new[0] <= most and new_slope <= -0.9 * slope):
                    break
                length *= 0.5
                if length < 1e-12:
                    return x, iteration + 1, False
            x = x + length * step
            value, size, gradient, p = new
        return x, max_iterations, False


def tilted(
    measurement: Measurement, prior: Any, enough: float = 1.2, most: int = 20, least: float = 1e-9
) -> Posterior:
    """The prior, tilted until it explains the equations.

    People's secrets go with what else is known of them, which no shared prior says. Tension
    between equations and such a prior is therefore not noise: while more than the noise is left
    (a chi-square per equation of more than ``enough``, and at most so often) the answer becomes the
    prior of the next solve, no probability below ``least``. What results is the logistic regression
    of the secret on the records' features that meets the equations (Bregman iterations, ended by
    the discrepancy principle).
    """
    result = max_entropy(measurement, prior)
    sweeps = result.iterations
    for _ in range(most):
        if result.chi2_per_equation <= enough:
            break
        result = max_entropy(measurement, np.maximum(result.probabilities, least))
        sweeps += result.iterations
    return replace(result, iterations=sweeps)


def learned_share(
    measurement: Measurement, prior: Array, share_sd: float = 0.3, refinements: int = 3
) -> Array:
    """How common each value is (K,) among these records: the sum tells it before any record is.

    Were values drawn one by one with shares q, the total would have the mean sum_i q F_i and the
    covariance 1 + sum_i F_i' (diag q - q q') F_i: generalised least squares for q, with a normal
    prior of standard deviation ``share_sd`` around ``prior``, the covariance refined so many times.
    Without it, a client unlike the population would look like noise.
    """
    people, free, rank = measurement.records, measurement.candidates - 1, measurement.rank
    features = measurement.features[:, 1:]
    together = features.sum(axis=0)
    q = prior[1:]
    for _ in range(refinements):
        root = np.linalg.cholesky(np.diag(q) - np.outer(q, q) + 1e-9 * np.eye(free))
        scaled = np.einsum("ikr,kl->ilr", features, root).reshape(people * free, rank)
        covariance = np.eye(rank) + scaled.T @ scaled
        solved = linalg.solve(covariance, together.T, assume_a="pos", check_finite=False)
        inner = together @ solved + np.eye(free) / share_sd**2
        right = solved.T @ measurement.total + prior[1:] / share_sd**2
        q = linalg.solve(inner, right, assume_a="pos", check_finite=False)
        shares = np.maximum(np.append(1 - q.sum(), q), 0.5 / people)
        q = (shares / shares.sum())[1:]
    return np.asarray(np.append(1 - q.sum(), q))
