"""How far is an answer to be believed? Simulated clients, whose secrets are known, say it.

A decoder takes for noise what a linearisation misses, or solves for more unknowns than it has
equations, and may be overconfident. So clients with known secrets are simulated and
decoded in the same way. Their answers' evidence (what they say beyond the prior) is taken to the
power under which those secrets are likeliest, and so is that of the answer: temperature scaling
(Guo et al. 2017) on simulated clients. Nothing here sees the truth.

Half of the simulated secrets are drawn from the prior (one drawn from the answer would flatter the
decoder: it is where it likes to go), half from between prior and answer (`beliefs`). Updates fit
badly only if they fit worse than those of simulated clients, whose recipe is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

OVERCONFIDENT = "overconfident: simulated clients of this recipe are decoded right less often"


@dataclass(frozen=True)
class Calibration:
    """What such answers are worth: the power of their evidence, the share of simulated clients'
    records that are decoded right and its standard error, their mean confidence and mean
    log-likelihood at that power. overconfident: was the decoder far more certain than right about
    one of them? However little of its evidence remains, it may still choose wrong values. most:
    confidence beyond that accuracy from which an answer is flagged."""

    temperature: float
    accuracy: float
    confidence: float
    log_likelihood: float
    prior: Array
    error: float = 0.0
    overconfident: bool = False
    most: float = 0.1

    def applied(self, probabilities: Array) -> Array:
        """An answer (n, K) with the evidence that it deserves."""
        return tempered(probabilities, self.prior, self.temperature)

    def flag(self, probabilities: Array) -> str:
        """Is the answer far more certain than simulated clients are decoded right, beyond
        chance?"""
        confidence = float(probabilities.max(axis=1).mean())
        return OVERCONFIDENT if confidence > self.accuracy + 2 * self.error + self.most else ""

    @property
    def notes(self) -> dict[str, float | int | str]:
        return {
            "temperature": self.temperature,
            "simulated_accuracy": self.accuracy,
            "simulated_confidence": self.confidence,
        }


def calibrate(
    answers: Sequence[Array], secrets: Sequence[Any], prior: Array, alike: float = 1e-3
) -> Calibration:
    """From the answers (n, K) about simulated clients and their secrets (n,).

    Powers of the evidence in steps of a twentieth are tried (a simulated client or two do not tell
    neighbours apart) and the one is taken under which the secrets are likeliest; of those that are
    as likely, up to ``alike`` nats of all records together (answers that are certain at any power
    are), the largest.
    """
    result, truth = np.asarray(answers), np.asarray(secrets)[..., None]

    def likelihood(power: float) -> Array:
        there = np.take_along_axis(tempered(result, prior, power), truth, axis=2)
        return np.asarray(np.log(np.maximum(there, 1e-12)))

    powers = np.linspace(0.1, 1.0, 19)
    score = np.array([likelihood(power).sum() for power in powers])
    temperature = float(powers[score >= score.max() - alike][-1])
    each = tempered(result, prior, temperature)
    right = each.argmax(axis=2) == truth[..., 0]
    return Calibration(
        temperature,
        float(right.mean()),
        float(each.max(axis=2).mean()),
        float(likelihood(temperature).mean()),
        prior,
        float(right.std() / np.sqrt(right.size)),
        any(map(_surer_than_right, result, truth[..., 0])),
    )


def beliefs(answer: Array, prior: Array, clients: int = 4) -> list[Array]:
    """Probabilities (n, K) from which the secrets of so many simulated clients are drawn."""
    return [(answer + prior) / 2 if number % 2 else prior for number in range(clients)]


def fits_as_well(chi2: float, simulated: Sequence[float], good: float, worse: float = 5.0) -> bool:
    """Is this reduced chi-square good in itself, or at most ``worse`` times what it is of simulated
    clients, whose recipe is right?"""
    return chi2 <= max(good, worse * max(simulated))


def tempered(probabilities: Array, prior: Array, power: float) -> Array:
    """The probabilities with their evidence, beyond the prior, taken to a power of at most one."""
    if power >= 1:
        return probabilities
    with np.errstate(divide="ignore"):
        evidence = np.log(np.maximum(probabilities, 1e-300)) - np.log(prior)
        logits = np.where(prior > 0, np.log(prior) + power * evidence, -np.inf)
    return np.asarray(special.softmax(logits, axis=-1))


def _surer_than_right(probabilities: Array, secret: Any) -> bool:
    right, n = float((probabilities.argmax(axis=1) == secret).mean()), len(secret)
    share = (right * n + 0.5) / (n + 1)  # half a record either way
    error = np.sqrt(share * (1 - share) / n)
    return bool(probabilities.max(axis=1).mean() - right > max(Calibration.most, 3 * error))
