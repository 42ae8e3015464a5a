"""What a defence does inside every local step: private steps, as data, or a change of the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.learning.recipe import PrivateSteps

Array = NDArray[np.floating[Any]]
LossHook = Callable[[Array, Array, Array], Array]
"""``hook(errors, outputs, labels)``: the derivative (..., n, outputs) of each record's loss by the
model's outputs, as the client is to use it in place of ``errors``."""


@dataclass(frozen=True)
class LocalStep:
    """``private``: records' gradients are clipped and noise is added, which the recipe then says.
    ``losses``: hooks on the derivative of each record's loss, which act one after the other."""

    private: PrivateSteps | None = None
    losses: tuple[LossHook, ...] = ()
