"""kerkouche2023 (PROLIN): which clients have a property P, from sums of their updates?

In the paper's order and symbols. Client i of N sends the update dw_r^i in round r; the server
learns b_r = sum_i A_ri dw_r^i of the n rounds, and holds auxiliary data D_aux.

- Section 5.1.1, gradient disaggregation: dw^i, each client's mean update, by least squares.
- Section 5.1.2, shadow updates D' = D+ u D- (`shadow_updates`) and the detectors M_r
  (`train_detector`): |D'| = 2 |D_aux| simulated clients, every other one with P, a logistic
  regression by SGD (batches of 10, rate .001) on 80% of them. Together: BASELINE.
- Section 5.2, Table 1: (1) M_r = h o g_r with one linear feature g_r (t = 1) and its weight v_r =
  1 - OVL_r; (2) f_r+ and f_r-, normal; (3) the expected features G~ by ridge regression, equations
  8 and 9 (`ridge`); (4) the relaxed maximum likelihood of section 5.2.4 (`prolin`).
- Section 6.3.1: OLS is h(G~) with v = 1 and lambda = 0, REG with the weights and lambda = 5, PROLIN
  all four steps. A client is positive above one half.

Updates of one step are means of their records' own gradients, which makes |D'| of them a matter of
|D_aux| gradients; several steps are simulated client by client.

Where the paper is silent: each coordinate of the updates is standardised by its mean and deviation
over the fitted ones, as the authors' published code does (raw updates are of length .02, and with a
rate of .001 nothing would be learned beyond the difference of the means); the regression has an
intercept and makes 20 passes. Their code then keeps the pass that is best on the testing part and
adds a penalty; here the last pass is taken, and the testing part only tests. In the formula of the
relaxed problem the sums over rounds (L_reg) and over clients (L_lstsq) stand outside of the norms,
which would ask each single feature to be the whole sum; the constraints that they relax are taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from overheard.attacks.property import NEEDS, USES, Adversary, adversary_of, attendance
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.training import Shards, local_training
from overheard.randomness import stream
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import RoundSum
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]
TOGETHER = 500
"""Shadow clients that are trained in one call."""
TINY = 1e-300
"""Added to variances that are divided by."""
ROUNDING = 1e-6
"""Of a probability: what other arithmetic makes of the same numbers."""


@dataclass(frozen=True)
class Options:
    """The paper's hyperparameters (Table 2, section 6.3).

    shadows: simulated updates a round, |D'|; 0: twice the auxiliary records, as in the paper.
    draws: of a record's gradient under dropout, which simulated clients of one step share.
    epochs, rate, batch: of each M_r's logistic regression.
    least_sd: added to each coordinate's deviation, as in the authors' code: some never move.
    penalty: lambda of REG and PROLIN.
    steps, step_size: of the relaxed optimisation.
    betas: of MTAdam: of the gradients, of their squares, and of their lengths.
    seed: of the shadow clients.
    """

    shadows: int = 0
    draws: int = 4
    epochs: int = 20
    rate: float = 0.001
    batch: int = 10
    least_sd: float = 1e-7
    penalty: float = 5.0
    steps: int = 3000
    step_size: float = 0.01
    betas: tuple[float, float, float] = (0.9, 0.999, 0.9)
    seed: int = 0


DEFAULT = Options()


# --- section 5.1.2: shadow updates and detectors -------------------------------------------------


def shadow_updates(
    adversary: Adversary, theta: Floats, count: int, rng: np.random.Generator, draws: int = 4
) -> tuple[Floats, Flags]:
    """D': updates (count, P) of simulated clients; every other one has the property."""
    if adversary.behaviour == "free-rider":
        raise ChooseAnotherAttack("kerkouche2023 looks for no free riders; use matched_filter")
    has, recipe, size = np.arange(count) % 2 == 1, adversary.recipe, adversary.shard
    whole = recipe.plain and not network(recipe).mixes and (recipe.batch_size or size) >= size
    if whole and recipe.local_steps(size) == 1:
        return _means(adversary, theta, has, rng, draws), has
    parts = [has[at : at + TOGETHER] for at in range(0, count, TOGETHER)]
    made = [_updates(adversary, theta, part, rng) for part in parts]
    return np.concatenate(made).astype(np.float32), has


