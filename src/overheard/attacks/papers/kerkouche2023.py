"""Which clients have a property, from sums of updates? kerkouche2023's four methods.

Sections 5.1.2 and 5.2.1: a detector a round, trained on simulated updates.

The adversary trains the model of the round on batches of its own records, as a client would, with
and without the property (shadow updates, |D'| = 2 |D_aux| of them, a balanced set), and fits a
logistic regression by SGD (batches of 10, rate 0.001) on 80% of them; the rest tells the feature's
two normal distributions, their overlap (OVL) and the round's weight 1 - OVL. BASELINE, OLS, REG and
PROLIN share these detectors: they are made once for the sums of a recording.

What the paper does not say, and what is done: each coordinate of the updates is standardised by its
mean and deviation over the fitted ones, as the authors' published code does (raw updates are of
length 0.02, and with a rate of 0.001 nothing would be learned beyond the difference of the means);
the regression has an intercept, and makes 20 passes. Their code then keeps the pass that is best on
the testing part and adds a penalty; here the last pass is taken, and the testing part only tests.

One set of detectors, four ways to disaggregate what they say: BASELINE (section 5.1) disaggregates
whole updates by least squares and averages the per-round detectors' confidence in each; OLS, REG
and PROLIN (section 5.2) disaggregate the single linear feature (t = 1) of each round's own
detector.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from overheard.attacks.property import NEEDS, USES, Adversary, Known, adversary_of, attendance
from overheard.decoding.relaxed_likelihood import Features, relaxed_likelihood, ridge
from overheard.errors import ChooseAnotherAttack
from overheard.programs.training import Shards, local_training
from overheard.randomness import stream
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import RoundSum, Sums
from overheard.transcript.view import View

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
TOGETHER = 500
"""Shadow clients that are trained in one call."""
LEAST_SPREAD = 1e-7
"""Added to each coordinate's deviation, as in the authors' code: some never move."""
PAPER = "kerkouche2023"
PENALTY = 5.0  # the lambda of kerkouche2023's REG
ROUNDING = 1e-6
"""Of a probability: what other arithmetic makes of the same numbers."""


@dataclass(frozen=True)
class DetectorSettings:
    """``shadows``: how many simulated updates a round (0: twice the auxiliary records, as in the
    paper); ``epochs``, ``rate`` and ``batch`` of the logistic regression."""

    shadows: int = 0
    epochs: int = 20
    rate: float = 0.001
    batch: int = 10
    seed: int = 0


class Detector(NamedTuple):
    """M_r: weights (P,), intercept, and on the testing part mean and variance of its feature."""

    weights: Floats
    intercept: float
    mean_with: float
    variance_with: float
    mean_without: float
    variance_without: float
    overlap: float


@dataclass(frozen=True)
class Detected:
    """All rounds' detectors applied to all rounds' sums.

    ``answers`` (T, T): detector r (row) on sum s (column), without the intercept. ``norms`` (T,) of
    the weights. The others (T,) as in `Detector`.
    """

    answers: Array
    intercepts: Array
    mean_with: Array
    variance_with: Array
    mean_without: Array
    variance_without: Array
    overlaps: Array
    norms: Array
    participation: Array

    def features(self, rounds: int) -> Features:
        """What PROLIN, REG and OLS work with after so many rounds; an intercept per participant."""
        first, a = slice(0, rounds), self.participation[:rounds]
        own = np.diag(self.answers)[first] + a.sum(axis=1) * self.intercepts[first]
        return Features(
            own,
            1 - self.overlaps[first],
            self.mean_with[first],
            self.variance_with[first],
            self.mean_without[first],
            self.variance_without[first],
            a,
        )


def shadow_updates(
    adversary: Adversary, theta: Floats, count: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    """Updates sent - returned (count, P) of simulated clients; every other one has the property."""
    if adversary.behaviour == "free-rider":
        raise ChooseAnotherAttack(
            "kerkouche2023's detectors know membership and poisoning; for free riders use "
            "matched_filter"
        )
    has = np.arange(count) % 2 == 1
    made = np.empty((count, adversary.recipe.model.size), np.float32)
    for begin in range(0, count, TOGETHER):
        part = slice(begin, min(begin + TOGETHER, count))
        made[part] = _updates(adversary, theta, has[part], rng)
    return made, has


def _updates(
    adversary: Adversary, theta: Floats, has: NDArray[np.bool_], rng: np.random.Generator
) -> Floats:
    size, pool = adversary.shard, len(adversary.auxiliary)
    keys = rng.random((len(has), pool))
    rows = keys.argpartition(size - 1, axis=1)[:, :size]
    # those come in an order that depends on the processor, and the first one makes way below
    rows = np.take_along_axis(rows, np.take_along_axis(keys, rows, axis=1).argsort(axis=1), axis=1)
    inputs = np.array(adversary.auxiliary.inputs[rows])
    labels = np.array(adversary.auxiliary.labels[rows])
    if adversary.targets is not None:
        inputs[has, 0], labels[has, 0] = adversary.targets.inputs[0], adversary.targets.labels[0]
    climbs = has if adversary.behaviour == "ascent" else np.zeros(len(has), dtype=bool)
    made = np.empty((len(has), len(theta)), theta.dtype)
    for who, rate in ((~climbs, 1.0), (climbs, -1.0)):
        if who.any():
            made[who] = _trained(adversary, theta, Known(inputs[who], labels[who]), rate, rng)
    if adversary.behaviour == "inversion":
        made[has] *= -1
    return made


def _trained(
    adversary: Adversary, theta: Floats, known: Known, sign: float, rng: np.random.Generator
) -> Floats:
    recipe, count = adversary.recipe, len(known.labels)
    sizes = np.full(count, known.labels.shape[1], dtype=np.int64)
    data = Shards(known.inputs, known.labels, sizes)
    if recipe.sends_gradient:
        return sign * local_training(recipe, theta, data, rng)
    uphill = recipe.model_copy(update={"learning_rate": sign * recipe.learning_rate})
    return np.asarray(theta - local_training(uphill, theta, data, rng))


def train_detector(
    updates: Floats, has: NDArray[np.bool_], settings: DetectorSettings, rng: np.random.Generator
) -> Detector:
    """Logistic regression by SGD on four fifths of the updates, measured on the rest."""
    order = rng.permutation(len(has))
    fitted, kept = order[: len(has) * 4 // 5], order[len(has) * 4 // 5 :]
    mean, sd = _spread(updates, fitted)
    # weights of the raw numbers: a step on those of the standardised ones is 1 / sd^2 as long
    weights, intercept = np.zeros(updates.shape[1]), 0.0
    rates = settings.rate / (sd + LEAST_SPREAD) ** 2
    for _ in range(settings.epochs):
        shuffled = rng.permutation(fitted)
        for begin in range(0, len(shuffled), settings.batch):
            batch = shuffled[begin : begin + settings.batch]
            x = updates[batch] - mean  # a number that never moves is exactly zero now
            error = (expit(x @ weights.astype(x.dtype) + intercept) - has[batch]) / len(batch)
            weights -= rates * (error.astype(x.dtype) @ x)
            intercept -= settings.rate * float(error.sum())
    intercept -= float(mean @ weights)
    feature = updates[kept] @ weights + intercept
    with_it, without = feature[has[kept]], feature[~has[kept]]
    first, second = ((float(f.mean()), float(f.var())) for f in (with_it, without))
    shared = overlap(*first, *second)
    return Detector(weights.astype(updates.dtype), intercept, *first, *second, shared)


def _spread(updates: Floats, rows: NDArray[np.int64]) -> tuple[Floats, Array]:
    """Mean and standard deviation of each number of the updates, some of them at a time."""
    parts = [rows[at : at + TOGETHER] for at in range(0, len(rows), TOGETHER)]
    mean = np.sum([updates[part].sum(axis=0, dtype=np.float64) for part in parts], axis=0)
    mean = (mean / len(rows)).astype(updates.dtype)
    squares = [((updates[part] - mean) ** 2).sum(axis=0, dtype=np.float64) for part in parts]
    return mean, np.sqrt(np.sum(squares, axis=0) / len(rows))


def overlap(mean: float, variance: float, other_mean: float, other_variance: float) -> float:
    """OVL: the area below both of two normal densities."""
    sd, other_sd = np.sqrt(max(variance, 1e-300)), np.sqrt(max(other_variance, 1e-300))
    reach = 8 * max(sd, other_sd)
    at = np.linspace(min(mean, other_mean) - reach, max(mean, other_mean) + reach, 20_001)
    lower = np.minimum(norm.pdf(at, mean, sd), norm.pdf(at, other_mean, other_sd))
    return float(np.clip(np.trapezoid(lower, at), 0.0, 1.0))


def detect(
    adversary: Adversary,
    heard: Iterable[RoundSum],
    participation: Array,
    settings: DetectorSettings,
) -> Detected:
    """Train each round's detector and apply it to the sums of all rounds."""
    count = settings.shadows or 2 * len(adversary.auxiliary)
    made: list[Detector] = []
    sums: list[Floats] = []
    for one in heard:
        rng = stream(settings.seed, "detectors", one.number)
        updates, has = shadow_updates(adversary, one.sent, count, rng)
        made.append(train_detector(updates, has, settings, rng))
        sums.append(one.total.astype(np.float32))
    weights = np.array([d.weights for d in made])
    columns = {name: np.array([getattr(d, name) for d in made]) for name in Detector._fields[2:]}
    return Detected(
        np.asarray(weights @ np.array(sums).T, dtype=np.float64),
        np.array([d.intercept for d in made]),
        columns["mean_with"],
        columns["variance_with"],
        columns["mean_without"],
        columns["variance_without"],
        columns["overlap"],
        np.linalg.norm(weights, axis=1).astype(np.float64),
        participation[: len(made)],
    )


