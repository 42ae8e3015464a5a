"""Clipping: an update longer than the norm is scaled down to it, a shorter one is left alone."""

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


class ClipConfig(DefenceConfig):
    """``norm``: the largest Euclidean norm of an update (``sent - returned``, or the gradient)."""

    name: Literal["clip"] = "clip"
    norm: float = Field(gt=0)

    def build(self, before: tuple[Claim, ...]) -> Defence:
        return clip(self.norm)


def clip(norm: float) -> Defence:
    """Each update is multiplied by ``min(1, norm / its norm)``."""

    def change(updates: Array, rng: Rng) -> Array:
        lengths = np.linalg.norm(updates, axis=1, keepdims=True)
        return np.asarray(updates * np.minimum(1.0, norm / np.maximum(lengths, norm)))

    promise = f"no update is longer than {norm:g}"
    return on_upload(change, Claim("clip", Stage.BOUND, promise, clip_norm=norm))
