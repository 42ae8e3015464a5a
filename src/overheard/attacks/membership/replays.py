"""The client's local training, done again on records that are known: what is chance in it?

As `programs.simulated.simulate`, for another set of records in every
replay, and saying how heavily each record weighed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from overheard.attacks.membership.local_path import Timetable
from overheard.programs.dense import weighted_gradient
from overheard.programs.private import record_factors, sampling_rate
from overheard.programs.recipe import Recipe
from overheard.programs.training import batch_order

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

_MOST_LAST = 6  # how often a record may be in the last batch of an epoch, at most, in `weights_of`


@dataclass(frozen=True)
class Replays:
    """paths (R, G, Q, P): mean models at the timetable's moments; ends (R, P); weights (R, m):
    the sum of 1 / batch size over the batches that each record was in."""

    paths: Array
    ends: Wire
    weights: Array


def replays(
    recipe: Recipe,
    times: Timetable,
    sent: Wire,
    inputs: Wire,
    labels: Wire,
    rng: np.random.Generator,
) -> Replays:
    """Train R times from the model ``sent``, on inputs (R, m, d) and labels (R, m).

    Arithmetic in the precision of ``sent``; not finite where training diverges. Private steps
    without their noise, which is the same for whoever takes part.
    """
    count, members, _ = inputs.shape
    rate = sent.dtype.type(recipe.learning_rate)
    place = {
        int(step): (g, q, len(group))
        for g, epoch in enumerate(times.groups)
        for q, group in enumerate(epoch)
        for step in group
    }
    theta = np.broadcast_to(sent, (count, sent.size))
    paths = np.zeros((count, *times.shares.shape, sent.size))
    used = np.zeros((count, members))
    every = np.arange(count)[:, None]
    batches = _batches if recipe.private is None else _samples
    for step, (chosen, weights) in enumerate(batches(recipe, count, members, rng)):
        g, q, many = place[step]
        paths[:, g, q] += theta / many
        used[every, chosen] += weights
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = record_factors(recipe, theta, inputs[every, chosen], labels[every, chosen])
            gradient = weighted_gradient(recipe.dense, pairs, weights.astype(sent.dtype))
            if recipe.pull:
                gradient = gradient + sent.dtype.type(recipe.pull) * (theta - sent)
            theta = theta - rate * gradient
    return Replays(paths, theta, used)


def _batches(
    recipe: Recipe, count: int, members: int, rng: np.random.Generator
) -> Iterator[tuple[Indices, Array]]:
    """Records (R, B) of each local step and their weights: every epoch in a fresh order."""
    size = min(recipe.batch_size or members, members)
    for _ in range(recipe.epochs):
        order = np.broadcast_to(np.arange(members), (count, members))
        if size < members:
            order = batch_order(np.full(count, members), members, rng)
        for begin in range(0, members, size):
            chosen = order[:, begin : begin + size]
            yield chosen, np.full(chosen.shape, 1 / chosen.shape[1])


def _samples(
    recipe: Recipe, count: int, members: int, rng: np.random.Generator
) -> Iterator[tuple[Indices, Array]]:
    """The same of private steps: each takes every record with the same probability."""
    chance = sampling_rate(recipe, members)
    for _ in range(recipe.local_steps(members)):
        keys = rng.random((count, members))
        most = max(int((keys < chance).sum(axis=1).max()), 1)
        chosen = np.argsort(keys, axis=1)[:, :most]
        drawn = np.take_along_axis(keys, chosen, axis=1) < chance
        yield chosen, drawn / (chance * members)


def weights_of(recipe: Recipe, members: int) -> tuple[Array, Array]:
    """The weights a member may have in a round (J,), and how likely each is.

    Batches are of one size but for the last of an epoch, whose records weigh more: a record is in
    it j times of E, binomially, as epochs have independent orders. Private steps take each record
    by chance, possibly never.
    """
    if recipe.private is not None:
        chance, steps = sampling_rate(recipe, members), recipe.local_steps(members)
        taken = np.arange(min(steps, _MOST_LAST + int(chance * steps)) + 1)
        shares = binom.pmf(taken, steps, chance)
        likely = shares > 1e-6
        return taken[likely] / (chance * members), shares[likely] / shares[likely].sum()
    size = min(recipe.batch_size or members, members)
    last = members % size
    if not last:
        return np.array([recipe.epochs / size]), np.ones(1)
    times = np.arange(min(recipe.epochs, _MOST_LAST) + 1)
    chance = binom.pmf(times, recipe.epochs, last / members)
    return (recipe.epochs - times) / size + times / last, chance / chance.sum()
