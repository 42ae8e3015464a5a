"""Which model would a client have trained alone, if it trains linear least squares?

**The law** (xu2021 Observation 1, equations (4)-(5)). With full batches and any number E of local
steps, whatever the learning rate, the client's update is affine in what it was sent,

    D_t = theta_t - theta'_t = W (theta_t - theta*),     W = I - (I - (2 lr / m) X'X)^E,

so that d + 1 messages give W and the local optimum theta* in O(d^3). Mini-batches break the law by
noise, which xu2021 section 3.2 meets with a neural network for the map and a search for its zero
far outside the models sent. Here the map stays affine, and one posterior of W serves both
(`decode_least_squares`):

* W is symmetric. In the basis of the right singular vectors of the centred models, entry (i, j) of
  W is measured twice, with weights s_i and s_j; the weighted mean is the least-squares solution
  among symmetric matrices, in closed form.
* The models that a federation sends need not be spread out. When every client takes part in every
  round they form a Krylov sequence and crowd together: d + 1 messages, or a thousand, then do not
  determine theta*. So W has a prior, "about kappa I": kappa and the spread about it maximise the
  marginal likelihood (MacKay 1992), and each entry is shrunk towards it by its own noise.
* A direction counts as identified when its curvature, given all better-seen directions, stands
  clear of the noise. On the others the curvature is the posterior's, kept positive.

Only the noise differs. **Full batches**: it is that of rounding, or what no symmetric map explains
if that is more. **Mini-batches**: the residuals' covariance R is a measurement too. It is, up to a
factor that follows from the training recipe (`noise_factor`), the covariance of the per-record
gradients, for least squares nearly proportional to X'X, or to powers of it, as W is (xu2021
Observations 5 and 6 treat that noise as protection). So the prior is "about kappa I" in R's metric.

`decode_least_squares` then goes from the last returned model towards theta* as far as the
estimate's own expected error allows (James and Stein 1961). Logistic regression continues from the
same moments: `overheard.decoding.pseudo_records`. Both give a covariance and the number of
directions of theta* that the messages decide. Nothing here is fitted to, or chosen by, the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf

from overheard.errors import FixConfig, FixRecording, ListenLonger

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeastSquaresOptions:
    """When something counts as seen.

    Attributes:
        clear: standard errors by which a curvature that was seen differs from zero.
        flat: a direction is flat whose curvature is surely below this share of the smallest seen.
        spreads: of curvatures about the prior's that are tried; at 1/2 they reach zero.
        least_spread: times sqrt(P / degrees of freedom): the sampling error of the prior itself,
            where it is made of the mini-batches' noise.
        least_curvature: of a direction that is not identified, as a share of the prior's.
        clear_of_noise: standard errors by which the mean curvature must differ from zero.
        least_rounds: with fewer the noise of mini-batches is not told from the signal.
    """

    clear: float = 10.0
    flat: float = 1e-3
    spreads: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5)
    least_spread: float = 0.7
    least_curvature: float = 0.2
    clear_of_noise: float = 3.0
    least_rounds: int = 8


@dataclass(frozen=True)
class LocalRecipe:
    """How the client trains between two messages, as far as the adversary must know it.

    Attributes:
        learning_rate: of plain SGD, for the mean loss of a batch.
        steps: gradient steps between receiving and returning a model. A client that makes E
            passes over m records in batches of B takes E * ceil(m / B) of them.
        batch: records per batch; batches are drawn without replacement within a pass and the
            last batch of a pass is smaller. At least ``records`` means full batch.
        records: number m of the client's records.
    """

    learning_rate: float = 1.0
    steps: int = 1
    batch: int = 1
    records: int = 1

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0 and min(self.steps, self.batch, self.records) >= 1):
            raise FixConfig(
                f"learning rate {self.learning_rate}, steps {self.steps}, batch {self.batch}, "
                f"records {self.records} given; all must be positive"
            )

    @property
    def full_batch(self) -> bool:
        return self.batch >= self.records

    @property
    def passes(self) -> bool:
        """Whether mini-batches go through all records at least once."""
        return self.batch < self.records <= self.steps * self.batch

    @property
    def fresh_noise(self) -> float:
        """`noise_factor` if every batch were drawn afresh."""
        return self.learning_rate**2 * self.steps / self.batch


@dataclass(frozen=True)
class LocalOptimum:
    """A client's local optimum as the messages show it.

    Attributes:
        estimate: (P,) of theta*.
        covariance: (P, P) of ``estimate``, posterior under the stated prior. Flat directions
            contribute nothing: there every value is an optimum.
        identified: directions along which theta* follows from the messages.
        chi2: chi-square per equation; far above 1, the model of the client is wrong
            (other loss, other recipe, other records in each round).
        noise_sd: root mean square noise of one coordinate of an update.
        trusted: share of the way from the last returned model to the fitted optimum that
            ``estimate`` goes; 0: it is the last returned model, and nothing more is known.
        W: (P, P) symmetric positive, of the update map (least squares only).
        flat: directions along which the client's loss is constant, to the noise (fewer
            independent records than parameters, a constant column).
        condition: ratio of the largest to the smallest singular value of the centred models
            (infinite when they do not span the space): how crowded they are.
    """

    estimate: Array
    covariance: Array
    identified: int
    chi2: float
    noise_sd: float
    trusted: float = 1.0
    W: Array = field(default_factory=lambda: np.empty((0, 0)))
    flat: int = 0
    condition: float = np.nan

    @property
    def estimate_sd(self) -> Array:
        """(P,) standard deviation per parameter."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def decode_least_squares(
    sent: Array,
    returned: Array,
    recipe: LocalRecipe | None = None,
    rounding_sd: float | None = None,
) -> LocalOptimum:
    """theta* of a least-squares client from (T, P) models sent and returned.

    **Full batches** (two rounds at least). If every direction is identified, the estimate is theta*
    up to the noise amplified by ``1 / (s_min lambda_min(W))``, and the covariance its first-order
    error. Otherwise the covariance allows the curvatures that were never seen to be as low as the
    lowest seen. That is wide on purpose: in simulations two standard deviations cover nearly
    always, so read it as "not worse than", not as a forecast of the error. Fails silently when full
    batches are declared and D is not affine (mini-batches, another loss, other data in each round):
    then noise_sd is far above rounding, which the caller should look at.

    **Mini-batches** (``least_rounds``). What is returned lies on the way from the last returned
    model to the fitted optimum, as far as James and Stein go: the share of the loss between the two
    that is not the estimate's own expected error (``trusted``). Where nothing is left, or the mean
    curvature is not clear of its noise, that is the last returned model itself, and ``trusted`` is
    0. So few rounds, models that do not move, or fewer independent residuals than parameters end
    there and not in an explosion.

    Args:
        recipe: of the local training; full batches by default.
        rounding_sd: noise per coordinate of ``returned``; by default that of float32 if all
            values are float32 numbers, else of float64.
    """
    options, recipe = LeastSquaresOptions(), recipe or LocalRecipe()
    sent, returned = checked(sent, returned, 2 if recipe.full_batch else options.least_rounds)
    rounds, size = sent.shape
    floor = rounding_scale(sent, returned) if rounding_sd is None else float(rounding_sd)
    update = sent - returned
    centre, pull = sent.mean(0), update.mean(0)
    noise, freedom = residual_covariance(sent, update, trend(rounds, 0))
    batches = not recipe.full_batch and np.trace(noise) > 9.0 * size * floor**2
    up, down, least_spread = np.eye(size), np.eye(size), 0.0
    if batches:
        noise = shrunk(noise + floor**2 * np.eye(size), freedom)
        up, down = _roots(_shape(noise, freedom, recipe))
        least_spread = options.least_spread * np.sqrt(min(1.0, size / freedom))
    # as many left vectors and singular values as parameters, also where there are fewer rounds
    padded = np.pad((sent - centre) @ up, ((0, max(size - rounds, 0)), (0, 0)))
    left, s, right = np.linalg.svd(padded, full_matrices=False)
    left, basis = left[:rounds], right.T
    back = down @ basis  # from the metric's coordinates to parameters
    seen = left.T @ (update - pull) @ back  # seen[i, j] = s_i W_ij + noise, in the basis
    if not batches:
        noise = max(floor, _unexplained(update - pull, left, s, seen)) ** 2 * np.eye(size)
    own = np.sum(back * (noise @ back), 0)  # noise variance of each coordinate of an update
    curve, variance = _measured(seen, s, own)
    k = _identified(curve, variance, options.clear)
    kappa, spread = _marginal(curve, variance, least_spread, options.spreads)
    prior = (spread * kappa) ** 2 / size * (1.0 + np.eye(size))
    if k == 0 and kappa**2 * np.sum(1.0 / np.diag(variance + prior)) < options.clear_of_noise**2:
        if batches:
            return as_returned(returned[-1])
        raise ListenLonger(
            f"{rounds} messages observed, none of which moves beyond its noise: listen to earlier "
            "rounds, where the model still changes"
        )
    # The k identified directions have the curvature that was seen; the others add to what it
    # implies (their Schur complement) about kappa, or zero if it surely is so small.
    mean = kappa * np.eye(size)
    mean[k:, k:] += curve[k:, :k] @ np.linalg.solve(curve[:k, :k], curve[:k, k:])
    posterior = 1.0 / (1.0 / variance + 1.0 / prior)
    curve = posterior * (curve / variance + mean / prior)
    known, implied = curve[:k, :k], np.linalg.solve(curve[:k, :k], curve[:k, k:])
    values, vectors = np.linalg.eigh(curve[k:, k:] - curve[k:, :k] @ implied)
    others = np.concatenate([-implied @ vectors, vectors])
    sd = np.sqrt(2.0 * np.sum(others**2 * (posterior @ others**2), 0))
    lowest = np.min(np.linalg.eigvalsh(known), initial=kappa)
    flat = values + 3.0 * sd < options.flat * lowest
    values = np.maximum(values, np.minimum(options.least_curvature * kappa, 3.0 * sd))
    inverse = (others * np.where(flat, 0.0, 1.0 / values)) @ others.T
    inverse[:k, :k] += np.linalg.inv(known)
    curve[k:, k:] = curve[k:, :k] @ implied + (vectors * np.where(flat, 0.0, values)) @ vectors.T
    W = up @ basis @ curve @ basis.T @ up

    offset = -inverse @ (pull @ back)
    # to first order, the error of W times the offset, and that of the pull
    error = posterior * np.outer(offset, offset)
    np.fill_diagonal(error, posterior @ offset**2 + own / rounds)
    error = inverse @ error @ inverse
    optimum, trusted = centre + back @ offset, 1.0
    if batches:
        way = optimum - returned[-1]
        between = max(float(way @ W @ way), np.finfo(float).tiny)
        trusted = 1.0 - float(np.sum(curve * error)) / between
        if trusted <= 0.0:
            return as_returned(returned[-1])
        optimum = returned[-1] + trusted * way
    else:
        wrong = np.where(flat, 0.0, 1.0 / np.minimum(lowest, values))
        rest = others.T @ (pull @ back)  # the pull that the identified directions do not explain
        guess, loose = wrong * rest, wrong**2 * np.sum(rest**2) / max(size - k, 1)
        error += others @ (np.outer(guess, guess) + np.diag(loose)) @ others.T
    unexplained = (update - pull - (sent - centre) @ W) @ _roots(noise)[1]
    return LocalOptimum(
        estimate=optimum,
        covariance=back @ error @ back.T,
        identified=k,
        chi2=float(np.mean(unexplained**2)),
        noise_sd=float(np.sqrt(np.trace(noise) / size)),
        trusted=trusted,
        W=(W + W.T) / 2,
        flat=int(flat.sum()),
        condition=float(s[0] / s[-1]) if s[-1] > 0 else float("inf"),
    )


