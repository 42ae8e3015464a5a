"""Quantisation: fewer bits of each number of an update. It promises no privacy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from overheard.federation.defences.contract import Array, Claim, Defence, RoundContext, Stage


class Quantise(Defence):
    """Fewer bits of each number of an update."""

    name: Literal["quantise"] = "quantise"
    bits: int = Field(ge=1, le=16)
    """2^bits levels between the least and the largest coordinate of an update; a number in between
    goes to one of its two neighbours at random, so that the mean is right. Example: `bits = 8`"""

    @property
    def claim(self) -> Claim:
        promise = f"every coordinate of an update is one of {2**self.bits} numbers"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def upload(self, updates: Array, context: RoundContext) -> Array:
        low = updates.min(axis=1, keepdims=True)
        step = (updates.max(axis=1, keepdims=True) - low) / (2**self.bits - 1)
        step = np.where(step > 0, step, 1.0)
        places = (updates - low) / step
        below = np.floor(places)
        up = context.rng.random(updates.shape) < places - below
        return np.asarray(low + step * (below + up))
