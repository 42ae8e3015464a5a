"""Compression: fewer numbers of an update, or fewer bits of each. It promises no privacy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from overheard.federation.defences.contract import (
    Array,
    Claim,
    Defence,
    DefenceConfig,
    Rng,
    Stage,
    on_upload,
)


class TopKConfig(DefenceConfig):
    """``share``: the part of an update's coordinates, the largest, that is sent; the rest is 0."""

    name: Literal["top_k"] = "top_k"
    share: float = Field(gt=0, le=1)

    def build(self, before: tuple[Claim, ...]) -> Defence:
        return top_k(self.share)


class QuantiseConfig(DefenceConfig):
    """``bits``: 2^bits levels between the least and the largest coordinate of an update; a number
    in between goes to one of its two neighbours at random, so that the mean is right."""

    name: Literal["quantise"] = "quantise"
    bits: int = Field(ge=1, le=16)

    def build(self, before: tuple[Claim, ...]) -> Defence:
        return quantise(self.bits)


def top_k(share: float) -> Defence:
    """Of each update the largest coordinates by size; among equals, the first."""

    def change(updates: Array, rng: Rng) -> Array:
        kept = max(1, round(share * updates.shape[1]))
        chosen = np.argsort(-np.abs(updates), axis=1, kind="stable")[:, :kept]
        sparse = np.zeros_like(updates)
        np.put_along_axis(sparse, chosen, np.take_along_axis(updates, chosen, 1), 1)
        return sparse

    promise = f"an update has at most {share:g} of its coordinates"
    return on_upload(change, Claim("top_k", Stage.COMPRESSION, promise))


def quantise(bits: int) -> Defence:
    """Stochastic rounding to 2^bits levels that span each update."""
    levels = 2**bits - 1

    def change(updates: Array, rng: Rng) -> Array:
        low = updates.min(axis=1, keepdims=True)
        step = (updates.max(axis=1, keepdims=True) - low) / levels
        step = np.where(step > 0, step, 1.0)
        places = (updates - low) / step
        below = np.floor(places)
        return np.asarray(low + step * (below + (rng.random(updates.shape) < places - below)))

    promise = f"every coordinate of an update is one of {levels + 1} numbers"
    return on_upload(change, Claim("quantise", Stage.COMPRESSION, promise))
