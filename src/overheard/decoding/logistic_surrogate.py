"""Surrogate records for a logistic client: see `overheard.decoding.surrogate` for the idea.

The gradient of a logistic client is E[(sigma(x'theta) - sigma(x'theta*)) x], so theta* and the
distribution of x say everything. The distribution is carried by a few surrogate records,
drawn from a Gaussian with the moments that the noise of the updates shows, then moved, all
together (their common affine image) and one by one, until replaying the local steps on them
reproduces the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.affine_map import rounding_scale
from overheard.decoding.batch_noise import (
    LocalRecipe,
    noise_factor,
    residual_covariance,
    trend,
)
from overheard.decoding.surrogate import LocalOptimum, _enough

Array = NDArray[np.float64]

EQUATIONS = 600  # about as many as one dense solve takes in some hundredths of a second
LEVELS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.01)  # relative error allowed, rough to close
REPLAYED = 8  # local steps that a replay takes at most
DOUBT = 0.5  # share of the way from the last model to theta* that is extrapolation
TUNE_FROM = 0.1  # level at which the prior variance of theta* starts to follow the fit


@dataclass(frozen=True)
class SurrogatePrior:
    """What is assumed before the updates are matched; all in units of the moments' scale.

    Attributes:
        records: number of surrogate records; at least twice the parameters are taken.
        alone: how far one record may move by itself.
        together: how far all may move by a common affine map. Loose: the moments from the
            noise are a start, not a fact. Both are doubled where the client makes whole passes
            in about equal batches: first-order noise then cancels and what is left is crude.
        logit: root mean square of x'(theta* - last returned model) to start from.
        draws: independent surrogates, averaged.
    """

    records: int = 50
    alone: float = 0.5
    together: float = 1.0
    logit: float = 8.0
    draws: int = 1


def decode_logistic(
    sent: Array,
    returned: Array,
    recipe: LocalRecipe,
    bias: int | None,
    seed: int = 0,
    prior: SurrogatePrior | None = None,
) -> LocalOptimum:
    """theta* of a logistic-regression client (one logit) from (T, P) models.

    Args:
        sent: (T, P) models as the client received them.
        returned: (T, P) models as it sent them back.
        recipe: how it trains in between.
        bias: which parameter multiplies the constant 1, if any. With it the scale of the
            features follows from the messages; without, it is that of a model near zero.
        seed: of the surrogate records; one seed, one result.
        prior: settings; the defaults were fixed on simulations and serve every data set.

    Without information ``estimate`` stays at the last model returned. If theta* lies far
    outside the models sent, it extrapolates with the right functional form, but how far is
    then mostly the prior's word (nearly separable records have no finite optimum at all);
    the covariance adds half the way gone for that.
    """
    prior = prior or SurrogatePrior()
    factor = noise_factor(recipe)
    independent = recipe.learning_rate**2 * recipe.steps / recipe.batch
    if recipe.batch < recipe.records <= recipe.steps * recipe.batch and factor < independent:
        prior = replace(prior, alone=2.0 * prior.alone, together=2.0 * prior.together)
    sent, returned = _enough(sent, returned)
    rounds, size = sent.shape
    update = sent - returned
    floor = rounding_scale(sent, returned)
    smooth = trend(rounds, 12)
    noise = residual_covariance(sent, update, smooth)
    pull = update / (recipe.learning_rate * recipe.steps)
    moments = pull.T @ pull / rounds
    if factor > 0 and np.trace(noise) > 10.0 * size * floor**2:
        moments = moments + noise / factor
        noise = noise + floor**2 * np.eye(size)
    else:
        moments = moments + 0.1 * np.trace(moments) * np.eye(size)
        noise = floor**2 * np.eye(size)
    moments = 4.0 * moments if bias is None else moments / moments[bias, bias]

    rows = _contrasts(sent, smooth)
    data = _Messages(sent, returned[-1], rows, rows.T @ update, noise, _shortened(recipe))
    fits = []
    for draw in range(prior.draws):
        rng = np.random.default_rng([seed, draw])
        cloud = _cloud(moments, bias, prior, rounds, rng)
        fits.append(_match(data, cloud))
    beta = np.mean([f[0] for f in fits], 0)
    covariance = np.mean([f[1] + np.outer(f[0] - beta, f[0] - beta) for f in fits], 0)
    records = np.concatenate([f[4] for f in fits])
    covariance = covariance + _extrapolation(beta - returned[-1], records)
    return LocalOptimum(
        estimate=beta,
        covariance=covariance,
        identified=int(np.mean([f[2] for f in fits])),
        misfit=float(np.mean([f[3] for f in fits])),
        noise_sd=float(np.sqrt(np.trace(noise) / size)),
        prior_spread=prior.together,
    )


def _shortened(recipe: LocalRecipe) -> LocalRecipe:
    """The same way in at most `REPLAYED` longer steps: their error is of second order in lr."""
    steps = min(recipe.steps, REPLAYED)
    return replace(recipe, steps=steps, learning_rate=recipe.learning_rate * recipe.steps / steps)


def _extrapolation(move: Array, records: Array) -> Array:
    """Covariance for what a surrogate cannot know: half the way gone, along it and across.

    The Laplace covariance trusts the surrogate's form. Beyond the models sent, the length of
    the move is an extrapolation; simulations are covered with half of it as one standard
    deviation, and as much again spread over all directions in the metric of the records.
    """
    size = len(move)
    second = records.T @ records / len(records)
    second += 1e-3 * np.trace(second) / size * np.eye(size)
    across = (move @ second @ move) / size * np.linalg.inv(second)
    return DOUBT**2 * (np.outer(move, move) + across)


@dataclass(frozen=True)
class _Cloud:
    """Records = base + (mix @ U) @ stretch, theta* = last + width @ z; U, z standard normal."""

    base: Array  # (n, P)
    mix: Array  # (n, n)
    stretch: Array  # (F, P)
    width: Array  # (P, P)


def _contrasts(sent: Array, smooth: Array) -> Array:
    """(T, K) orthonormal combinations of rounds to match: the trend, then the excitations.

    Deviations of the models from their trend are small, but it is they that visit new
    directions; as combinations of their own they weigh as much as the trend does.
    """
    size = sent.shape[1]
    count = int(np.clip(EQUATIONS // size, 8, 24))
    low = smooth[:, : max(count - size, count // 2)]
    spread = sent - low @ (low.T @ sent)
    left, s, _ = np.linalg.svd(spread, full_matrices=False)
    keep = min(count - low.shape[1], int(np.sum(s > 1e-12 * max(s[0], 1e-300))))
    return np.concatenate([low, left[:, :keep]], 1)


def _cloud(
    moments: Array,
    bias: int | None,
    prior: SurrogatePrior,
    rounds: int,
    rng: np.random.Generator,
) -> _Cloud:
    size = len(moments)
    n = max(prior.records, 2 * size)
    free = np.arange(size) if bias is None else np.delete(np.arange(size), bias)
    mean = np.zeros(size) if bias is None else moments[bias]
    covariance = (moments - np.outer(mean, mean))[np.ix_(free, free)]
    doubt = size / (size + rounds)  # sampling error makes small eigenvalues too small
    covariance = (1.0 - doubt) * covariance + doubt * np.diag(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 1e-6 * max(values[-1], 1e-300)))).T
    stretch = np.zeros((len(free), size))
    stretch[:, free] = root
    normal = rng.normal(size=(n, len(free)))
    normal -= normal.mean(0)
    if n > len(free) + 1:
        normal = normal @ np.linalg.inv(np.linalg.cholesky(normal.T @ normal / n)).T
    base = mean + normal @ stretch
    if bias is not None:
        base[:, bias] = 1.0
    shared = prior.together**2 * (1.0 + normal @ normal.T / len(free)) + prior.alone**2 * np.eye(n)
    second = base.T @ base / n
    values, vectors = np.linalg.eigh(second)
    width = (
        vectors / np.sqrt(np.maximum(values, 1e-3 * values.mean())) * prior.logit / np.sqrt(size)
    )
    return _Cloud(base, np.asarray(np.linalg.cholesky(shared), dtype=np.float64), stretch, width)


@dataclass(frozen=True)
class _Messages:
    """What is to be reproduced: contrasts of the updates, and how exactly."""

    sent: Array  # (T, P)
    last: Array  # (P,) the last model returned
    rows: Array  # (T, K)
    target: Array  # (K, P)
    noise: Array  # (P, P)
    recipe: LocalRecipe

    def whitener(self, level: float) -> Array:
        """(K, P, P) inverse root of noise plus ``level`` times the size of each contrast."""
        values, vectors = np.linalg.eigh(self.noise)
        size = np.sqrt(np.mean(self.target**2, 1))
        allowed = np.sqrt(np.maximum(values, 0.0) + (level * size[:, None]) ** 2)
        return np.asarray((vectors / allowed[:, None, :]) @ vectors.T)


@dataclass(frozen=True)
class _Fit:
    """A point of the search: coordinates, what they stand for, and how well that fits."""

    x: Array  # (n F + P,) standard normal a priori
    records: Array  # (n, P)
    beta: Array  # (P,)
    path: list[tuple[Array, Array]]
    gap: Array  # (K P,) whitened
    cost: float


def _evaluate(x: Array, data: _Messages, cloud: _Cloud, white: Array) -> _Fit:
    n, dims = len(cloud.base), len(cloud.stretch)
    records = cloud.base + cloud.mix @ x[: n * dims].reshape(n, dims) @ cloud.stretch
    beta = data.last + cloud.width @ x[n * dims :]
    end, path = _replay(records, beta, data.sent, data.recipe.learning_rate, data.recipe.steps)
    gap = data.target - data.rows.T @ (data.sent - end)
    gap = np.einsum("kpq,kq->kp", white, gap).ravel()
    return _Fit(x, records, beta, path, gap, float(gap @ gap + x @ x))


def _descend(fit: _Fit, data: _Messages, cloud: _Cloud, white: Array, most: int) -> _Fit:
    """Levenberg-Marquardt on |gap|^2 + |x|^2, solved in the space of equations."""
    damping = 0.1
    for _ in range(most):
        slope = _slope(fit, data, cloud, white)
        gram, shift = slope @ slope.T, slope @ fit.x
        for _ in range(8):
            system = gram / (1.0 + damping)
            system[np.diag_indices_from(system)] += 1.0
            dual = np.linalg.solve(system, fit.gap + shift / (1.0 + damping))
            step = (slope.T @ dual - fit.x) / (1.0 + damping)
            trial = _evaluate(fit.x + step, data, cloud, white)
            if trial.cost < fit.cost:
                break
            damping = 6.0 * max(damping, 1e-3)
        else:
            return fit
        gain = 1.0 - trial.cost / fit.cost
        fit, damping = trial, damping / 6.0
        if gain < 0.03:
            break
    return fit


def _left_over(fit: _Fit, data: _Messages, cloud: _Cloud, white: Array) -> Array:
    """(P, P) share of the prior variance of theta* that the messages leave (Laplace)."""
    slope = _slope(fit, data, cloud, white)
    gram = slope @ slope.T
    gram[np.diag_indices_from(gram)] += 1.0
    last = slope[:, -len(fit.beta) :]
    share = np.eye(len(fit.beta)) - last.T @ np.linalg.solve(gram, last)
    return np.asarray((share + share.T) / 2)


def _match(data: _Messages, cloud: _Cloud) -> tuple[Array, Array, int, float, Array]:
    """theta*, its covariance, identified directions, misfit, surrogate records.

    The error allowed falls level by level, so that the fit is led, not thrown. Once it is
    close, the prior variance of theta* is set to what the fit shows (one step of expectation
    maximisation a level): theta* is near in some federations and far in others.
    """
    size = data.sent.shape[1]
    x = np.zeros(cloud.mix.shape[0] * len(cloud.stretch) + size)
    for level in LEVELS:
        white = data.whitener(level)
        fit = _descend(_evaluate(x, data, cloud, white), data, cloud, white, 6)
        left_over, x = np.eye(size), fit.x
        if level <= TUNE_FROM:
            left_over = _left_over(fit, data, cloud, white)
            far = np.sqrt((x[-size:] @ x[-size:] + np.trace(left_over)) / size)
            far = float(np.clip(far, 0.3, 3.0))
            x = np.concatenate([x[:-size], x[-size:] / far])
            cloud = replace(cloud, width=cloud.width * far)
    misfit = float(np.mean(fit.gap**2))
    covariance = max(1.0, misfit) * cloud.width @ left_over @ cloud.width.T
    identified = int(np.sum(np.linalg.eigvalsh(left_over) < 0.5))
    return fit.beta, covariance, identified, misfit, fit.records


def _slope(fit: _Fit, data: _Messages, cloud: _Cloud, white: Array) -> Array:
    """(K P, n F + P) derivative of the whitened contrasts of the replayed update.

    Exact for one local step. For more, the path is held fixed and the feedback of early on
    late steps enters through the mean Hessian: (I - (I - lr H)^S) / (S lr H).
    """
    records, beta, path, rows = fit.records, fit.beta, fit.path, data.rows
    n, size = records.shape
    lr, steps = data.recipe.learning_rate, len(path)
    ones = rows.sum(0)  # (K,)
    chosen = _sigmoid(records @ beta)
    slope_at_beta = chosen * (1.0 - chosen)
    first = -steps * np.outer(ones, chosen)  # (K, n): sum of sigma, minus its optimum's
    second = -steps * ones[:, None, None] * (slope_at_beta[:, None] * beta)  # (K, n, P)
    hessian = np.zeros((size, size))
    for models, s in path:
        d = s * (1.0 - s)
        first += rows.T @ s
        spread = (rows[:, :, None] * models[:, None]).reshape(len(d), -1)
        second += (d.T @ spread).reshape(n, -1, size).transpose(1, 0, 2)
        hessian += (records.T * d.mean(0)) @ records / n
    values, vectors = np.linalg.eigh(lr * hessian / steps)
    values = np.clip(values, 1e-12, 1.9)
    feedback = (vectors * ((1.0 - (1.0 - values) ** steps) / (values * steps))) @ vectors.T
    gain = white @ feedback * (lr / n)  # (K, P, P)
    through = gain @ records.T  # (K, P, n)
    along = second @ cloud.stretch.T  # (K, n, F)
    direct = gain @ cloud.stretch.T  # (K, P, F)
    moved = through[:, :, :, None] * along[:, None] + direct[:, :, None] * first[:, None, :, None]
    moved = cloud.mix.T @ moved
    pulled = -steps * ((records.T * slope_at_beta) @ records @ cloud.width)
    pulled = ones[:, None, None] * (gain @ pulled)
    count = len(ones) * size
    return np.concatenate([moved.reshape(count, -1), pulled.reshape(count, size)], 1)


def _replay(
    records: Array, beta: Array, models: Array, lr: float, steps: int
) -> tuple[Array, list[tuple[Array, Array]]]:
    """Models after full-batch steps on the surrogate; where each was taken, and sigma there."""
    n = len(records)
    wanted = _sigmoid(records @ beta) @ records / n
    path = []
    for _ in range(steps):
        s = _sigmoid(models @ records.T)
        path.append((models, s))
        models = models - lr * (s @ records / n - wanted)
    return models, path


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
