"""Which model would a client have trained alone, if it trains linear least squares?

xu2021 Observation 1, equations (4)-(5): with full batches and any number E of local
steps, whatever the learning rate, the client's answer is affine in what it was sent,

    D_t = theta_t - theta'_t = W (theta_t - theta*),     W = I - (I - (2 lr / m) X'X)^E.

So d + 1 messages give W and the local optimum theta* in O(d^3). Two things are added to
the paper's argument here.

* W is symmetric and positive. In the basis of the right singular vectors of the centred
  models, entry (i, j) of W is measured twice, with weights s_i and s_j; the weighted mean
  is the least-squares solution among symmetric matrices, in closed form. What the two
  measurements disagree by is pure noise, and is used to estimate it.
* The models that a federation sends need not be spread out. When every client takes part
  in every round they form a Krylov sequence and crowd together: d + 1 messages, or a
  thousand, then do not determine theta*. A direction counts as identified when its
  curvature, given all better-seen directions, stands clear of the noise. On the other
  directions the curvature is taken like those seen, and the covariance says how little
  that is worth.

Mini-batches break the affine law: see `overheard.decoding.surrogate`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf

from overheard.errors import FixRecording, ListenLonger

Array = NDArray[np.float64]

CLEAR = 10.0  # a curvature counts as seen when it is this many standard errors from zero
FLAT = 1e-3  # ... and as absent when surely below this fraction of the smallest one seen


@dataclass(frozen=True)
class AffineMap:
    """The update map of one client, D = W (theta - fixed_point), and how well it is known.

    Attributes:
        W: (P, P) symmetric positive (semi-definite where the loss is flat).
        fixed_point: (P,) estimate of the client's local optimum theta*.
        covariance: (P, P) of fixed_point: rounding carried to first order, plus the
            ignorance about curvature in the directions that were never visited. Flat
            directions contribute nothing: there every value is an optimum.
        identified: number of directions along which theta* follows from the messages.
        flat: number of directions along which the client's loss is constant, to the
            noise (fewer independent records than parameters, a constant column).
        directions: (P, P) orthonormal columns, best seen first; the first ``identified``
            are identified.
        condition: ratio of the largest to the smallest singular value of the centred
            models (infinite when they do not span the space): how crowded they are.
        noise_sd: standard deviation of one coordinate of D about the law, as used.
        residual: root mean square of D - W (theta - fixed_point) over the messages.
    """

    W: Array
    fixed_point: Array
    covariance: Array
    identified: int
    flat: int
    directions: Array
    condition: float
    noise_sd: float
    residual: float

    @property
    def fixed_point_sd(self) -> Array:
        """(P,) standard deviation per parameter."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def fit_affine_map(
    sent: Array,
    returned: Array,
    rounding_sd: float | None = None,
    steps: int = 1,
    exact: bool = False,
) -> AffineMap:
    """Fit D = W (theta - theta*) to the (T, P) models sent and returned; T >= 2.

    Guarantees. If every direction is identified, fixed_point is theta* up to the noise
    amplified by ``1 / (s_min lambda_min(W))``; covariance is the first-order error. If not,
    the unseen curvatures are taken to be like those seen (the Ritz values of W), with the
    step of least expected excess loss, and covariance allows them to be as low as the lowest
    seen. That is wide on purpose: in simulations two standard deviations cover nearly always,
    so read it as "not worse than", not as a forecast of the error.

    Fails silently when D is not affine (mini-batches, another loss, other data in each
    round): then noise_sd is far above rounding, which the caller should look at.

    Args:
        sent: (T, P) models theta_t as the client received them.
        returned: (T, P) models theta'_t as the client sent them back.
        rounding_sd: noise per coordinate of ``returned``; by default that of float32 if all
            values are float32 numbers, else of float64. The estimate from the messages
            themselves is used where it is larger.
        steps: number E of local steps, if known. It changes nothing that is identified; it
            only makes the guess better where directions are missing.
        exact: raise `ListenLonger` unless every direction is identified or flat.
    """
    sent, returned = _checked(sent, returned)
    rounds, size = sent.shape
    if rounds < 2:
        raise ListenLonger(
            f"{rounds} message(s) heard; an affine map needs at least 2 and, to be exact, "
            f"{size + 1}: listen to more rounds"
        )
    floor = rounding_scale(sent, returned) if rounding_sd is None else float(rounding_sd)
    update = sent - returned
    centre, pull = sent.mean(0), update.mean(0)
    spread, answer = sent - centre, update - pull

    left, s, basis = _svd(spread)
    seen = left.T @ answer @ basis  # seen[i, j] = s_i W_ij + noise, in the basis
    noise = max(floor, _noise(answer, left, s, seen, basis))
    weight = s[:, None] ** 2 + s**2
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = np.where(weight > 0, (s[:, None] * seen + s * seen.T) / weight, 0.0)
        variance = np.where(weight > 0, noise**2 / weight, np.inf)

    k = _identified(curve, variance)
    if k == 0:
        raise ListenLonger(
            f"{rounds} messages heard, none of which moves beyond its noise ({noise:.1e}): "
            "listen to earlier rounds, where the model still changes"
        )
    known = cho_factor(curve[:k, :k], lower=True)
    cross = cho_solve(known, curve[:k, k:])  # W11^-1 W12
    local_pull = basis.T @ pull
    rest = local_pull[k:] - cross.T @ local_pull[:k]  # pull left in the unseen directions
    ritz = np.linalg.eigvalsh(curve[:k, :k])
    schur, schur_sd = _leftover_curvature(curve, variance, cross, k)
    flat = np.abs(schur) + 3.0 * schur_sd < FLAT * ritz[0]
    if exact and k + int(flat.sum()) < size:
        raise ListenLonger(
            f"{rounds} messages identify {k} of {size} directions (condition number "
            f"{_ratio(s):.1e}): the optimum is not determined. Listen to more rounds, or to a "
            "federation with partial participation, or ask for the regularised estimate"
        )
    unseen = _guessed_curvature(
        curve[k:, :k] @ cross, ritz, steps, np.maximum(schur, 0.0) + 3.0 * schur_sd
    )
    inverse = np.zeros_like(unseen)
    inverse[np.ix_(~flat, ~flat)] = np.linalg.inv(unseen[np.ix_(~flat, ~flat)])
    step = -inverse @ rest
    offset = np.concatenate([-cho_solve(known, local_pull[:k]) - cross @ step, step])

    full = curve.copy()
    full[k:, k:] = curve[k:, :k] @ cross + np.where(np.outer(~flat, ~flat), unseen, 0.0)
    gain = np.concatenate([-cross, np.eye(size - k)])  # how the seen follow the unseen
    whole_inverse = gain @ inverse @ gain.T
    whole_inverse[:k, :k] += cho_solve(known, np.eye(k))
    covariance = _carried(whole_inverse, variance, offset, noise**2 / rounds, k)
    wobble = np.maximum(1.0 / ritz[0], 1.0 / np.diag(unseen))
    wobble[flat] = 0.0
    guess = wobble * rest
    loose = wobble**2 * np.sum(rest**2) / max(size - k, 1)
    covariance += gain @ (np.outer(guess, guess) + np.diag(loose)) @ gain.T
    matrix = basis @ full @ basis.T
    matrix = (matrix + matrix.T) / 2
    fixed_point = centre + basis @ offset
    misfit = update - (sent - fixed_point) @ matrix
    return AffineMap(
        W=matrix,
        fixed_point=fixed_point,
        covariance=basis @ covariance @ basis.T,
        identified=k,
        flat=int(flat.sum()),
        directions=basis,
        condition=_ratio(s),
        noise_sd=noise,
        residual=float(np.sqrt(np.mean(misfit**2))),
    )


