"""The membership game that differential privacy is about: is one record there or not?

Everything else is known: the recipe, every other record, every model that was sent. A world without
the record has a record in its place whose gradient is zero, because how many records a client holds
is no secret. In each of many independent games the client trains as in the simulator, its update
goes through the defences, and the listener scores what it heard by the likelihood ratio of the two
worlds, as far as it can be written down. Games are played side by side, as clients of one batch.

How much epsilon does a game show? A lower bound, from what a test scored in both worlds.

(epsilon, delta)-differential privacy says of every test, at every threshold, that

    TPR <= e^epsilon FPR + delta    and    TNR <= e^epsilon FNR + delta

(Kairouz, Oh and Viswanath 2015). Turned around, scores of many independent games with and without
the record prove that epsilon is at least log((TPR - delta) / FPR). Both rates are replaced by exact
one-sided Clopper-Pearson bounds. Thresholds are chosen on games that are not counted afterwards,
and every threshold tried is paid for (Bonferroni), so that a mechanism that keeps its promise is
accused with a chance of at most 1 - ``confidence``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import beta, binom

from overheard.federation.defences.accounting import quiet
from overheard.federation.defences.contract import Chain, RoundContext
from overheard.programs.networks import network
from overheard.programs.recipe import Dense, PrivateSteps, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.programs.training import Shards, local_training, sampling_rate

Array = NDArray[np.float64]
RECORDS = 6
"""Of a client, unless a game says otherwise."""


@dataclass(frozen=True)
class Game:
    """A client's records, inputs (m, d) and labels (m,), of which the first is in question; the
    recipe that it follows, the model (P,) that it is first sent, and over how many rounds it is
    listened to. It is then sent what it returned. What stands for its absence, inputs and
    label of zero, has gradient zero: the network has no biases, and squared error."""

    recipe: Recipe
    start: Array
    inputs: Array
    labels: Array
    rounds: int = 1

    @property
    def records(self) -> int:
        return len(self.labels)

    def shards(self, trials: int, present: bool) -> Shards:
        """The client's records in so many games."""
        inputs, labels = self.inputs.copy(), self.labels.copy()
        if not present:
            inputs[0], labels[0] = 0.0, 0.0
        return Shards(
            np.broadcast_to(inputs, (trials, *inputs.shape)),
            np.broadcast_to(labels, (trials, *labels.shape)),
            np.full(trials, self.records),
        )


def exposed(private: PrivateSteps, rounds: int = 1, **training: Any) -> Game:
    """The easiest game for the listener: least squares with an outlier whose gradient has always
    the same direction, in which no other record has a part, and is always clipped."""
    rng = np.random.default_rng(0)
    inputs = np.column_stack([np.zeros(RECORDS), rng.normal(size=(RECORDS, 2))])
    inputs[0] = 1.0, 0.0, 0.0
    labels = rng.normal(size=RECORDS)
    labels[0] = 1e6
    recipe = _recipe(Dense(inputs=3, bias=False), private, training)
    return Game(recipe, np.zeros(3), inputs, labels, rounds)


def ordinary(private: PrivateSteps, rounds: int = 1, **training: Any) -> Game:
    """The same question of one of several random records, and a network."""
    rng = np.random.default_rng(1)
    model = Dense(inputs=3, hidden=(4,), bias=False, activation="tanh")
    start = rng.normal(size=model.size)
    inputs, labels = rng.normal(size=(RECORDS, 3)), 3 * rng.normal(size=RECORDS)
    return Game(_recipe(model, private, training), start, inputs, labels, rounds)


def opposed(rounds: int = 1, **training: Any) -> Game:
    """Two records that pull in opposite directions, the one in question three times as hard: of a
    clipped update no two worlds are farther apart."""
    inputs = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    recipe = _recipe(Dense(inputs=3, bias=False), None, training)
    return Game(recipe, np.zeros(3), inputs, np.array([3e6, -1e6]), rounds)


def play(game: Game, trials: int, defence: Chain, rng: np.random.Generator) -> Iterator[Array]:
    """Scores (trials,) of games without the record, then of as many with it."""
    for present in (False, True):
        data = game.shards(trials, present)
        sent = np.broadcast_to(game.start, (trials, len(game.start)))
        scores = np.zeros(trials)
        memory: dict[Any, Any] = {}
        for number in range(game.rounds):
            context = RoundContext(number, np.arange(trials), rng, memory)
            gradient = game.recipe.algorithm == "fedsgd"
            returned = np.asarray(local_training(game.recipe, sent, data, rng), np.float64)
            bare = returned if gradient else sent - returned
            update = defence.upload(bare, context)
            if game.recipe.private is not None:
                scores += _score_of_steps(game, sent, update)
            else:
                scores += _score_of_updates(game, sent, update, defence)
            sent = sent - (game.recipe.learning_rate if gradient else 1.0) * update
        yield scores


