"""Surrogate records for a logistic client: see `overheard.decoding.surrogate` for the idea.

The gradient of a logistic client is E[(sigma(x'theta) - sigma(x'theta*)) x], so theta* and the
distribution of x say everything. The distribution is carried by a few surrogate records,
drawn from a Gaussian with the moments that the noise of the updates shows, then moved, all
together (their common affine image) and one by one, until replaying the local steps on them
reproduces the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

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

EQUATIONS = 800  # about as many as one dense solve takes in some hundredths of a second
LEVELS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # relative error allowed, from a rough fit to a close one


@dataclass(frozen=True)
class SurrogatePrior:
    """What is assumed before the updates are matched; all in units of the moments' scale.

    Attributes:
        records: number of surrogate records.
        alone: how far one record may move by itself.
        together: how far all may move by a common affine map, when the moments are measured
            on mini-batch noise.
        blind: the same when they are not (full batches).
        logit: root mean square of x'(theta* - last returned model) to expect.
        draws: independent surrogates, averaged.
    """

    records: int = 50
    alone: float = 0.3
    together: float = 0.2
    blind: float = 1.0
    logit: float = 4.0
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

    If theta* lies far outside the models sent, ``estimate`` extrapolates with the right
    functional form but its length is then mostly the prior's (nearly separable records have
    no finite optimum at all).
    """
    prior = prior or SurrogatePrior()
    sent, returned = _enough(sent, returned)
    rounds, size = sent.shape
    update = sent - returned
    floor = rounding_scale(sent, returned)
    smooth = trend(rounds, 12)
    noise = residual_covariance(sent, update, smooth)
    factor = noise_factor(recipe)
    pull = update / (recipe.learning_rate * recipe.steps)
    moments = pull.T @ pull / rounds
    measured = factor > 0 and np.trace(noise) > 10.0 * size * floor**2
    if measured:
        moments = moments + noise / factor
        noise = noise + floor**2 * np.eye(size)
    else:
        moments = moments + 0.1 * np.trace(moments) * np.eye(size)
        noise = floor**2 * np.eye(size)
    moments = 4.0 * moments if bias is None else moments / moments[bias, bias]

    rows = _contrasts(sent, smooth)
    fits = []
    for draw in range(prior.draws):
        rng = np.random.default_rng([seed, draw])
        cloud = _cloud(moments, bias, prior, measured, rng)
        fits.append(_match(sent, returned, rows, noise, recipe, cloud, prior))
    beta = np.mean([f[0] for f in fits], 0)
    covariance = np.mean([f[1] + np.outer(f[0] - beta, f[0] - beta) for f in fits], 0)
    records = np.concatenate([f[4] for f in fits])
    trained = _replay(records, beta, returned[-1:], recipe.learning_rate, recipe.steps * rounds)[0]
    return LocalOptimum(
        estimate=beta,
        trained=trained[0],
        covariance=covariance,
        identified=int(np.mean([f[2] for f in fits])),
        misfit=float(np.mean([f[3] for f in fits])),
        noise_sd=float(np.sqrt(np.trace(noise) / size)),
        prior_spread=prior.together if measured else prior.blind,
    )


@dataclass(frozen=True)
class _Cloud:
    """Surrogate records = base + (mix @ U) @ stretch for standard normal U; beta = last + width @ z."""

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
    measured: bool,
    rng: np.random.Generator,
) -> _Cloud:
    size, n = len(moments), prior.records
    free = np.arange(size) if bias is None else np.delete(np.arange(size), bias)
    mean = np.zeros(size) if bias is None else moments[bias]
    covariance = (moments - np.outer(mean, mean))[np.ix_(free, free)]
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
    common = (prior.together if measured else prior.blind) ** 2
    shared = common * (1.0 + normal @ normal.T / len(free)) + prior.alone**2 * np.eye(n)
    second = base.T @ base / n
    values, vectors = np.linalg.eigh(second)
    width = vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1])) * prior.logit
    return _Cloud(base, np.linalg.cholesky(shared), stretch, width)


