"""What clients send who do not do as they are told (kerkouche2023 section 4).

``inversion``: trains, then sends its update negated. ``ascent``: climbs the loss in place of
descending it, at every local step. ``free-rider``: does not train; its update is nothing, or noise
that is as long as the update that it would have sent.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.programs.recipe import Recipe

Array = NDArray[np.floating[Any]]
Behaviour = Literal["inversion", "ascent", "free-rider"]
FreeRide = Literal["unchanged", "noise"]


def climbing(recipe: Recipe) -> Recipe:
    """The same training uphill: w + eta * gradient."""
    return recipe.model_copy(update={"learning_rate": -recipe.learning_rate})


def misbehaved(
    behaviour: Behaviour, ride: FreeRide, updates: Array, rng: np.random.Generator
) -> Array:
    """What dishonest clients send in place of the updates (n, P) that they were to send.

    Of ``ascent`` with one gradient a round (FedSGD) the sign is all that differs; otherwise it is
    done while training, see `climbing`.
    """
    if behaviour in ("inversion", "ascent"):
        return -updates
    if ride == "unchanged":
        return np.zeros_like(updates)
    noise = rng.normal(size=updates.shape)
    length = np.linalg.norm(updates, axis=1) / np.linalg.norm(noise, axis=1)
    return np.asarray(noise * length[:, None], updates.dtype)