def rounding_scale(sent: Array, returned: Array) -> float:
    """Standard deviation per coordinate that the number format on the wire adds to D.

    float32 if every value returned is a float32 number: one rounding, uniform within a
    unit in the last place. float64 otherwise, with a few units for the arithmetic.
    """
    single = returned.astype(np.float32)
    if np.array_equal(single, returned):
        return float(np.sqrt(np.mean(np.spacing(np.abs(single)).astype(float) ** 2) / 12.0))
    size = np.sqrt(np.mean(sent**2) + np.mean(returned**2))
    return float(2.0 * np.finfo(float).eps * size) + np.finfo(float).tiny


def _checked(sent: Array, returned: Array) -> tuple[Array, Array]:
    sent, returned = np.asarray(sent, dtype=np.float64), np.asarray(returned, dtype=np.float64)
    if sent.ndim != 2 or sent.shape != returned.shape:
        raise FixRecording(
            f"models sent have shape {sent.shape}, models returned {returned.shape}; both must "
            "be (rounds, parameters): keep only rounds in which the client answered"
        )
    bad = ~(np.isfinite(sent).all(1) & np.isfinite(returned).all(1))
    if bad.any():
        raise FixRecording(
            f"message {int(np.argmax(bad))} holds NaN or infinity; drop that round or check "
            "that the federation's learning rate is stable"
        )
    return sent, returned


