"""Differentially private local steps (DP-SGD): each record's gradient is clipped, noise is added.

A step takes every record with the same probability q (Poisson sampling), clips each gradient to
norm ``clip``, sums, adds N(0, (noise * clip)^2) to every coordinate and divides by the expected
batch q * m. The full batch is q = 1. How many records m a client holds is no secret: it is sent
with every update, and divides every sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe

Array = NDArray[np.floating[Any]]


def client_rows(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> GradientRows:
    """Gradients of n records at one model (P,) that a client with this recipe adds up."""
    net = network(recipe)
    if net.chance or net.mixes:
        raise ChooseAnotherAttack(
            "decodes networks that treat records one by one and without chance; this one drops "
            "units at random or normalises over the batch"
        )
    rows = net.rows(theta, inputs, labels)
    return rows if recipe.private is None else rows.clipped(recipe.private.clip)


def sampling_rate(recipe: Recipe, records: int) -> float:
    """The probability with which a record takes part in one local step."""
    return 1.0 if recipe.batch_size is None else min(1.0, recipe.batch_size / records)


def sampled_weights(
    recipe: Recipe, sizes: NDArray[np.int64], longest: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Of each local step the records' weights (C, n), 1/(q m) for those drawn and 0 for the others,
    and the weight (C,) of the noise, 0 for a client that is done."""
    real = np.arange(longest) < sizes[:, None]
    rates = np.array([sampling_rate(recipe, int(m)) for m in sizes])
    share = 1 / (rates * sizes)
    steps = np.array([recipe.local_steps(int(m)) for m in sizes])
    for number in range(int(steps.max())):
        busy = number < steps
        drawn = rng.random(real.shape) < rates[:, None]
        yield (real & drawn & busy[:, None]) * share[:, None], busy * share


def update_noise(recipe: Recipe, records: int) -> float:
    """Standard deviation that private steps leave on each coordinate of a client's update (to first
    order: later steps also carry earlier noise through the gradient)."""
    if recipe.private is None:
        return 0.0
    one = recipe.private.noise * recipe.private.clip / (sampling_rate(recipe, records) * records)
    if recipe.sends_gradient:
        return one
    return recipe.learning_rate * one * sqrt(recipe.local_steps(records))
