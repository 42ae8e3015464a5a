"""How much is the decoder's certainty worth here? It is tried on updates whose secret is known.

Where the model moved while the client trained, what a decoder takes for noise is a model of its
own, and it may be too sure. So the federation is rehearsed: a secret is drawn from the prior (one
drawn from the answer would flatter the decoder: it is where it likes to go), the client's training
is replayed with it at the models that were sent, and the replayed updates are decoded in the same
way. If the decoder is surer than it is right there, its answer is tempered
towards the prior until the rehearsal's would have been as sure as right. Nothing here sees the
truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import only, spread
from overheard.learning.recipe import Recipe
from overheard.learning.training import local_training, shards
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]

OVERSURE = "oversure: in a rehearsal the decoder was surer than it was right; tempered"
_TOLERATED = 0.03  # confidence minus accuracy in the rehearsal that is left alone
_FLAGGED = 0.1


@dataclass(frozen=True)
class Rehearsal:
    """Share right and mean certainty in the rehearsal, and what the answer is tempered with."""

    accuracy: float
    confidence: float
    power: float

    @property
    def flag(self) -> str:
        return OVERSURE if self.confidence - self.accuracy > _FLAGGED else ""


def rehearse(
    decode: Callable[[Link], Array],
    link: Link,
    recipe: Recipe,
    candidates: Array,
    labels: Array,
    prior: Array,
    added_noise: float,
    rounds: int,
    rng: np.random.Generator,
) -> Rehearsal:
    """Try the decoder on a secret drawn from the prior (m, K).

    candidates: (K, m, d); labels: (m,); ``added_noise``: what the client puts on each coordinate
    of an update after its training.
    """
    heard = only(link, spread(len(link), rounds))
    people, values = prior.shape
    drawn = (rng.random((people, 1)) > np.cumsum(prior, axis=1)).sum(axis=1)
    drawn = np.minimum(drawn, values - 1)
    inputs = candidates[drawn, np.arange(people)]
    data = shards([inputs], [labels], str(heard.sent.dtype))
    played = np.stack([local_training(recipe, sent, data, rng)[0] for sent in heard.sent])
    if added_noise:
        noise = rng.normal(0.0, added_noise, played.shape)
        played = (played + noise).astype(played.dtype)
    found = decode(replace(heard, returned=played))
    right = float((found.argmax(axis=1) == drawn).mean())
    return Rehearsal(right, float(found.max(axis=1).mean()), _power(found, prior, right))


def tempered(probabilities: Array, prior: Array, power: float) -> Array:
    """The probabilities with their evidence, beyond the prior, taken to a power of at most one."""
    with np.errstate(divide="ignore"):
        evidence = np.log(np.maximum(probabilities, 1e-300)) - np.log(prior)
        logits = np.where(prior > 0, np.log(prior) + power * evidence, -np.inf)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _power(found: Array, prior: Array, right: float) -> float:
    """The largest power at which the rehearsal's answer is no surer than it is right."""
    goal = right + _TOLERATED
    if float(found.max(axis=1).mean()) <= goal:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        sure = float(tempered(found, prior, middle).max(axis=1).mean())
        low, high = (middle, high) if sure <= goal else (low, middle)
    return low
