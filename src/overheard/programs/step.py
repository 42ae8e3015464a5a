"""What a defence does inside local training: private steps, as data, or a change of the batches.

A local step is taken on a batch: inputs (C, n, d), labels and weights (C, n) of C clients, whose
gradients are added up with these weights. Whatever is a sum over records of some loss is another
batch: noisy inputs, other labels, a record under several labels with a part of its weight each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs.recipe import PrivateSteps

Array = NDArray[np.floating[Any]]
Batch = tuple[Array, Array, Array]
BatchHook = Callable[[Batch, np.random.Generator], Batch]
"""The batch that the client uses in place of this one. Padding, and clients that are done, have
weight 0 and must keep it."""


@dataclass(frozen=True)
class LocalStep:
    """``classes``: how many the label has, 0 for a number. ``private``: records' gradients are
    clipped and noise is added, which the recipe then says. ``batches``: hooks, which act one after
    the other on the batch of every local step."""

    classes: int
    private: PrivateSteps | None = None
    batches: tuple[BatchHook, ...] = ()


def hooked(
    batches: Iterable[Batch], hooks: tuple[BatchHook, ...], rng: np.random.Generator
) -> Iterator[Batch]:
    """The batches as the hooks leave them."""
    for batch in batches:
        for hook in hooks:
            batch = hook(batch, rng)
        yield batch