def _means(adversary: Adversary, theta: Floats, has: Flags, rng: Any, draws: int) -> Floats:
    """As `_updates`, of clients that take one step: the mean of its records' own gradients, each of
    which is made once; with dropout ``draws`` times, and the target's for each client that has it.
    One step up is one step down, negated."""
    known, size, random = adversary.auxiliary, adversary.shard, network(adversary.recipe).random
    n, times = len(known), draws if random else 1
    rows = np.array([rng.choice(n, size, replace=False) for _ in has])
    rows += n * rng.integers(times, size=rows.shape)
    known = known.take(np.tile(np.arange(n), times))
    if adversary.targets is not None:
        mine = adversary.targets.take(np.zeros(has.sum() if random else 1, dtype=np.int64))
        rows[has, 0] = len(known) + np.arange(len(mine))
        known = known.joined(mine)
    used, groups = np.unique(rows, return_inverse=True)
    gradients = adversary.rows(theta, known.take(used), rng)
    made = gradients.sums(groups.reshape(rows.shape)).astype(np.float32, copy=False)
    made *= adversary.recipe.rate / size
    made[has & (adversary.behaviour != "")] *= -1
    return made


def _updates(adversary: Adversary, theta: Floats, has: Flags, rng: np.random.Generator) -> Floats:
    """sent - returned (count, P) of clients of whom some have the property."""
    recipe, size, known = adversary.recipe, adversary.shard, adversary.auxiliary
    rows = np.array([rng.choice(len(known), size, replace=False) for _ in has])
    inputs, labels = known.inputs[rows], known.labels[rows]
    if adversary.targets is not None:
        inputs[has, 0], labels[has, 0] = adversary.targets.inputs[0], adversary.targets.labels[0]
    made = np.empty((len(has), len(theta)), theta.dtype)
    for who, sign in ((~has, 1.0), (has, -1.0 if adversary.behaviour == "ascent" else 1.0)):
        data = Shards(inputs[who], labels[who], np.full(who.sum(), size, dtype=np.int64))
        way = recipe.model_copy(update={"learning_rate": sign * recipe.learning_rate})
        trained = local_training(way, theta, data, rng)
        made[who] = sign * trained if recipe.sends_gradient else theta - trained
    if adversary.behaviour == "inversion":
        made[has] *= -1
    return made


class Detector(NamedTuple):
    """M_r: weights (P,) and intercept of g_r, the means and variances of f_r+ and f_r-, OVL_r, and
    ``length``, the norm of g_r's weights on standardised updates (Figure 6).

    All rounds' detectors are one `Detector` whose entries have the rounds in front.
    """

    weights: Floats
    intercept: Any
    mean_with: Any
    variance_with: Any
    mean_without: Any
    variance_without: Any
    overlap: Any
    length: Any = 0.0


def train_detector(
    updates: Floats, has: Flags, options: Options, rng: np.random.Generator
) -> Detector:
    """Logistic regression by SGD on the first four fifths of D', f_r+ and f_r- on the rest (5.2.1,
    5.2.2). The updates are standardised in place."""
    fitted = len(has) * 4 // 5
    mean = updates[:fitted].mean(axis=0, dtype=np.float64)
    updates -= mean.astype(updates.dtype)  # a number that never moves is exactly zero now
    squares = np.einsum("np,np->p", updates[:fitted], updates[:fitted])
    sd = np.sqrt(squares / fitted) + options.least_sd
    updates /= sd.astype(updates.dtype)
    weights, intercept = np.zeros(updates.shape[1], updates.dtype), 0.0
    for _ in range(options.epochs):
        ends = range(options.batch, fitted, options.batch)
        for batch in np.split(rng.permutation(fitted), ends):
            x = updates[batch]
            error = (expit(x @ weights + intercept) - has[batch]) / len(batch)
            weights -= options.rate * (error.astype(x.dtype) @ x)
            intercept -= options.rate * float(error.sum())
    feature, tested, raw = updates[fitted:] @ weights + intercept, has[fitted:], weights / sd
    parts = (feature[tested], feature[~tested])
    plus, minus = (NormalDist(f.mean(), max(f.std(), TINY**0.5)) for f in parts)
    normals = (plus.mean, plus.variance, minus.mean, minus.variance, plus.overlap(minus))
    last = (*normals, float(np.linalg.norm(weights)))
    return Detector(raw.astype(updates.dtype), intercept - float(mean @ raw), *last)


