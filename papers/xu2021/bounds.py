"""xu2021 Observations 5 and 6: how well can a client's optimum be estimated at all?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
