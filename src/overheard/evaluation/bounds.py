"""What theory promises an attack, whatever it measures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.metrics import client_losses, local_optimum, value_indices
from overheard.programs.program import Told
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode


def algorithm3_accuracy_bound(
    mean_squared_error: float, weight: float, share_of_ones: float
) -> float:
    """driouich2022 Proposition 3: Algorithm 3's accuracy is at least this.

    max(|1 - 2 rho|, 1 - 4 MSE / theta_s^2), for a binary attribute with values 0 and 1, one local
    full-batch step and the exact local model. (The paper rounds rho m up; so do we.)
    """
    fit = 1 - 4 * mean_squared_error / weight**2 if weight else -np.inf
    return float(max(abs(1 - 2 * share_of_ones), fit, 0.0))


def algorithm3_bound(
    recipe: Told, records: Records, column: str, values: tuple[Value, ...]
) -> float | None:
    """Proposition 3 for a client's records; None where its assumptions do not hold."""
    if not isinstance(recipe, Recipe) or column not in recipe.encoding.columns():
        return None
    inside = recipe.encoding.inputs_of(column)
    if not (
        recipe.linear_least_squares
        and recipe.one_step
        and not recipe.pull
        and len(values) == 2
        and inside.stop - inside.start == 1
    ):
        return None
    optimum: NDArray[np.float64] = local_optimum(recipe, records)
    low, high = (
        encode(recipe.encoding, records.take(np.arange(1)), {column: v})[0, inside.start]
        for v in values
    )
    share = float(value_indices(records[column], values).mean())
    weight = float(optimum[inside.start] * (high - low))
    return algorithm3_accuracy_bound(
        float(client_losses(recipe, optimum, records).mean()), weight, share
    )