class Detected(NamedTuple):
    """All rounds' detectors on all rounds' sums.

    ``outputs`` (n, n): g_r (row) of sum b_s (column), without the intercept.
    """

    outputs: Array
    detectors: Detector
    participation: Array

    def first(self, rounds: int) -> Detected:
        """What is known after so many rounds."""
        detectors = Detector(*(part[:rounds] for part in self.detectors))
        return Detected(self.outputs[:rounds, :rounds], detectors, self.participation[:rounds])

    @property
    def aggregates(self) -> Array:
        """G_r = g_r(b_r) (n,), equation 7: an intercept for each participant."""
        count = self.participation.sum(axis=1)
        return np.asarray(np.diag(self.outputs) + count * self.detectors.intercept)


def detector(adversary: Adversary, one: RoundSum, options: Options) -> Detector:
    """M_r of a round."""
    rng = stream(options.seed, "detectors", one.number)
    count = options.shadows or 2 * len(adversary.auxiliary)
    shadows = shadow_updates(adversary, one.sent, count, rng, options.draws)
    return train_detector(*shadows, options, rng)


def detect(rounds: Iterable[Detector], sums: Sums) -> Detected:
    """Each round's detector on the sums of all rounds."""
    detectors = Detector(*(np.array(part) for part in zip(*rounds, strict=True)))
    totals = np.array([one.total for one in sums], dtype=np.float32)
    outputs = (detectors.weights @ totals.T).astype(np.float64)
    return Detected(outputs, detectors, sums.participation)


# --- section 5.1.1 and 5.1: BASELINE -------------------------------------------------------------


def baseline(observed: Detected, options: Options = DEFAULT) -> Array:
    """BASELINE: mean over the detectors of their confidence in each client's mean update (N,).

    The mean update of a client is row i of pinv(A) B; a detector's output for it is the same
    combination of its outputs for the sums.
    """
    each = observed.outputs @ np.linalg.pinv(observed.participation).T
    return np.asarray(expit(each + observed.detectors.intercept[:, None]).mean(axis=0))


# --- section 5.2.3: expected features, OLS and REG -----------------------------------------------


def ridge(aggregates: Array, participation: Array, weights: Any, penalty: float) -> Array:
    """G~ (N,), equation 9: argmin_x sum_r v_r (G_r - A_r x)^2 + lambda |x|^2."""
    root, clients = np.sqrt(weights + 0 * aggregates), participation.shape[1]
    rows = np.vstack([root[:, None] * participation, np.sqrt(penalty) * np.eye(clients)])
    sums = np.append(root * aggregates, np.zeros(clients))
    return np.asarray(np.linalg.lstsq(rows, sums, rcond=None)[0])


def ols(observed: Detected, options: Options = DEFAULT) -> Array:
    """OLS: h(G~_i) (N,) with v = 1 and lambda = 0."""
    return np.asarray(expit(ridge(observed.aggregates, observed.participation, 1.0, 0.0)))


def reg(observed: Detected, options: Options = DEFAULT) -> Array:
    """REG: h(G~_i) (N,) with v_r = 1 - OVL_r and lambda = 5."""
    return np.asarray(expit(_expected(observed, options)))


def _expected(observed: Detected, options: Options) -> Array:
    """G~ (N,) as REG and PROLIN have it."""
    weights = 1 - observed.detectors.overlap
    return ridge(observed.aggregates, observed.participation, weights, options.penalty)


# --- section 5.2.4: PROLIN -----------------------------------------------------------------------


