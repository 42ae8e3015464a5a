"""Local optimum of a logistic client: pseudo-records that reproduce its updates.

By definition of the optimum theta*, E[sigma(x'theta*) x] = E[y x], so that a client's gradient is

    g(theta) = E[(sigma(x'theta) - sigma(x'theta*)) x],

whatever its labels: theta* and the distribution of x say everything. The distribution is carried by
some fifty pseudo-records. They start with the moments that the noise of the updates shows
(`overheard.decoding.local_optimum`) and are moved, all together (a common affine map) and one by
one, until replaying the local steps on them reproduces the messages: Levenberg-Marquardt (More
1978) on records and theta* with a Gaussian prior on both, solved in the space of equations. The
tolerance falls level by level, so that the fit is led, not thrown.

**How far to go.** An optimum far outside the models sent is an extrapolation. It is often worse
than the last returned model, though its pseudo-records predict held-out updates far better (so that
held-out rounds cannot tell: of 24 clients they preferred it for 23). What does tell is its expected
gain on the pseudo-records beside its own expected error, both losses: the share of the way that is
gone from the last returned model (``trusted``) is gain / (gain + error), cf. James and Stein. Where
it is large that is too timid: full batches go all the way, and with mini-batches simulated clients
tell, whose optimum is known. The pseudo-records send messages with the noise that was observed,
these are decoded the same way, and the share that has the least loss on the pseudo-records is taken
for the client too. A small share says little beyond the last returned model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.local_optimum import (
    LocalOptimum,
    LocalRecipe,
    checked,
    noise_factor,
    residual_covariance,
    rounding_scale,
    shrunk,
    trend,
)
from overheard.errors import ChooseAnotherAttack

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PseudoRecordOptions:
    """What is assumed before the updates are matched, in units of the moments' scale, and how long
    is searched. The defaults were fixed on simulations and serve every table.

    Attributes:
        records: number of pseudo-records; at least twice the parameters are taken.
        alone: how far one record may move by itself.
        together: how far all may move by a common affine map. Loose: the moments from the noise
            are a start, not a fact. Both are doubled where the client makes whole passes in about
            equal batches: first-order noise then cancels and what remains is crude.
        logit: root mean square of x'(theta* - last returned model) to start from.
        equations: about how many are matched (one dense solve of some hundredths of a second).
        levels: error allowed in an update, relative to its size, rough to close.
        steps: of Levenberg-Marquardt a level, at most.
        tune_from: level from which the prior variance of theta* follows the fit.
        replayed: local steps that a replay takes at most.
        least_share: of the way; an answer that goes less of it says little.
        clear_share: of the way; full batches that allow so much go all of it.
        simulated: clients on which the shares of the way are tried (mini-batches).
        shares: of the way that are tried.
        doubt: standard deviation of the way gone from the last returned model, as a share of it.
        least_rounds: with fewer the noise of mini-batches is not told from the signal.
    """

    records: int = 50
    alone: float = 0.5
    together: float = 1.0
    logit: float = 8.0
    equations: int = 600
    levels: tuple[float, ...] = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.01)
    steps: int = 6
    tune_from: float = 0.1
    replayed: int = 8
    least_share: float = 0.4
    clear_share: float = 0.7
    simulated: int = 2
    shares: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.0)
    doubt: float = 0.5
    least_rounds: int = 8


@dataclass(frozen=True)
class _Search:
    """Pseudo-records and theta* whose replay is to reproduce combinations of rounds of the updates.

    The coordinates of a point are x (n F + P,), standard normal a priori: records (n, P) are
    base + mix @ U @ scale, where U (n, F) is the first part of x and F the number of inputs that
    are free, and theta* is last + width @ z, where z (P,) is the rest. What is matched is
    ``target`` (K, P), combinations ``rows`` (T, K) of the updates, as exactly as ``white``
    (K, P, P) says.
    """

    sent: Array
    last: Array
    rows: Array
    target: Array
    noise: Array
    rate: float
    steps: int
    base: Array
    mix: Array
    segment: Array
    width: Array
    white: Array = field(default_factory=lambda: np.empty(0))

    def allowing(self, level: float) -> _Search:
        """The search that allows for noise and for ``level`` times the size of a combination."""
        values, vectors = np.linalg.eigh(self.noise)
        size = np.sqrt(np.mean(self.target**2, 1))
        allowed = np.sqrt(np.maximum(values, 0.0) + (level * size[:, None]) ** 2)
        return replace(self, white=(vectors / allowed[:, None, :]) @ vectors.T)

    def replay(self, x: Array) -> tuple[Array, Array, list[Array]]:
        """The records, theta*, and the models (T, P) before, between and after the local steps."""
        split = self.base.shape[0] * len(self.segment)
        moved = x[:split].reshape(-1, len(self.segment))
        records = self.base + self.mix @ moved @ self.segment
        beta = self.last + self.width @ x[split:]
        path, n = [self.sent], len(records)
        wanted = _sigmoid(records @ beta) @ records / n
        for _ in range(self.steps):
            slope = _sigmoid(path[-1] @ records.T) @ records / n - wanted
            path.append(path[-1] - self.rate * slope)
        return records, beta, path

    def gap(self, x: Array) -> Array:
        """(K P,) what the replay misses, in units of what is allowed."""
        missed = self.target - self.rows.T @ (self.sent - self.replay(x)[2][-1])
        return np.asarray((self.white @ missed[:, :, None]).ravel())

    def slope(self, x: Array) -> Array:
        """(K P, n F + P) derivative of the replayed combinations, in units of what is allowed.

        Exact for one local step. For more, the path is held fixed and the feedback of early on
        late steps enters through the mean Hessian: (I - (I - lr H)^S) / (S lr H).
        """
        records, beta, path = self.replay(x)
        (n, size), rows, steps = records.shape, self.rows, self.steps
        ones = rows.sum(0)  # (K,)
        chosen = _sigmoid(records @ beta)
        slope_at_beta = chosen * (1.0 - chosen)
        first = -steps * np.outer(ones, chosen)  # (K, n): sum of sigma, minus its optimum's
        second = -steps * ones[:, None, None] * (slope_at_beta[:, None] * beta)  # (K, n, P)
        hessian = np.zeros((size, size))
        for models in path[:-1]:
            s = _sigmoid(models @ records.T)
            d = s * (1.0 - s)
            first += rows.T @ s
            spread = (rows[:, :, None] * models[:, None]).reshape(len(d), -1)
            second += (d.T @ spread).reshape(n, -1, size).transpose(1, 0, 2)
            hessian += (records.T * d.mean(0)) @ records / n
        values, vectors = np.linalg.eigh(self.rate * hessian / steps)
        values = np.clip(values, 1e-12, 1.9)
        feedback = (vectors * ((1.0 - (1.0 - values) ** steps) / (values * steps))) @ vectors.T
        gain = self.white @ feedback * (self.rate / n)  # (K, P, P)
        through = gain @ records.T  # (K, P, n)
        along = second @ self.segment.T  # (K, n, F)
        direct = gain @ self.segment.T  # (K, P, F)
        moved = through[..., None] * along[:, None] + direct[:, :, None] * first[:, None, :, None]
        pulled = -steps * ((records.T * slope_at_beta) @ records @ self.width)
        pulled = ones[:, None, None] * (gain @ pulled)
        count = len(ones) * size
        return np.column_stack([(self.mix.T @ moved).reshape(count, -1), pulled.reshape(count, -1)])


def decode_logistic(
    sent: Array, returned: Array, recipe: LocalRecipe, bias: int | None, seed: int = 0
) -> LocalOptimum:
    """theta* of a logistic-regression client (one logit) from (T, P) models sent and returned.

    bias: which parameter multiplies the constant 1, if any. With it the scale of the features
    follows from the messages; without, it is that of a model near zero. seed: of the pseudo-records
    and of the simulated clients; one seed, one result.

    The covariance is Laplace's, which trusts the pseudo-records' form, plus ``doubt`` of the way
    (or what is not gone of it, if that is more) as a standard deviation along it, and as much
    spread over all directions in the metric of the records.
    """
    options = PseudoRecordOptions()
    sent, returned = checked(sent, returned, options.least_rounds)
    if not np.any(sent != returned):
        raise ChooseAnotherAttack("every model came back unchanged; the client does not train")
    rng = np.random.default_rng([seed, 0])
    search, x = _match(_search(sent, returned, recipe, bias, options, rng), options)
    last, size = returned[-1], sent.shape[1]
    records, beta, path = search.replay(x)
    chi2 = float(np.mean(search.gap(x) ** 2))
    remaining = _remaining(search.slope(x) / np.sqrt(chi2), size)  # at the noise that it leaves
    move, second = beta - last, records.T @ records / len(records)
    second += 1e-3 * np.trace(second) / size * np.eye(size)
    across = (move @ second @ move) / size * np.linalg.inv(second)
    covariance = search.width @ remaining @ search.width.T
    chosen = _sigmoid(records @ beta)

    def losses(models: Array) -> Array:
        outputs = models @ records.T
        return np.asarray(np.mean(np.logaddexp(0.0, outputs) - chosen * outputs, axis=1))

    gain = -float(np.diff(losses(np.array([last, beta])))[0])
    hessian = (records.T * (chosen * (1.0 - chosen))) @ records / len(records)
    share = gain / (gain + float(np.sum(hessian * covariance)) / 2.0)
    if share >= options.clear_share and recipe.full_batch:
        share = 1.0
    elif share >= options.least_share and not recipe.full_batch:
        tried, shares = np.zeros(len(options.shares)), np.array(options.shares)[:, None]
        values, vectors = np.linalg.eigh(search.noise)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        for number in range(options.simulated):
            rng = np.random.default_rng([seed, 1 + number])
            again = path[-1] + rng.normal(size=sent.shape) @ root
            other, at = _match(_search(sent, again, recipe, bias, options, rng), options)
            tried += losses(again[-1] + shares * (other.replay(at)[1] - again[-1]))
        share = options.shares[int(np.argmin(tried))]
    doubt = max(options.doubt, 1.0 - share)
    return LocalOptimum(
        estimate=last + share * move,
        covariance=covariance + doubt**2 * (np.outer(move, move) + across),
        identified=int(np.sum(np.linalg.eigvalsh(remaining) < 0.5)),
        chi2=chi2,
        noise_sd=float(np.sqrt(np.trace(search.noise) / size)),
        trusted=share,
    )


def _search(
    sent: Array,
    returned: Array,
    recipe: LocalRecipe,
    bias: int | None,
    options: PseudoRecordOptions,
    rng: np.random.Generator,
) -> _Search:
    """What is to be matched, and Gaussian pseudo-records to start from: they have exactly the
    second moments that updates and their noise show."""
    rounds, size = sent.shape
    update, floor = sent - returned, rounding_scale(sent, returned)
    smooth = trend(rounds, 12)
    noise, factor = residual_covariance(sent, update, smooth)[0], noise_factor(recipe)
    pull = update / (recipe.learning_rate * recipe.steps)
    moments = pull.T @ pull / rounds
    if recipe.full_batch or np.trace(noise) <= 10.0 * size * floor**2:
        factor, noise = 0.0, np.zeros((size, size))
    isotropic = 0.1 * np.trace(moments) * np.eye(size)
    moments = moments + (noise / factor if factor > 0 else isotropic)
    moments = 4.0 * moments if bias is None else moments / moments[bias, bias]
    # first-order noise that cancels tells less of the moments
    looser = 2.0 if recipe.passes and factor < recipe.fresh_noise else 1.0

    free = np.delete(np.arange(size), [] if bias is None else [bias])
    mean = np.zeros(size) if bias is None else moments[bias]
    covariance = shrunk(moments - np.outer(mean, mean), rounds)[np.ix_(free, free)]
    values, vectors = np.linalg.eigh(covariance)
    segment = np.zeros((len(free), size))
    segment[:, free] = (vectors * np.sqrt(np.maximum(values, 1e-6 * max(values[-1], 1e-300)))).T
    normal = rng.normal(size=(max(options.records, 2 * size), len(free)))
    normal -= normal.mean(0)
    normal = normal @ np.linalg.inv(np.linalg.cholesky(normal.T @ normal / len(normal))).T
    base = mean + normal @ segment
    if bias is not None:
        base[:, bias] = 1.0
    shared = options.together**2 * (1.0 + normal @ normal.T / len(free))
    shared += options.alone**2 * np.eye(len(base))
    values, vectors = np.linalg.eigh(base.T @ base / len(base))
    width = vectors / np.sqrt(np.maximum(values, 1e-3 * values.mean()))
    rows = _combinations(sent, smooth, options.equations)
    # a replay takes fewer, longer steps: its error is of second order in the rate
    steps = min(recipe.steps, options.replayed)
    return _Search(
        sent=sent,
        last=returned[-1],
        rows=rows,
        target=rows.T @ update,
        noise=noise + floor**2 * np.eye(size),
        rate=recipe.learning_rate * recipe.steps / steps,
        steps=steps,
        base=base,
        mix=looser * np.asarray(np.linalg.cholesky(shared), dtype=np.float64),
        segment=segment,
        width=width * options.logit / np.sqrt(size),
    )


def _combinations(sent: Array, smooth: Array, equations: int) -> Array:
    """(T, K) orthonormal combinations of rounds to match: the trend, then the excitations.

    Deviations of the models from their trend are small, but it is they that visit new
    directions; as combinations of their own they weigh as much as the trend does.
    """
    size = sent.shape[1]
    count = int(np.clip(equations // size, 8, 24))
    low = smooth[:, : max(count - size, count // 2)]
    left, s, _ = np.linalg.svd(sent - low @ (low.T @ sent), full_matrices=False)
    # where there are few rounds the trend is all of it, and the residual of the models is rounding
    used = min(count - low.shape[1], int(np.sum(s > 1e-12 * np.linalg.norm(sent))))
    return np.concatenate([low, left[:, :used]], 1)


def _match(search: _Search, options: PseudoRecordOptions) -> tuple[_Search, Array]:
    """The search at its last level, and where it ended.

    Once the fit is close, the prior variance of theta* is set to what it shows (one step of
    expectation maximisation a level): theta* is near in some federations and far in others.
    """
    size = len(search.last)
    x = np.zeros(len(search.base) * len(search.segment) + size)
    for level in options.levels:
        search = search.allowing(level)
        x = _descend(search, x, options.steps)
        if level <= options.tune_from:
            spread = x[-size:] @ x[-size:] + np.trace(_remaining(search.slope(x), size))
            far = float(np.clip(np.sqrt(spread / size), 0.3, 3.0))
            x[-size:] /= far
            search = replace(search, width=search.width * far)
    return search, x


def _descend(search: _Search, x: Array, most: int) -> Array:
    """Levenberg-Marquardt on |gap|^2 + |x|^2, solved in the space of equations."""
    damping, gap = 0.1, search.gap(x)
    for _ in range(most):
        slope = search.slope(x)
        gram, cost = slope @ slope.T, gap @ gap + x @ x
        for _ in range(8):
            system = gram / (1.0 + damping) + np.eye(len(gram))
            dual = np.linalg.solve(system, gap + slope @ x / (1.0 + damping))
            tried = x + (slope.T @ dual - x) / (1.0 + damping)
            new = search.gap(tried)
            gain = 1.0 - (new @ new + tried @ tried) / cost
            if gain > 0.0:
                x, gap, damping = tried, new, damping / 6.0
                break
            damping = 6.0 * max(damping, 1e-3)
        if gain < 0.03:
            break
    return x


def _remaining(slope: Array, size: int) -> Array:
    """(P, P) share of the prior variance of theta* (the last coordinates) that remains."""
    last = slope[:, -size:]
    share = np.eye(size) - last.T @ np.linalg.solve(slope @ slope.T + np.eye(len(slope)), last)
    return np.asarray((share + share.T) / 2)


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
