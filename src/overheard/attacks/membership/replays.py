"""The client's local training, done again on records that are known: what is chance in it?

As :func:`overheard.attacks.attribute.local_path.replay`, for another set of records in every
replay, and saying how heavily each record weighed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.local_path import Timetable
from overheard.learning.dense import factors, weighted_gradient
from overheard.learning.recipe import Recipe
from overheard.learning.training import batch_order

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]

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

    Arithmetic in the precision of ``sent``; not finite where training diverges.
    """
    count, members, _ = inputs.shape
    size = min(recipe.batch_size or members, members)
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
    step = 0
    for _ in range(recipe.epochs):
        order = np.broadcast_to(np.arange(members), (count, members))
        if size < members:
            order = batch_order(np.full(count, members), members, rng)
        for begin in range(0, members, size):
            g, q, many = place[step]
            paths[:, g, q] += theta / many
            chosen = order[:, begin : begin + size]
            weights = np.full(chosen.shape, 1 / chosen.shape[1], sent.dtype)
            used[every, chosen] += weights
            with np.errstate(over="ignore", invalid="ignore"):
                pairs = factors(
                    recipe.dense, recipe.loss, theta, inputs[every, chosen], labels[every, chosen]
                )
                gradient = weighted_gradient(recipe.dense, pairs, weights)
                if recipe.algorithm == "fedprox":
                    gradient = gradient + sent.dtype.type(recipe.proximal) * (theta - sent)
                theta = theta - rate * gradient
            step += 1
    return Replays(paths, theta, used)


def weights_of(recipe: Recipe, members: int) -> tuple[Array, Array]:
    """The weights a member may have in a round (J,), and how likely each is.

    Batches are of one size but for the last of an epoch, whose records weigh more: a record is in
    it j times of E, binomially, as epochs have independent orders.
    """
    size = min(recipe.batch_size or members, members)
    last = members % size
    if not last:
        return np.array([recipe.epochs / size]), np.ones(1)
    times = np.arange(min(recipe.epochs, _MOST_LAST) + 1)
    ways = np.array([comb(recipe.epochs, int(j)) for j in times])
    chance = ways * (last / members) ** times * (1 - last / members) ** (recipe.epochs - times)
    return (recipe.epochs - times) / size + times / last, chance / chance.sum()