def _match(
    sent: Array,
    returned: Array,
    rows: Array,
    noise: Array,
    recipe: LocalRecipe,
    cloud: _Cloud,
    prior: SurrogatePrior,
) -> tuple[Array, Array, int, float, Array]:
    """theta*, its covariance, identified directions, misfit, surrogate records.

    Levenberg-Marquardt for min |white(D - replay)|^2 + |U|^2 + |z|^2, solved in the space of
    equations; the error allowed falls level by level, so that the fit is led, not thrown.
    """
    lr, steps = recipe.learning_rate, recipe.steps
    target = rows.T @ (sent - returned)  # (K, P)
    scale = np.sqrt(np.mean(target**2, 1))
    noise_values, noise_vectors = np.linalg.eigh(noise)
    n, size = cloud.base.shape
    dims = len(cloud.stretch)

    def unpack(x: Array) -> tuple[Array, Array]:
        moved = cloud.base + cloud.mix @ x[: n * dims].reshape(n, dims) @ cloud.stretch
        return moved, returned[-1] + cloud.width @ x[n * dims :]

    def residual(x: Array, white: Array) -> tuple[Array, Array, Array, list[Array]]:
        records, beta = unpack(x)
        end, path = _replay(records, beta, sent, lr, steps)
        gap = target - rows.T @ (sent - end)
        return np.einsum("kpq,kq->kp", white, gap).ravel(), records, beta, path

    x = np.zeros(n * dims + size)
    damping = 0.1
    for level in LEVELS:
        allowed = noise_values + (level * scale[:, None]) ** 2
        white = (noise_vectors / np.sqrt(allowed)[:, None, :]) @ noise_vectors.T
        gap, records, beta, path = residual(x, white)
        cost = float(gap @ gap + x @ x)
        for _ in range(10 if level == LEVELS[-1] else 6):
            slope = _slope(records, beta, path, rows, white, lr, cloud)
            gram, shift = slope @ slope.T, slope @ x
            improved = False
            for _ in range(8):
                system = gram / (1.0 + damping)
                system[np.diag_indices_from(system)] += 1.0
                dual = np.linalg.solve(system, gap + shift / (1.0 + damping))
                trial = x + (slope.T @ dual - x) / (1.0 + damping)
                new = residual(trial, white)
                new_cost = float(new[0] @ new[0] + trial @ trial)
                if new_cost < cost:
                    improved = True
                    break
                damping = 6.0 * max(damping, 1e-3)
            if not improved:
                break
            gain = 1.0 - new_cost / cost
            x, (gap, records, beta, path), cost = trial, new, new_cost
            damping /= 6.0
            if gain < (1e-2 if level == LEVELS[-1] else 0.05):
                break
    slope = _slope(records, beta, path, rows, white, lr, cloud)
    gram = slope @ slope.T
    gram[np.diag_indices_from(gram)] += 1.0
    last = slope[:, n * dims :]
    left_over = np.eye(size) - last.T @ np.linalg.solve(gram, last)  # of the prior's variance
    misfit = float(np.mean(gap**2))
    covariance = max(1.0, misfit) * cloud.width @ left_over @ cloud.width.T
    identified = int(np.sum(np.linalg.eigvalsh((left_over + left_over.T) / 2) < 0.5))
    return beta, covariance, identified, misfit, records


def _slope(
    records: Array,
    beta: Array,
    path: list[Array],
    rows: Array,
    white: Array,
    lr: float,
    cloud: _Cloud,
) -> Array:
    """(K P, n F + P) derivative of the whitened contrasts of the replayed update.

    Exact for one local step. For more, the path is held fixed and the feedback of early on
    late steps enters through the mean Hessian: (I - (I - lr H)^S) / (S lr H).
    """
    n, size = records.shape
    steps = len(path)
    ones = rows.sum(0)  # (K,)
    chosen = _sigmoid(records @ beta)
    slope_at_beta = chosen * (1.0 - chosen)
    first = -steps * np.outer(ones, chosen)  # (K, n): sum of sigma, minus its optimum's
    second = -steps * ones[:, None, None] * (slope_at_beta[:, None] * beta)  # (K, n, P)
    hessian = np.zeros((size, size))
    for models in path:
        s = _sigmoid(models @ records.T)
        d = s * (1.0 - s)
        first += rows.T @ s
        second += ((rows[:, :, None] * d[:, None]).reshape(len(d), -1).T @ models).reshape(
            second.shape
        )
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
) -> tuple[Array, list[Array]]:
    """Models after full-batch steps on the surrogate, and where each step was taken."""
    n = len(records)
    wanted = _sigmoid(records @ beta) @ records / n
    path = []
    for _ in range(steps):
        path.append(models)
        models = models - lr * (_sigmoid(models @ records.T) @ records / n - wanted)
    return models, path


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
