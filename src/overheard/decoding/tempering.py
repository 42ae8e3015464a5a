"""How far is an answer to be believed? Its evidence, beyond the prior, taken to a power."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
POWERS = np.linspace(0.1, 1.5, 29)
"""That are tried: a simulated client or two do not tell neighbours apart."""


def tempered(probabilities: Array, prior: Array, power: float) -> Array:
    """The probabilities with their evidence, beyond the prior, taken to a power of at most one."""
    if power >= 1:
        return probabilities
    with np.errstate(divide="ignore"):
        evidence = np.log(np.maximum(probabilities, 1e-300)) - np.log(prior)
        logits = np.where(prior > 0, np.log(prior) + power * evidence, -np.inf)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def temperature_of(answers: Sequence[Array], secrets: Sequence[Any], prior: Array) -> float:
    """The power of the evidence under which the simulated clients' secrets are likeliest."""
    rows = np.arange(len(prior))
    score = [
        sum(
            float(np.log(np.maximum(tempered(p, prior, power)[rows, s], 1e-12)).sum())
            for p, s in zip(answers, secrets, strict=True)
        )
        for power in POWERS
    ]
    return float(POWERS[int(np.argmax(score))])
