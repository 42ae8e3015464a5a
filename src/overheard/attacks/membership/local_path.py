"""Where was the model while the client trained? Its path between two messages, to be guessed.

Both ends are heard. Between them the path is the straight segment and, on top, the mean bend of
several replays of the client's own recipe with random batch orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

MOMENTS, EPOCHS = 4, 8
"""At most so many moments of an epoch, and so many of the epochs, are looked at."""


@dataclass(frozen=True)
class Timetable:
    """Which local steps stand for the path: ``groups[g][q]`` are step numbers.

    steps: local steps in all; shares: (G, Q) of them that each group stands for.
    """

    steps: int
    groups: tuple[tuple[Indices, ...], ...]

    @property
    def shares(self) -> NDArray[np.float64]:
        return np.array([[len(group) for group in epoch] for epoch in self.groups]) / self.steps


def timetable(records: int, batch: int | None, epochs: int) -> Timetable:
    """Up to MOMENTS pieces of an epoch, in up to EPOCHS groups of successive epochs."""
    batches = -(-records // min(batch or records, records))
    pieces = np.array_split(np.arange(batches), min(MOMENTS, batches))
    together = np.array_split(np.arange(epochs), min(EPOCHS, epochs))
    return Timetable(
        batches * epochs,
        tuple(
            tuple((batches * some[:, None] + piece).ravel() for piece in pieces)
            for some in together
        ),
    )


def segment(times: Timetable, sent: Array, returned: Array) -> NDArray[np.float64]:
    """Models (G, Q, P) on the straight line between the two that were heard."""
    when = np.array([[group.mean() for group in epoch] for epoch in times.groups]) / times.steps
    start, end = sent.astype(np.float64), returned.astype(np.float64)
    return np.asarray(start + when[..., None] * (end - start), dtype=np.float64)
