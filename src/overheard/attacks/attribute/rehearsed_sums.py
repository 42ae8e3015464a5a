"""Which values do sums of several local steps tell, when all gradients are taken at one model?

What that leaves out (models that move and part, the order of batches) hardly depends on the secret:
federations are simulated with secrets drawn beforehand. What their sums are beyond the equations is
taken off on the average, and what varies is noise; the last of them are decoded like the message,
without their own part in the average, and say how far such answers are to be believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.dense_measurement import summed_measurement
from overheard.attacks.deviations import CLIENTS
from overheard.attacks.front import refuse_many
from overheard.decoding.counts import averaged
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.noisy import noisy_posterior
from overheard.decoding.tempering import temperature_of, tempered
from overheard.programs.private import client_rows
from overheard.programs.recipe import Recipe
from overheard.programs.training import local_training, shards

Array = NDArray[np.float64]
REHEARSED = 12
"""Simulated federations, whose mean is then known to a third of their spread; the first of them are
decoded: hundreds of records, which tell the temperature to a tenth."""


@dataclass(frozen=True)
class Summed:
    """Rounds (T, P): models sent, those at which gradients are taken, sums, and their noise; of
    records: inputs (K, n, d), labels (n,), owners (n,), prior (n, K), ties (n,) and the weights
    (T, n) of their gradients, 0 where the owner took no part."""

    recipe: Recipe
    sent: NDArray[Any]
    thetas: Array
    totals: Array
    noise: Array
    candidates: Array
    labels: Array
    weights: Array
    owner: NDArray[np.intp]
    prior: Array
    ties: NDArray[np.intp]

    def found(self, totals: Array, noise: Array) -> Posterior:
        """The values, as these sums tell them."""
        known = (self.candidates, self.labels, self.weights)
        measured = summed_measurement(self.recipe, self.thetas, totals, noise, *known)
        return averaged(noisy_posterior(measured, self.prior)[0], self.ties)

    def played(self, secret: NDArray[np.intp], rng: np.random.Generator) -> tuple[Array, Array]:
        """Sums (T, P) of clients with this secret, and what the equations make of it."""
        inputs = self.candidates[secret, np.arange(len(secret))]
        sums, equations = [], []
        for sent, theta, weights in zip(self.sent, self.thetas, self.weights, strict=True):
            rows = [np.flatnonzero(self.owner == c) for c in np.unique(self.owner[weights > 0])]
            parts = [inputs[own] for own in rows], [self.labels[own] for own in rows]
            ends = local_training(self.recipe, sent, shards(*parts, str(sent.dtype)), rng)
            sums.append((sent - ends.astype(np.float64)).sum(axis=0))
            gradients = client_rows(self.recipe, theta, inputs, self.labels)
            equations.append(gradients.scaled(weights).total())
        return np.array(sums), np.array(equations)


def decode_rehearsed(
    summed: Summed, rng: np.random.Generator
) -> tuple[Posterior, dict[str, float]]:
    """The answer, believed as far as those about simulated federations deserve it. Federations that
    are drawn from between what was known before and a first answer are more like the real one."""
    decodings = 2 * (CLIENTS + 1)
    remedy = f"each counts {decodings} times, as often as it is decoded; audit a smaller federation"
    refuse_many(decodings * (summed.prior.size - len(summed.prior)), remedy)
    first, _ = _pass(summed, summed.prior, rng)
    return _pass(summed, (first.probabilities + summed.prior) / 2, rng)


def _pass(
    summed: Summed, belief: Array, rng: np.random.Generator
) -> tuple[Posterior, dict[str, float]]:
    prior, bounds = summed.prior, belief.cumsum(axis=1)
    drawn = [(bounds > rng.random((len(prior), 1))).argmax(axis=1) for _ in range(REHEARSED)]
    played = [summed.played(secret, rng) for secret in drawn]
    sums = np.array([made for made, _ in played])
    beyond = sums - np.array([expected for _, expected in played])
    bias, varies = beyond.mean(axis=0), beyond.var(axis=0, ddof=1)
    noise = np.sqrt(summed.noise**2 + (1 + 1 / REHEARSED) * varies)
    answers = []
    for number in range(CLIENTS):
        others = bias + (bias - beyond[number]) / (REHEARSED - 1)
        answers.append(summed.found(sums[number] - others, noise).probabilities)
    secrets = drawn[:CLIENTS]
    power = temperature_of(answers, secrets, prior)
    right = [float((p.argmax(axis=1) == s).mean()) for p, s in zip(answers, secrets, strict=True)]
    posterior = summed.found(summed.totals - bias, noise)
    believed = tempered(posterior.probabilities, prior, power)
    notes = {"temperature": power, "simulated_accuracy": float(np.mean(right))}
    return replace(posterior, probabilities=believed), notes
