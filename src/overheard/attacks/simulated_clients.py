"""What is an answer worth? The client is simulated with known secrets and decoded in the same way.

Half of the secrets are drawn from the prior (one drawn from the answer would flatter the decoder:
it is where it likes to go), half from between prior and answer. Updates fit badly only if they fit
worse than those of simulated clients, whose recipe is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.attacks.client import Client
from overheard.decoding.calibration import OVERCONFIDENT, Calibration, calibrate
from overheard.programs.recipe import Recipe
from overheard.programs.training import Shards, local_training
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

CLIENTS = 4
"""Simulated clients of an answer: from the prior and from between prior and answer, in turn."""
_WORSE = 5.0  # times the worst simulated client's misfit that is still called a good fit


class Attempt(NamedTuple):
    """Probabilities (m, K), and the noise's variance in units of what was expected (about 1 when
    all is well)."""

    probabilities: Array
    misfit: float = 1.0


class Judged(NamedTuple):
    """What answers about simulated clients are worth, the worst of their misfits, and a flag: was
    the decoder far surer than right about one of them? However little of its evidence is left, it
    may still choose wrong values."""

    calibration: Calibration
    misfit: float
    flag: str

    def fits(self, misfit: float, good: float) -> bool:
        """Is this misfit good in itself, or no worse than where the recipe is right?"""
        return misfit <= max(good, _WORSE * self.misfit)


def judged(
    play: Callable[[Array], tuple[Link, Indices]],
    decode: Callable[[Link], Attempt],
    answer: Array,
    prior: Array,
) -> Judged:
    """Try a decoder on secrets that are known.

    play: draws a secret (m,) from probabilities (m, K) and trains on it; decode: as the answer was
    decoded; answer and prior: (m, K).
    """
    played = [play((answer + prior) / 2 if n % 2 else prior) for n in range(CLIENTS)]
    found, secrets = [decode(link) for link, _ in played], [secret for _, secret in played]
    answers = [one.probabilities for one in found]
    flag = OVERCONFIDENT if any(map(_surer_than_right, answers, secrets)) else ""
    worst = max(one.misfit for one in found)
    return Judged(calibrate(answers, secrets, prior), worst, flag)


def _surer_than_right(probabilities: Array, secret: Indices) -> bool:
    right, n = float((probabilities.argmax(axis=1) == secret).mean()), len(secret)
    share = (right * n + 0.5) / (n + 1)  # half a record either way
    error = np.sqrt(share * (1 - share) / n)
    return bool(probabilities.max(axis=1).mean() - right > max(Calibration.most, 3 * error))


def player(client: Client, rng: np.random.Generator) -> Callable[[Array], tuple[Link, Indices]]:
    """What draws a secret and trains on it (see `judged`), at the models that were sent."""
    link, recipe, candidates = client.messages, client.recipe, client.encoded
    # private steps put their noise on while they train
    noise = 0.0 if recipe.private else link.noise_sd

    def play(probabilities: Array) -> tuple[Link, Indices]:
        if candidates.present.all():  # secrets go with other columns, and so do these
            chosen = drawn(probabilities, candidates.inputs[0], rng)[None]
        else:
            chosen = candidates.drawn(probabilities, 1, rng)
        data = candidates.shards(chosen, link.sent.dtype)
        return retrained(link, recipe, data, noise, rng), chosen[0]

    return play


def drawn(probabilities: Array, columns: Array, rng: np.random.Generator) -> Indices:
    """A candidate (m,) of each record, as probable as (m, K) says, that goes with its public
    columns (m, d): which way and how closely is drawn too.

    Secrets drawn record by record would go with nothing, which people's secrets seldom do, and
    what many records have in common does not average out of an update.
    """
    apart = columns - columns.mean(axis=0)
    apart = apart / np.maximum(apart.std(axis=0), 1e-12)
    score = apart @ rng.normal(size=columns.shape[1])
    score = score / max(float(score.std()), 1e-12)
    close = rng.random()
    latent = close * score + np.sqrt(1 - close**2) * rng.normal(size=len(columns))
    above = (norm.cdf(latent)[:, None] > np.cumsum(probabilities, axis=1)).sum(axis=1)
    return np.asarray(np.minimum(above, probabilities.shape[1] - 1), dtype=np.int64)


def retrained(
    link: Link, recipe: Recipe, data: Shards, noise: float, rng: np.random.Generator
) -> Link:
    """The link as it would be if the client trained on these records, with so much noise put on
    each coordinate of an update after its training."""
    played = np.stack([local_training(recipe, sent, data, rng)[0] for sent in link.sent])
    if noise:
        played = (played + rng.normal(0.0, noise, played.shape)).astype(played.dtype)
    if link.sparse:  # what the client did not send is not heard of simulated ones either
        played = np.where(link.returned == link.sent, link.sent, played)
    return replace(link, returned=played)
