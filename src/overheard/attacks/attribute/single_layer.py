"""All rounds of a logistic or softmax regression as one measurement of the secret.

Without hidden layers a record's gradient is its residual times its input, so that the residuals
of all rounds span a few dozen curves in time: every round is used, at the price of a few
(`overheard.decoding.rounds`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import format_of, one_step, rate_of, rounding, spread
from overheard.decoding.limits import NUMBERS
from overheard.decoding.measurement import Measurement, stack
from overheard.decoding.rounds import float32_noise, from_factors
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]


def applies(link: Link, recipe: Recipe) -> bool:
    """One full-batch step a round of a classifier without hidden layers."""
    as_it_is = not (recipe.pull or recipe.private or link.sparse)
    return recipe.model.linear and one_step(link, recipe) and as_it_is


def single_layer_measurement(
    link: Link, recipe: Recipe, candidates: Array, labels: Array
) -> Measurement:
    """The measurement of which candidate each record is.

    candidates: (K, m, d) inputs under each of K values; labels: (m,). Rounds with an all-zero
    model are left out: equal residuals make float32 sums err in one direction.
    """
    values, people, _ = candidates.shape
    outputs = recipe.model.outputs
    told = np.flatnonzero(np.abs(link.sent).max(axis=1) > 0)
    most = max(NUMBERS // (values * people * outputs), 1)
    used = told[spread(len(told), most)] if len(told) else np.arange(1)
    scale = people / rate_of(link, recipe)
    thetas = link.sent[used].astype(np.float64)
    # (T, K, m, outputs) -> (outputs, m, K, T)
    raw = network(recipe).predict(thetas[:, None, :], candidates)
    residuals = np.moveaxis(loss_named(recipe.loss).errors(raw, labels), (3, 2, 1), (0, 1, 2))
    inputs = candidates.transpose(1, 0, 2)
    if recipe.model.bias:
        inputs = np.concatenate([inputs, np.ones((people, values, 1))], axis=2)
    totals = _by_output(recipe, link.updates()[used] * scale)
    returned = _by_output(recipe, link.returned[used].astype(np.float64))
    stated = _by_output(recipe, rounding(link)[used] * scale)
    wire = format_of(link.returned).name
    parts = []
    for unit in range(outputs):
        noise = stated[unit]
        if wire == "float32":
            noise = float32_noise(returned[unit], residuals[unit], inputs, scale)
            noise = np.hypot(noise, link.noise_sd * scale)
        parts.append(from_factors(residuals[unit], inputs, totals[unit], noise))
    return parts[0] if outputs == 1 else stack(parts)


def _by_output(recipe: Recipe, flat: Array) -> Array:
    """(T, P) parameters as (outputs, T, d [+ 1])."""
    outputs, width = recipe.model.outputs, recipe.model.inputs
    weights = flat[:, : outputs * width].reshape(len(flat), outputs, width)
    if recipe.model.bias:
        weights = np.concatenate([weights, flat[:, outputs * width :, None]], axis=2)
    return weights.transpose(1, 0, 2)