def _svd(spread: Array) -> tuple[Array, Array, Array]:
    """Left vectors (T, P), singular values (P,), right vectors (P, P); zero-padded if T < P."""
    rounds, size = spread.shape
    left, s, right = np.linalg.svd(spread, full_matrices=rounds < size)
    if rounds >= size:
        return left, s, right.T
    padded = np.zeros((rounds, size))
    padded[:, :rounds] = left
    return padded, np.concatenate([s, np.zeros(size - rounds)]), right.T


def _noise(answer: Array, left: Array, s: Array, seen: Array, basis: Array) -> float:
    """Noise of D from what no symmetric affine map can explain."""
    outside = answer - left @ (left.T @ answer)
    i, j = np.triu_indices(len(s), 1)
    norm = np.hypot(s[i], s[j])
    both = norm > 0
    skew = (s[j] * seen[i, j] - s[i] * seen[j, i])[both] / norm[both]
    freedom = max(len(answer) - 1 - len(s), 0) * len(s) + len(skew)
    if freedom == 0:
        return 0.0
    return float(np.sqrt((np.sum(outside**2) + np.sum(skew**2)) / freedom))


def _identified(curve: Array, variance: Array) -> int:
    """How many leading directions have a curvature that stands clear of the noise.

    Pivot i of curve = L diag(p) L' is v'Wv with v = row i of L^-1: the curvature along
    direction i once all better-seen ones are settled. Its variance is
    2 sum_ab v_a^2 v_b^2 variance_ab.
    """
    factor, info = dpotrf(np.where(np.isfinite(variance), curve, 0.0), lower=1, clean=1)
    k = len(curve) if info == 0 else int(info) - 1
    finite = np.isfinite(np.diag(variance))
    k = min(k, len(curve) if finite.all() else int(np.argmin(finite)))
    if k == 0:
        return 0
    diagonal = np.diag(factor)[:k]
    rows = solve_triangular(factor[:k, :k] / diagonal, np.eye(k), lower=True) ** 2
    sd = np.sqrt(2.0 * np.sum((rows @ variance[:k, :k]) * rows, 1))
    clear = diagonal**2 > CLEAR * sd
    return k if clear.all() else int(np.argmin(clear))


def _leftover_curvature(curve: Array, variance: Array, cross: Array, k: int) -> tuple[Array, Array]:
    """Curvature of each unseen direction once the seen ones are settled, with its error."""
    schur = np.diag(curve)[k:] - np.sum(cross * curve[:k, k:], 0)
    rows = np.concatenate([cross.T, np.eye(len(schur))], 1) ** 2
    sd = np.sqrt(2.0 * np.sum((rows @ np.where(np.isfinite(variance), variance, 0.0)) * rows, 1))
    return schur, np.where(np.isfinite(np.diag(variance)[k:]), sd, np.inf)


def _carried(inverse: Array, variance: Array, offset: Array, pull_variance: float, k: int) -> Array:
    """First-order covariance of -W^-1 pull: error of W times the offset, error of the pull."""
    measured = variance.copy()
    measured[k:, k:] = 0.0  # guessed, not measured
    error = measured * np.outer(offset, offset)
    np.fill_diagonal(error, measured @ offset**2 + pull_variance)
    total = inverse @ error @ inverse
    return np.asarray((total + total.T) / 2)


def _one_step(values: Array, steps: int) -> Array:
    """a with 1 - (1 - a)^E = value, for values clipped to [0, 1]."""
    return np.asarray(-np.expm1(np.log1p(-np.clip(values, 0.0, 1.0 - 1e-15)) / steps))


def _guessed_curvature(implied: Array, ritz: Array, steps: int, most: Array) -> Array:
    """Curvature of the unseen directions given the seen: a Schur complement W22 - implied.

    W22 is taken isotropic. Its size: where the seen curvatures are typical, a step x along a
    direction of one-step curvature a and E-step curvature w costs a (1/w - x)^2 in loss,
    least on average at 1/x = sum(a) / sum(a/w); that, on top of what the coupling to the
    seen directions implies, within the spectrum of a stable W. ``most`` is a measured bound.
    """
    one = ritz if steps == 1 else _one_step(ritz, steps)
    typical = one.sum() / (one / ritz).sum()
    values, vectors = np.linalg.eigh((implied + implied.T) / 2)
    size = min(typical + np.max(values, initial=0.0), max(1.0, ritz[-1]))
    guess = (vectors * np.maximum(size - values, typical / 2)) @ vectors.T
    shrink = np.sqrt(np.minimum(1.0, np.maximum(most, 1e-12 * typical) / np.diag(guess)))
    return np.asarray(guess * shrink * shrink[:, None])


def _ratio(s: Array) -> float:
    return float(s[0] / s[-1]) if s[-1] > 0 else float("inf")
