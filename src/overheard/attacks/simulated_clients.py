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

from overheard.attacks.client import Client
from overheard.decoding.calibration import OVERCONFIDENT, Calibration, calibrate
from overheard.programs.training import local_training
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

CLIENTS = 4
"""Simulated clients of an answer: from the prior and from between prior and answer, in turn."""
_WORSE = 5.0  # times the worst simulated client's misfit that is still called a good fit


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
    decode: Callable[[Link], tuple[Array, float]],
    answer: Array,
    prior: Array,
) -> Judged:
    """Try a decoder on secrets that are known.

    play: draws a secret (m,) from probabilities (m, K) and trains on it; decode: as the answer was
    decoded, to probabilities (m, K) and the noise's variance in units of what was expected (about 1
    when all is well); answer and prior: (m, K).
    """
    played = [play((answer + prior) / 2 if n % 2 else prior) for n in range(CLIENTS)]
    links, secrets = zip(*played, strict=True)
    answers, misfits = zip(*map(decode, links), strict=True)
    flag = OVERCONFIDENT if any(map(_surer_than_right, answers, secrets)) else ""
    return Judged(calibrate(answers, secrets, prior), max(misfits), flag)


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
        chosen = candidates.drawn(probabilities, 1, rng)
        data = candidates.shards(chosen, link.sent.dtype)
        played = np.stack([local_training(recipe, sent, data, rng)[0] for sent in link.sent])
        if noise:
            played = (played + rng.normal(0.0, noise, played.shape)).astype(played.dtype)
        return replace(link, returned=played), chosen[0]

    return play