def as_returned(last: Array) -> LocalOptimum:
    """Nothing is known beyond the last returned model."""
    return LocalOptimum(last, np.full((len(last), len(last)), np.nan), 0, np.nan, np.nan, 0.0)


def noise_factor(recipe: LocalRecipe) -> float:
    """The number f for which Cov(D) = f * Cov(per-record gradients), to first order in lr.

    D = lr * sum_i w_i g_i, where w_i sums 1/(size of the batch) over the batches that record i
    was in. Within a pass the records without a batch yet have w_i = 0, and those of the last,
    smaller batch have more than the others; passes are independent. Zero for full batches and
    for whole passes in equal batches, where only second-order noise is left.
    """
    if recipe.full_batch:
        return 0.0
    m, size = recipe.records, recipe.batch
    per_pass = -(-m // size)
    sizes = np.full(per_pass, size)
    sizes[-1] = m - (per_pass - 1) * size

    def spread(batches: int) -> float:
        weights = np.where(np.arange(per_pass) < batches, 1.0 / sizes, 0.0)
        return float(m / (m - 1) * np.sum(sizes * (weights - batches / m) ** 2))

    whole, part = divmod(recipe.steps, per_pass)
    return recipe.learning_rate**2 * (whole * spread(per_pass) + spread(part))


def trend(rounds: int, degree: int) -> Array:
    """(T, degree + 1) orthonormal polynomials of time: what a smooth training run looks like."""
    time = np.linspace(-1.0, 1.0, rounds)
    degree = min(degree, rounds - 1)
    return np.linalg.qr(np.polynomial.legendre.legvander(time, degree))[0]


def residual_covariance(sent: Array, update: Array, smooth: Array) -> tuple[Array, int]:
    """(P, P) covariance of what neither time nor the model sent explains in the updates, and its
    degrees of freedom; with fewer of them than parameters it is singular.

    Regresses the updates on the orthonormal columns ``smooth`` and on the models sent (their
    leading directions, at most a third of the rounds). Unbiased if the update map is affine
    around the trend; otherwise what it misses counts as noise.
    """
    rounds, size = sent.shape
    left = np.linalg.svd(sent - smooth @ (smooth.T @ sent), full_matrices=False)[0]
    dof = rounds - int(smooth.shape[1])
    explaining = min(size, max(dof // 3, 1))
    freedom = max(dof - explaining, 1)
    explained = np.column_stack([smooth, left[:, :explaining]])
    rest = update - explained @ (explained.T @ update)
    return np.asarray(rest.T @ rest / freedom), freedom


def shrunk(noise: Array, freedom: int) -> Array:
    """A sample covariance drawn towards its diagonal by the share P / (P + freedom)."""
    doubt = len(noise) / (len(noise) + freedom)
    return np.asarray((1.0 - doubt) * noise + doubt * np.diag(np.diag(noise)))


def _shape(noise: Array, freedom: int, recipe: LocalRecipe) -> Array:
    """What the curvature is nearly proportional to: a power of the noise covariance.

    Batches drawn afresh make noise in proportion to X'X: the power is 1. Over whole passes in
    equal batches that noise cancels. What is left is of second order in the rate, between X'X and
    its cube (an early batch's gradient passes through the later batches' curvature): 1/2. Sampling
    error spreads eigenvalues apart, which a power below 1 undoes: times freedom / (freedom + P).
    """
    cancels = recipe.passes and noise_factor(recipe) < 0.25 * recipe.fresh_noise
    power = (0.5 if cancels else 1.0) * freedom / (freedom + len(noise))
    values, vectors = np.linalg.eigh(noise)
    return np.asarray((vectors * np.maximum(values, 1e-14 * values[-1]) ** power) @ vectors.T)


def _unexplained(answer: Array, left: Array, s: Array, seen: Array) -> float:
    """Noise of D from what no symmetric affine map can explain: the two measurements of an entry
    of W disagree by noise alone."""
    outside = answer - left @ (left.T @ answer)
    i, j = np.triu_indices(len(s), 1)
    norm = np.hypot(s[i], s[j])
    both = norm > 0
    skew = (s[j] * seen[i, j] - s[i] * seen[j, i])[both] / norm[both]
    freedom = max(len(answer) - 1 - len(s), 0) * len(s) + len(skew)
    return float(np.sqrt((np.sum(outside**2) + np.sum(skew**2)) / max(freedom, 1)))


def _measured(seen: Array, s: Array, own: Array) -> tuple[Array, Array]:
    """Symmetric W and its variances (P, P) from seen[i, j] = s_i W_ij + noise of variance own_j.

    Directions that were never visited (s_i = s_j = 0) have infinite variance.
    """
    weight = s[:, None] ** 2 / own
    total, sums = weight + weight.T, s[:, None] * seen / own
    diagonal = np.diag_indices_from(total)
    total[diagonal], sums = np.diag(weight), sums + sums.T
    sums[diagonal] /= 2.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, sums / total, 0.0), np.where(total > 0, 1.0 / total, np.inf)


def _identified(curve: Array, variance: Array, clear: float) -> int:
    """How many leading directions have a curvature that stands clear of the noise.

    Pivot i of curve = L diag(p) L' is v'Wv with v = row i of L^-1: the curvature along
    direction i once all better-seen ones are settled. Its variance is
    2 sum_ab v_a^2 v_b^2 variance_ab.
    """
    visited = int(np.sum(np.isfinite(np.diag(variance))))
    factor, stopped = dpotrf(curve[:visited, :visited], lower=1, clean=1)
    k = visited if stopped == 0 else int(stopped) - 1
    diagonal = np.diag(factor)[:k]
    rows = solve_triangular(factor[:k, :k] / diagonal, np.eye(k), lower=True) ** 2
    sd = np.sqrt(2.0 * np.sum((rows @ variance[:k, :k]) * rows, 1))
    return int(np.argmin(np.append(diagonal**2 > clear * sd, False)))


def _marginal(
    curve: Array, variance: Array, least: float, spreads: tuple[float, ...]
) -> tuple[float, float]:
    """kappa and relative spread, at least ``least``, of greatest marginal likelihood for curve
    about kappa I."""
    i, j = np.triu_indices(len(curve))
    there = np.isfinite(variance[i, j])
    i, j = i[there], j[there]
    value, noise, diagonal = curve[i, j], variance[i, j], i == j
    best = (-np.inf, 0.0, least)
    for spread in sorted({max(least, s) for s in spreads}):
        kappa = 0.0
        for _ in range(20 if diagonal.any() else 0):
            total = noise + (spread * kappa) ** 2 / len(curve) * np.where(diagonal, 2.0, 1.0)
            kappa = max(float(np.average(value[diagonal], weights=1 / total[diagonal])), 0.0)
        total = noise + (spread * kappa) ** 2 / len(curve) * np.where(diagonal, 2.0, 1.0)
        score = -0.5 * float(np.sum(np.log(total) + (value - kappa * diagonal) ** 2 / total))
        best = max(best, (score, kappa, spread))
    return best[1], best[2]


def _roots(covariance: Array) -> tuple[Array, Array]:
    """Symmetric square root and its inverse."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


def rounding_scale(sent: Array, returned: Array) -> float:
    """Standard deviation per coordinate that the number format of the messages adds to D.

    float32 if every value returned is a float32 number: one rounding, uniform within a
    unit in the last place. float64 otherwise, with a few units for the arithmetic.
    """
    single = returned.astype(np.float32)
    if np.array_equal(single, returned):
        return float(np.sqrt(np.mean(np.spacing(np.abs(single)).astype(float) ** 2) / 12.0))
    size = np.sqrt(np.mean(sent**2) + np.mean(returned**2))
    return float(2.0 * np.finfo(float).eps * size) + np.finfo(float).tiny


def checked(sent: Array, returned: Array, least: int) -> tuple[Array, Array]:
    """The models as floats, of so many rounds at least."""
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
    if len(sent) < least:
        raise ListenLonger(
            f"{len(sent)} messages observed; at least {least} are needed to tell the signal from "
            "the noise: listen to more rounds"
        )
    return sent, returned
