"""Where was the model while the client trained? Its path between two messages, to be guessed.

Both ends are heard. Between them the path is the straight segment and, on top, the mean bend of
several replays of the client's own recipe with random batch orders on values drawn from what is
believed about the attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs.dense import weighted_gradient
from overheard.programs.private import record_factors
from overheard.programs.recipe import Recipe
from overheard.programs.training import batch_order

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


def quadratic_path(
    times: Timetable, sent: Array, returned: Array, hessian: Array, rate: float
) -> NDArray[np.float64]:
    """As :func:`segment`, where the loss is a parabola: gradient steps slow down on the way.

    After t steps of T a direction with curvature h has gone (1 - a^t) / (1 - a^T) of its way,
    a = 1 - rate h, whatever the optimum is.
    """
    curvature, axes = np.linalg.eigh(hessian)
    pull = np.clip(rate * curvature, 1e-9, 1 - 1e-9)
    steps = np.arange(times.steps)
    gone = -np.expm1(np.outer(steps, np.log1p(-pull)))
    gone = gone / -np.expm1(times.steps * np.log1p(-pull))
    when = np.array([[gone[group].mean(axis=0) for group in epoch] for epoch in times.groups])
    start, end = sent.astype(np.float64), returned.astype(np.float64)
    return np.asarray(start + (when * ((end - start) @ axes)) @ axes.T, dtype=np.float64)


def replay(
    recipe: Recipe,
    times: Timetable,
    sent: Array,
    candidates: Array,
    labels: Array,
    values: Indices,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], Array]:
    """Train again: each replay's mean models at the moments (R, G, Q, P), and its end (R, P).

    candidates: (K, m, d) inputs; labels: (K, m); values: (R, m) the candidate that each replay
    takes for each record. Arithmetic in the precision of ``sent``.
    """
    replays, records = values.shape
    size = min(recipe.batch_size or records, records)
    rate = sent.dtype.type(recipe.learning_rate)
    theta = np.broadcast_to(sent, (replays, sent.size))
    paths = np.zeros((replays, *times.shares.shape, sent.size))
    place = {
        int(step): (g, q, len(group))
        for g, epoch in enumerate(times.groups)
        for q, group in enumerate(epoch)
        for step in group
    }
    every = np.arange(replays)[:, None]
    step = 0
    for _ in range(recipe.epochs):
        order = _order(recipe, replays, records, rng)
        for begin in range(0, records, size):
            if step in place:
                g, q, many = place[step]
                paths[:, g, q] += theta / many
            chosen = order[:, begin : begin + size]
            value = values[every, chosen]
            pairs = record_factors(recipe, theta, candidates[value, chosen], labels[value, chosen])
            weights = np.full(chosen.shape, 1 / chosen.shape[1], sent.dtype)
            gradient = weighted_gradient(recipe.dense, pairs, weights)
            if recipe.algorithm == "fedprox":
                gradient = gradient + sent.dtype.type(recipe.proximal) * (theta - sent)
            theta = theta - rate * gradient
            step += 1
    return paths, theta


def _order(recipe: Recipe, replays: int, records: int, rng: np.random.Generator) -> Indices:
    if recipe.full_batch:
        return np.broadcast_to(np.arange(records), (replays, records))
    return batch_order(np.full(replays, records), records, rng)
