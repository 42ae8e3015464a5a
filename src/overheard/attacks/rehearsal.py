"""How much is a decoder's certainty worth here? It is tried on updates whose secret is known.

Where the model moved while the client trained, or where equations are fewer than unknowns, what a
decoder takes for noise is a model of its own, and it may be too sure. So the client is rehearsed,
several times: a secret is drawn, the client's training is replayed with it at the models that were
sent, and the replayed updates are decoded in the same way. Half of the secrets are drawn from the
prior (one drawn from the answer would flatter the decoder: it is where it likes to go), half from
between prior and answer, because a secret that goes with the public columns is another problem
than one that does not. Three things follow, none of which sees the truth:

* evidence is tempered, towards the prior, until the worst rehearsal would have been as sure as
  right, and until the answer is no surer than rehearsals were right on the whole;
* a decoder that was far surer than right in a rehearsal is flagged;
* updates fit badly only if they fit worse than those of rehearsals, whose recipe is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import only, spread
from overheard.decoding.tempering import tempered
from overheard.programs.recipe import Recipe
from overheard.programs.training import local_training, shards
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

DRAWS = 3
"""Rehearsals of an answer: from the prior and from between prior and answer, in turn."""

OVERSURE = "oversure: in rehearsals with known secrets the decoder was surer than it was right"
UNLIKE = (
    "poor fit: updates of rehearsals with the declared recipe are explained far better; recipe, "
    "model or records may be others"
)
_TOLERATED = 0.02  # confidence minus accuracy in a rehearsal that is left alone
_FLAGGED = 0.1  # the same from which the answer is flagged
_BEYOND = 2.0  # standard errors of a share that chance may explain
_WORSE = 5.0  # times the worst rehearsal's misfit that is still called a good fit


@dataclass(frozen=True)
class Attempt:
    """Probabilities (m, K), and the noise's variance in units of what was expected (about 1 when
    all is well)."""

    probabilities: Array
    misfit: float = 1.0


@dataclass(frozen=True)
class Tried:
    """One rehearsal: the secret drawn (m,) and what the decoder made of it."""

    secret: Indices
    found: Attempt

    @property
    def accuracy(self) -> float:
        return float((self.found.probabilities.argmax(axis=1) == self.secret).mean())

    @property
    def confidence(self) -> float:
        return _sure(self.found.probabilities)

    @property
    def allowed(self) -> float:
        """Mean certainty that this rehearsal's share of right choices bears out."""
        share = self.accuracy
        return share + max(_TOLERATED, _BEYOND * _error(share, len(self.secret)))

    def power(self, prior: Array) -> float:
        """The largest power at which this answer is no surer than it is right."""
        return _calmed(self.found.probabilities, prior, self.allowed)


@dataclass(frozen=True)
class Rehearsal:
    """All rehearsals of one client; prior: (m, K)."""

    tries: tuple[Tried, ...]
    prior: Array

    @property
    def accuracy(self) -> float:
        return float(np.mean([one.accuracy for one in self.tries]))

    @property
    def confidence(self) -> float:
        return float(np.mean([one.confidence for one in self.tries]))

    @property
    def misfit(self) -> float:
        """Of the worst."""
        return max(one.found.misfit for one in self.tries)

    @property
    def flag(self) -> str:
        """Was the decoder far surer than right in a rehearsal? However little of its evidence
        tempering leaves, that may still choose wrong values."""
        gaps = [one.confidence - one.accuracy for one in self.tries]
        records = [len(one.secret) for one in self.tries]
        errors = [_error(one.accuracy, n) for one, n in zip(self.tries, records, strict=True)]
        worst = any(g > max(_FLAGGED, 3 * e) for g, e in zip(gaps, errors, strict=True))
        return OVERSURE if worst else ""

    def tempered(self, probabilities: Array) -> tuple[Array, float]:
        """An answer (m, K) with no more certainty than rehearsals bear out, and the power."""
        power = min(one.power(self.prior) for one in self.tries)
        most = self.accuracy + _TOLERATED
        calm = tempered(probabilities, self.prior, power)
        if _sure(calm) > most:
            power = min(power, _calmed(probabilities, self.prior, most))
            calm = tempered(probabilities, self.prior, power)
        return calm, power

    def fits(self, misfit: float, good: float) -> bool:
        """Is this misfit good in itself, or no worse than where the recipe is right?"""
        return misfit <= max(good, _WORSE * self.misfit)


def rehearse(
    play: Callable[[Array], tuple[Link, Indices]],
    decode: Callable[[Link], Attempt],
    answer: Array,
    prior: Array,
    draws: int = DRAWS,
) -> Rehearsal:
    """Try a decoder on secrets that are known.

    play: draws a secret (m,) from probabilities (m, K) and trains on it; decode: as the answer was
    decoded; answer and prior: (m, K).
    """
    between = (answer + prior) / 2
    tries = []
    for number in range(draws):
        link, secret = play(between if number % 2 else prior)
        tries.append(Tried(secret, decode(link)))
    return Rehearsal(tuple(tries), prior)


def retrained(
    link: Link, recipe: Recipe, inputs: Array, labels: Array, noise: float, rng: np.random.Generator
) -> Link:
    """The link as it would be if the client trained on these records.

    inputs: (m, d); labels: (m,); ``noise``: what the client puts on each coordinate of an update
    after its training.
    """
    data = shards([inputs], [labels], str(link.sent.dtype))
    played = np.stack([local_training(recipe, sent, data, rng)[0] for sent in link.sent])
    if noise:
        played = (played + rng.normal(0.0, noise, played.shape)).astype(played.dtype)
    return replace(link, returned=played)


def few_rounds(link: Link, rounds: int) -> Link:
    """The rounds that a decoder of so many would use."""
    return only(link, spread(len(link), rounds))


def _calmed(probabilities: Array, prior: Array, most: float) -> float:
    """The largest power at which the mean certainty is at most this."""
    if _sure(probabilities) <= most:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        sure = _sure(tempered(probabilities, prior, middle))
        low, high = (middle, high) if sure <= most else (low, middle)
    return low


def _sure(probabilities: Array) -> float:
    return float(probabilities.max(axis=1).mean())


def _error(share: float, records: int) -> float:
    """Standard error of a share, with half a record either way."""
    share = (share * records + 0.5) / (records + 1)
    return float(np.sqrt(share * (1 - share) / records))
