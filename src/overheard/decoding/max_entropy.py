"""Rung 2: the least committal distribution over the records that explains the measurement.

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.measurement import Measurement
from overheard.errors import FixData

Array = NDArray[np.float64]

PRECISION = 1e6
"""Largest singular value (signal over noise) that Newton's method is asked to resolve."""

_CHUNK = 4096  # records whose outer products are summed at once: bounds memory at 20,000 records
_COOLING = 100.0  # variance ratio of successive annealing stages
_TOLERANCE = 1e-14  # Newton decrement (squared, in nats) at which a solution is accepted
_RARE = 1e-6  # probability with which a correct answer fails the test of fit
_SLACK = 1.5  # noise variances may be understated by this factor
_ROUNDING = 1e-13  # what float64 leaves of a sum, relative to its terms


@dataclass(frozen=True)
class Posterior:
    """Probabilities per record and candidate, with what is needed to judge them.

    probabilities: (m, K), rows sum to one. chi2_per_equation: mean squared whitened residual of
    the expected total (a good fit lies at or below one; 0 without equations). rank and unknowns:
    independent equations above the noise, and free indicators given the prior's zeros.
    method: the rung that was taken. flag: empty, or in words why the answer must not be relied on.
    """

    probabilities: Array
    chi2_per_equation: float
    rank: int
    unknowns: int
    iterations: int
    converged: bool
    method: str
    flag: str = ""

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
        return _relative_bits(self.probabilities, np.ones_like(self.probabilities)) * -1.0 + 0.0

    def bits_leaked(self, prior: Any = None) -> Array:
        """What was learned about each record: relative entropy to the prior, in bits (m,)."""
        return _relative_bits(self.probabilities, check_prior(prior, *self.probabilities.shape))


def check_prior(prior: Any, records: int, candidates: int) -> Array:
    """The prior as (m, K). ``None`` is uniform; (K,) is shared; (m, K) is per record.

    Zeros are allowed (a masked candidate). Raises FixData on any other shape, NaN, negative
    values, or rows that do not sum to one within 1e-6.
    """
    if prior is None:
        return np.full((records, candidates), 1.0 / candidates)
    try:
        p = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FixData(f"prior: not an array of numbers ({error})") from None
    if p.shape not in ((candidates,), (records, candidates)):
        raise FixData(
            f"prior has shape {p.shape}; expected ({candidates},) or ({records}, {candidates})"
        )
    if not np.isfinite(p).all() or (p < 0).any():
        raise FixData("prior: probabilities must be finite and not negative")
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


def fits(chi2: float, equations: int) -> bool:
    """Could a correct answer leave this sum of squares? (One in a million does not.)

    The noise variance may be understated by half. A wrong answer whose difference lies below the
    noise passes, as it must: no test on the total can tell it from the right one.
    """
    return likely(chi2 / _SLACK, equations)


def likely(chi2: float, equations: int) -> bool:
    """As :func:`fits`, with the noise taken at its word."""
    return equations == 0 or chi2 <= float(special.chdtri(equations, _RARE))


