"""Sparse updates: of each the largest coordinates are sent. It promises no privacy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from overheard.federation.defences.contract import Array, Claim, Defence, RoundContext, Stage


class TopK(Defence):
    """Of each update the largest coordinates are sent."""

    name: Literal["top_k"] = "top_k"
    share: float = Field(gt=0, le=1)
    """Of an update's coordinates, the largest, that are sent; the rest is 0. Example: `share =
    0.1`"""

    @property
    def claim(self) -> Claim:
        promise = f"an update has at most {self.share:g} of its coordinates"
        return Claim(self.name, Stage.COMPRESSION, promise, effects=("sparse", "repeatable"))

    def upload(self, updates: Array, context: RoundContext) -> Array:
        """The largest coordinates by size; among equals, the first."""
        kept = max(1, round(self.share * updates.shape[1]))
        chosen = np.argsort(-np.abs(updates), axis=1, kind="stable")[:, :kept]
        sparse = np.zeros_like(updates)
        np.put_along_axis(sparse, chosen, np.take_along_axis(updates, chosen, 1), 1)
        return sparse