def prolin(observed: Detected, options: Options = DEFAULT) -> Array:
    """PROLIN: tau (N,) after so many projected steps from 1/2 and the expected features.

    min gamma_1 L_ml + gamma_2 L_reg + gamma_3 L_lstsq over tau in [0, 1]^N and X (n, N), the
    features of each client in each round that it took part in; the weights by MTAdam.
    """
    goal = _expected(observed, options)
    losses = Losses(observed, goal)
    tau, x = np.full(len(goal), 0.5), np.where(losses.there, losses.goal, 0.0)
    of_tau, of_x = MTAdam(1, tau.shape, options), MTAdam(3, x.shape, options)
    for _ in range(options.steps):
        by_tau, by_x = losses.gradients(tau, x)
        tau = np.clip(tau + of_tau.step([by_tau]), 0.0, 1.0)
        x = x + of_x.step(by_x)
    return np.asarray(tau)


class Losses:
    """The three losses, in units in which a feature's standard deviation is about one.

    ``there`` (n, N): A; per round (n, 1): means ``plus``, ``minus`` of f_r+ and f_r- with variances
    ``plus_variance``, ``minus_variance``; ``sums`` G_r and ``weights`` v_r (n,); ``goal`` G~ (N,).
    """

    def __init__(self, observed: Detected, goal: Array) -> None:
        plus, wide, minus, narrow = (part[:, None] for part in observed.detectors[2:6])
        unit = np.sqrt((wide + narrow) / 2).mean() + TINY
        self.plus, self.minus = plus / unit, minus / unit
        variances = (np.maximum(v / unit**2, ROUNDING) for v in (wide, narrow))
        self.plus_variance, self.minus_variance = variances
        self.there, self.weights = observed.participation > 0, 1 - observed.detectors.overlap
        self.sums, self.goal = observed.aggregates / unit, goal / unit

    def gradients(self, tau: Array, x: Array) -> tuple[Array, list[Array]]:
        """By tau (N,), of L_ml alone; by X (n, N), of each loss.

        L_ml = - sum_i log(tau_i prod_r f_r+(X_ri) + (1 - tau_i) prod_r f_r-(X_ri));
        L_reg = sum_i (mean_r X_ri - G~_i)^2 (Constraint 2);
        L_lstsq = sum_r v_r (sum_i A_ri X_ri - G_r)^2 (Constraint 1).
        """
        a = self.there
        log_plus = -((x - self.plus) ** 2 / self.plus_variance + np.log(self.plus_variance)) / 2
        log_minus = -((x - self.minus) ** 2 / self.minus_variance + np.log(self.minus_variance)) / 2
        ratio = np.clip(np.where(a, log_plus - log_minus, 0.0).sum(axis=0), -500, 500)
        inside = np.clip(tau, 1e-12, 1 - 1e-12)
        share = expit(ratio + np.log(inside) - np.log1p(-inside))
        by_tau = (1 - share) / (1 - inside) - share / inside
        likelihood = share * (x - self.plus) / self.plus_variance
        likelihood += (1 - share) * (x - self.minus) / self.minus_variance
        took = np.maximum(a.sum(axis=0), 1)
        level = 2 * (x.sum(axis=0) / took - self.goal) / took
        whole = 2 * self.weights * (x.sum(axis=1) - self.sums)
        by_x = (likelihood, level, whole[:, None])
        return by_tau, [np.where(a, gradient, 0.0) for gradient in by_x]


class MTAdam:
    """Adam with moments for each of several losses (the paper's reference [40]): the gradients of
    the later ones are scaled to the first one's length, and the greatest of the denominators holds
    for all."""

    def __init__(self, losses: int, shape: tuple[int, ...], options: Options = DEFAULT) -> None:
        self.first, self.second = np.zeros((losses, *shape)), np.zeros((losses, *shape))
        self.norms, self.turn, self.options = np.zeros(losses), 0, options

    def step(self, gradients: list[Array]) -> Array:
        """What to add to the variable."""
        mean, square, norm = self.options.betas
        stacked, norm = np.stack(gradients), norm * (self.turn > 0)
        lengths = np.linalg.norm(stacked.reshape(len(stacked), -1), axis=1)
        self.turn, self.norms = self.turn + 1, norm * self.norms + (1 - norm) * lengths
        known = self.norms > 1e-10
        to_first = np.where(known, self.norms[known.argmax()] / np.where(known, self.norms, 1), 1)
        stacked = np.einsum("k,k...->k...", to_first, stacked)
        self.first = mean * self.first + (1 - mean) * stacked
        self.second = square * self.second + (1 - square) * stacked**2
        below = np.sqrt(self.second.max(axis=0) / (1 - square**self.turn)) + 1e-8
        rate = self.options.step_size / (1 - mean**self.turn)
        return np.asarray(-rate * self.first.sum(axis=0) / below)