def max_entropy(
    measurement: Measurement, prior: Any = None, *, max_iterations: int = 500
) -> Posterior:
    """The maximum-entropy distribution given the measurement (see the module's docstring).

    Cost: O(m K r^2 + r^3) per Newton step, a few steps per decade of the condition number.
    ``converged`` is False when the Newton decrement did not reach 1e-14 nats; the probabilities
    are then those of the last accepted step and ``chi2_per_equation`` shows how far off they are.
    Singular values above 1e6 are lowered to it first: the probabilities differ by less than 1e-5,
    and the Hessian stays within what float64 can factorise.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    measurement = measurement.capped(PRECISION)
    dual = _Dual(measurement, p0)
    multipliers = np.zeros(measurement.rank)
    iterations, converged = 0, True
    for variance in _annealing(dual.scale):
        last = variance == 1.0
        multipliers, used, converged = _newton(
            dual,
            multipliers,
            variance,
            _TOLERANCE if last else 1e-3,
            max_iterations - iterations if last else 30,
        )
        iterations += used
    probabilities = dual.probabilities(multipliers)
    return Posterior(
        probabilities,
        measurement.chi2_per_equation(probabilities),
        measurement.rank,
        count_unknowns(p0),
        iterations,
        converged,
        "max_entropy",
    )


def _annealing(scale: float) -> list[float]:
    """Noise variances from a tenth of the largest squared singular value down to one."""
    variances, variance = [], 0.1 * scale**2
    while variance > 10.0:
        variances.append(variance)
        variance /= _COOLING
    return [*variances, 1.0]


class _Dual:
    """Value, gradient and Hessian of the dual; noise variance is an argument."""

    def __init__(self, measurement: Measurement, prior: Array) -> None:
        self.features, self.total = measurement.differences, measurement.total
        self.shape = (measurement.records, measurement.candidates)
        with np.errstate(divide="ignore"):
            self.log_prior = np.log(prior)
        squared = np.einsum("ij,ij->j", self.features, self.features)
        self.scale = float(np.sqrt(squared.max(initial=0.0)))

    def _logits(self, multipliers: Array) -> Array:
        logits = self.log_prior.copy()
        logits[:, 1:] += (self.features @ multipliers).reshape(self.shape[0], -1)
        return logits

    def probabilities(self, multipliers: Array) -> Array:
        logits = self._logits(multipliers)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float64)

    def value(self, multipliers: Array, variance: float) -> tuple[float, float, Array, Array]:
        """Objective, the size of its terms (for rounding), gradient, probabilities."""
        logits = self._logits(multipliers)
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
        """sum_i Cov_{p_i}(F_i) + variance I, from centred features so that nothing cancels."""
        rank = self.total.size
        out = np.zeros((rank, rank))
        free = self.shape[1] - 1
        for start in range(0, self.shape[0], _CHUNK):
            chunk = p[start : start + _CHUNK]
            spread = chunk.max(axis=1) < 1.0
            if not spread.any():
                continue
            chunk = chunk[spread]
            f = self.features[start * free : (start + _CHUNK) * free]
            f = f.reshape(spread.size, free, rank)[spread]
            if free == 1:
                half = f[:, 0] * np.sqrt(chunk[:, 0] * chunk[:, 1])[:, None]
                out += half.T @ half
                continue
            mean = np.einsum("ik,ikr->ir", chunk[:, 1:], f)
            for k in range(self.shape[1]):
                centred = (f[:, k - 1] - mean) if k else -mean
                half = centred * np.sqrt(chunk[:, k])[:, None]
                out += half.T @ half
        out[np.diag_indices(rank)] += variance
        return out


def _newton(
    dual: _Dual, start: Array, variance: float, tolerance: float, max_iterations: int
) -> tuple[Array, int, bool]:
    """Damped Newton on the dual at one noise variance: (multipliers, iterations, converged)."""
    x = start
    value, size, gradient, p = dual.value(x, variance)
    for iteration in range(max_iterations):
        factor = linalg.cho_factor(dual.hessian(p, variance), check_finite=False)
        step = -linalg.cho_solve(factor, gradient, check_finite=False)
        slope = float(gradient @ step)
        if -slope <= tolerance:
            return x, iteration, True
        length = 1.0
        while True:
            candidate = x + length * step
            new_value, new_size, new_gradient, new_p = dual.value(candidate, variance)
            new_slope = float(new_gradient @ step)
            slack = _ROUNDING * (size + new_size)
            # Convexity: a slope that is still negative proves descent even where the difference
            # of the two values drowns in rounding.
            if new_slope <= 0.0 or (
                new_value <= value + 1e-4 * length * slope + slack and new_slope <= -0.9 * slope
            ):
                break
            length *= 0.5
            if length < 1e-12:
                return x, iteration + 1, False
        x, value, size, gradient, p = candidate, new_value, new_size, new_gradient, new_p
    return x, max_iterations, False


def _relative_bits(p: Array, q: Array) -> Array:
    """sum_k p log2(p / q) per record; 0 log 0 = 0."""
    positive = p > 0
    with np.errstate(divide="ignore"):
        ratio = np.log2(np.where(positive, p, 1.0)) - np.log2(np.where(positive, q, 1.0))
    return np.asarray((p * ratio).sum(axis=1), dtype=np.float64)