_LAST: list[tuple[weakref.ref[Sums], tuple[object, ...], Detected]] = []


def detected(view: View, settings: DetectorSettings) -> Detected:
    """The detectors of a view's sums; the four methods of the paper share those of the last view.

    Their randomness is the settings' own seed, so that it does not matter which method asks first.
    """
    adversary = adversary_of(view)  # before the last ones are looked for: it is needed either way
    sums, key = view.know(Sums), (view.target.key, len(view.know(Sums)), settings)
    for held, known, found in _LAST:
        if held() is sums and known == key:
            return found
    found = detect(adversary, sums, sums.participation, settings)
    _LAST[:] = [(weakref.ref(sums), key, found)]
    return found


def updates_told_apart(told: Detected, rounds: int) -> Array:
    """BASELINE: mean over the detectors of their confidence in each client's mean update (N,).

    The mean update of a client is row i of pinv(A) B; a detector's answer to it is the same
    combination of its answers to the sums.
    """
    inverse = np.linalg.pinv(told.participation[:rounds])
    answers = told.answers[:rounds, :rounds] @ inverse.T + told.intercepts[:rounds, None]
    return np.asarray(expit(answers).mean(axis=0))


def least_squares(told: Detected, rounds: int) -> Array:
    """OLS: the sigmoid of each client's expected feature (N,), all rounds weighing the same."""
    return np.asarray(expit(ridge(told.features(rounds), 0.0, weighted=False)))