def _score_of_steps(game: Game, sent: Array, update: Array) -> Array:
    """Private steps: how often was the record drawn, given the update along its clipped gradient?

    After T steps that part of the update, in units of one step's noise, is N(k mu, T) where k of
    them drew the record, k ~ Binomial(T, q); exact while the gradients stay as they are.
    """
    recipe, m = game.recipe, game.records
    private = recipe.private
    assert private is not None
    steps, rate = recipe.local_steps(m), sampling_rate(recipe, m)
    data = game.shards(len(sent), True)
    rows = network(recipe).rows(sent, data.inputs, data.labels).explicit()
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    rows = rows * np.minimum(1.0, private.clip / np.maximum(norms, 1e-300))
    target, others = rows[:, 0], rows[:, 1:].sum(axis=1)
    length = np.linalg.norm(target, axis=1)
    towards = target / np.maximum(length, 1e-300)[:, None]
    scale = 1.0 if recipe.algorithm == "fedsgd" else recipe.learning_rate
    rest = update / scale - steps * others / m
    noise = max(private.noise * private.clip, 1e-12)
    observed = (rest * towards).sum(axis=1) * rate * m / noise
    drawn = np.arange(steps + 1)
    shift = drawn * (length / noise)[:, None]
    ratios = (shift * observed[:, None] - shift**2 / 2) / steps
    return np.asarray(logsumexp(ratios + binom.logpmf(drawn, steps, rate), axis=1))


def _score_of_updates(game: Game, sent: Array, update: Array, defence: Chain) -> Array:
    """Noise on clipped updates of full batches: the log-likelihood ratio of the two updates."""
    norm = min((c.clip_norm for c in defence.claims if c.clip_norm is not None), default=np.inf)
    variance = sum(c.noise_sd**2 for c in defence.claims)
    worlds = []
    for present in (False, True):
        data, rng = game.shards(len(sent), present), np.random.default_rng(0)
        returned = local_training(game.recipe, sent, data, rng)
        bare = returned if game.recipe.algorithm == "fedsgd" else sent - returned
        length = np.linalg.norm(bare, axis=1, keepdims=True)
        worlds.append(bare * np.minimum(1.0, norm / np.maximum(length, 1e-300)))
    apart, middle = worlds[1] - worlds[0], (worlds[0] + worlds[1]) / 2
    return np.asarray(((update - middle) * apart).sum(axis=1) / max(variance, 1e-300))


def _recipe(model: Dense, private: PrivateSteps | None, training: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(
        {
            "model": model,
            "loss": "squared_error",
            "encoding": Encoding(blocks=tuple(Scaled(column=c) for c in "abc")),
            "target": Target(column="y"),
            "learning_rate": 0.1,
            "precision": "float64",
            "private": private,
            **training,
        }
    )


# ------------------------------------------------------------------------ how much epsilon is shown

TAILS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
"""Shares of the games of either world beyond a threshold that is tried."""
FOR_THRESHOLDS = 0.2
"""Share of the games that serve to choose the thresholds."""


def epsilon_shown(absent: Array, present: Array, delta: float, confidence: float = 0.9999) -> float:
    """The epsilon that scores of games without and with the record prove (larger: present); no
    smaller one is compatible with them. 0: nothing is shown."""
    chosen, without = _parted(absent)
    also, with_it = _parted(present)
    tails = np.array(TAILS)
    thresholds = np.unique(
        np.concatenate([np.quantile(chosen, 1 - tails), np.quantile(also, tails)])
    )
    chance = (1 - confidence) / (4 * len(thresholds))
    best = 0.0
    for threshold in thresholds:
        for right, wrong in (
            (with_it > threshold, without > threshold),
            (without <= threshold, with_it <= threshold),
        ):
            least = at_least(int(right.sum()), len(right), chance)
            most = at_most(int(wrong.sum()), len(wrong), chance)
            if least > delta:
                best = max(best, log((least - delta) / most))
    return best


def at_least(hits: int, games: int, chance: float) -> float:
    """Clopper-Pearson: a rate is below this with at most this chance."""
    return float(beta.ppf(chance, hits, games - hits + 1)) if hits else 0.0


def at_most(hits: int, games: int, chance: float) -> float:
    """Clopper-Pearson: a rate is above this with at most this chance."""
    return float(beta.ppf(1 - chance, hits + 1, games - hits)) if hits < games else 1.0


def _parted(scores: Array) -> tuple[Array, Array]:
    """Games for choosing thresholds, and games that count."""
    first = int(FOR_THRESHOLDS * len(scores))
    return scores[:first], scores[first:]


def tight_sampled_gaussian(noise: float, rate: float, steps: int, delta: float) -> float:
    """What `accounting.sampled_gaussian` counts, by numerical composition of privacy losses: close
    to the smallest epsilon that is true, and slow for many steps."""
    import dp_accounting
    from dp_accounting import pld

    step = dp_accounting.GaussianDpEvent(noise)
    if rate < 1:
        step = dp_accounting.PoissonSampledDpEvent(rate, step)
    with quiet():
        return float(pld.PLDAccountant().compose(step, steps).get_epsilon(delta))