# --- the four attacks ----------------------------------------------------------------------------


def above_half(probabilities: Array) -> Flags:
    """Who is accused. One of whom nothing was observed stands at one half, but for rounding."""
    return probabilities > 0.5 + ROUNDING


@dataclass(frozen=True)
class OnDetectors:
    """What the paper's four attacks share: detectors of all rounds, made once for the sums of a
    view, whoever asks first; ``weigh`` makes a probability for each client of them."""

    paper: ClassVar[str] = "kerkouche2023"
    question: ClassVar[str] = "property"
    needs: ClassVar[Kinds] = NEEDS
    uses: ClassVar[Kinds] = USES
    slow: ClassVar[bool] = True
    weigh: ClassVar[Any]

    options: Options = field(default_factory=Options)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        adversary, sums = adversary_of(view), view.know(Sums)
        key = (view.target.key, self.options, adversary.auxiliary.inputs.tobytes())
        if key not in sums.derived:
            made = (detector(adversary, one, self.options) for one in sums)
            sums.derived[key] = detect(made, sums)
        observed: Detected = sums.derived[key]
        probabilities, overlaps = self.weigh(observed, self.options), observed.detectors.overlap
        details = {"rounds": len(overlaps), "mean_overlap": float(overlaps.mean())}
        details |= attendance(observed.participation)
        return ClientProperty(probabilities, above_half(probabilities), sums.clients, details)


@dataclass(frozen=True)
class GradientDisaggregation(OnDetectors):
    """Least squares on whole updates gives each client's mean update, to which the detectors of all
    rounds are applied and their confidence averaged (the paper's BASELINE).

    Solves: bᵣ = Σᵢ Aᵣᵢ Δwᵢ + ξᵣ by least squares (kerkouche2023, section 5.1)
    """

    name: ClassVar[str] = "gradient_disaggregation"
    weigh = staticmethod(baseline)


@dataclass(frozen=True)
class Ols(OnDetectors):
    """Least squares on each round's linear feature; a client is positive if the sigmoid of its
    expected feature is above one half (the paper's OLS).

    Solves: gᵣ(bᵣ) = Σᵢ Aᵣᵢ xᵢ + ξᵣ by least squares, gᵣ a linear feature (kerkouche2023, section
    5.2)
    """

    name: ClassVar[str] = "ols"
    weigh = staticmethod(ols)


@dataclass(frozen=True)
class Ridge(OnDetectors):
    """Ridge regression on each round's linear feature, rounds weighing one minus the overlap of the
    detector's two distributions, with a penalty of 5 (the paper's REG).

    Solves: min over x of Σᵣ vᵣ (gᵣ(bᵣ) − Σᵢ Aᵣᵢ xᵢ)² + λ‖x‖² (kerkouche2023, section 5.2)
    """

    name: ClassVar[str] = "ridge"
    weigh = staticmethod(reg)


@dataclass(frozen=True)
class Prolin(OnDetectors):
    """Searches the clients' properties and features that are most likely under the detectors'
    feature distributions and add up to what was observed (the paper's PROLIN, one linear feature).

    Solves: max over τ of Πᵣᵢ p(Xᵣᵢ | τᵢ) subject to Σᵢ Aᵣᵢ Xᵣᵢ = gᵣ(bᵣ) (kerkouche2023, section
    5.2)
    """

    name: ClassVar[str] = "prolin"
    weigh = staticmethod(prolin)