def ridge_regression(told: Detected, rounds: int) -> Array:
    """REG: rounds weigh 1 - OVL, and lambda is 5."""
    return np.asarray(expit(ridge(told.features(rounds), PENALTY)))


def prolin(told: Detected, rounds: int, steps: int = 3000, rate: float = 0.01) -> Array:
    """PROLIN: the relaxed most likely assignment (N,)."""
    features = told.features(rounds)
    return relaxed_likelihood(features, ridge(features, PENALTY), steps, rate)


def above_half(probabilities: Array) -> NDArray[np.bool_]:
    """Who is accused. One of whom nothing was heard stands at one half, but for rounding."""
    return probabilities > 0.5 + ROUNDING


@dataclass(frozen=True)
class OnDetectors(ABC):
    """What the paper's four attacks share: detectors of all rounds, and what is made of them."""

    paper: ClassVar[str] = PAPER
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    uses: ClassVar[frozenset[type[Any]]] = USES
    slow: ClassVar[bool] = True

    detectors: DetectorSettings = field(default_factory=DetectorSettings)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        told = detected(view, self.detectors)
        probabilities = self.weigh(told)
        details = {"rounds": len(told.overlaps), "mean_overlap": float(told.overlaps.mean())}
        details |= attendance(told.participation)
        chosen = above_half(probabilities)
        return ClientProperty(probabilities, chosen, view.know(Sums).clients, details)

    @abstractmethod
    def weigh(self, told: Detected) -> Array:
        """A probability for each client from the features of all rounds."""


@dataclass(frozen=True)
class GradientDisaggregation(OnDetectors):
    """Least squares on whole updates gives each client's mean update, to which the detectors of all
    rounds are applied and their confidence averaged (the paper's BASELINE)."""

    name: ClassVar[str] = "gradient_disaggregation"

    def weigh(self, told: Detected) -> Array:
        return updates_told_apart(told, len(told.overlaps))


@dataclass(frozen=True)
class Ols(OnDetectors):
    """Least squares on each round's linear feature; a client is positive if the sigmoid of its
    expected feature is above one half (the paper's OLS)."""

    name: ClassVar[str] = "ols"

    def weigh(self, told: Detected) -> Array:
        return least_squares(told, len(told.overlaps))


@dataclass(frozen=True)
class Ridge(OnDetectors):
    """Ridge regression on each round's linear feature, rounds weighing one minus the overlap of the
    detector's two distributions, with a penalty of 5 (the paper's REG)."""

    name: ClassVar[str] = "ridge"

    def weigh(self, told: Detected) -> Array:
        return ridge_regression(told, len(told.overlaps))


@dataclass(frozen=True)
class Prolin(OnDetectors):
    """Searches the clients' properties and features that are most likely under the detectors'
    feature distributions and add up to what was heard (the paper's PROLIN, one linear feature).

    Settings: ``steps`` and ``rate`` of the search.
    """

    name: ClassVar[str] = "prolin"

    steps: int = 3000
    rate: float = 0.01

    def weigh(self, told: Detected) -> Array:
        return prolin(told, len(told.overlaps), self.steps, self.rate)
