"""Clipping: an update longer than the norm is scaled down to it, a shorter one is left alone."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from overheard.federation.defences.contract import Array, Claim, Defence, RoundContext, Stage


class Clip(Defence):
    """An update longer than the norm is scaled down to it."""

    name: Literal["clip"] = "clip"
    norm: float = Field(gt=0)
    """The largest Euclidean norm of an update (sent - returned, or the gradient). Example: `norm =
    1.0`"""

    @property
    def claim(self) -> Claim:
        promise = f"no update is longer than {self.norm:g}"
        return Claim(self.name, Stage.BOUND, promise, effects=("repeatable",), clip_norm=self.norm)

    def upload(self, updates: Array, context: RoundContext) -> Array:
        """Each update times ``min(1, norm / its norm)``."""
        lengths = np.linalg.norm(updates, axis=1, keepdims=True)
        return np.asarray(updates * np.minimum(1.0, self.norm / np.maximum(lengths, self.norm)))
