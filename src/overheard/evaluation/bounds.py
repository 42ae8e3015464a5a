"""What theory promises an attack, whatever it measures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.metrics import client_losses, local_optimum, value_indices
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records, Value, encode


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
    recipe: Recipe, records: Records, column: str, values: tuple[Value, ...]
) -> float | None:
    """Proposition 3 for a client's records; None where its assumptions do not hold."""
    if column not in recipe.encoding.columns():
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


def smallest_error_with_mini_batches(
    parameters: int,
    learning_rate: float,
    gradient_variance: float,
    steps: int,
    messages: int,
) -> float:
    """xu2021 Observation 6: no estimator of a least-squares client's optimum does better.

    A lower bound on E||theta* - estimate||^2 from ``messages`` rounds of ``steps`` mini-batch
    steps each: 4 d lr^2 sigma^2 / (555 n) (1 - 4^-steps), where E||g - grad||^2 <= sigma^2 =
    ``gradient_variance``. Holds for lr <= m / (4 lambda_max(X'X)).
    """
    shrunk = 1.0 - 0.25**steps
    return 4 * parameters * learning_rate**2 * gradient_variance * shrunk / (555 * messages)


def error_of_affine_fit(
    sent: NDArray[np.float64],
    optimum_norm: float,
    learning_rate: float,
    gradient_variance: float,
    steps: int,
    confidence: float = 10.0,
    growth: float = 0.5,
    rarity: float = 1.0,
) -> tuple[float, float]:
    """xu2021 Observation 5: an upper bound on the error of the least-squares fit, and its chance.

    Equation (21): with probability above (1 - d^-A)(1 - 1/c)^2 the error ||theta* - estimate|| is
    below c d^(B+1) lr^2 sigma^2 steps / (n rho_min(Theta/sqrt(n))) (1 + ||theta*||), where Theta
    (n, d + 1) are the models sent with a column of -1. ``confidence`` is the paper's c,
    ``growth`` its B and ``rarity`` its A: constants of a random-matrix theorem that the paper
    leaves open, so that this is an order of magnitude, not a certificate.
    """
    n, d = sent.shape
    design = np.column_stack([sent, -np.ones(n)]) / np.sqrt(n)
    smallest = float(np.linalg.svd(design, compute_uv=False)[-1]) if n > d else 0.0
    chance = (1 - d**-rarity) * (1 - 1 / confidence) ** 2
    if smallest == 0.0:
        return float("inf"), chance
    spread = learning_rate**2 * gradient_variance * steps
    size = confidence * d ** (growth + 1) * spread / (n * smallest) * (1 + optimum_norm)
    return float(size), float(chance)
