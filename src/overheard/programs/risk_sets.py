"""What do sums over risk sets say? Kaplan and Meier's table, and Cox's partial likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]


def at_risk(times: Sequence[float], time: Array, event: Array) -> tuple[Array, Array]:
    """Whether each record is at risk at each time, and has its event before the next (m, T)."""
    edges, ends = np.asarray(times), np.append(times[1:], np.inf)
    lasts, had = time[:, None], event[:, None] > 0.5
    return (
        np.asarray(lasts >= edges, np.float64),
        np.asarray(had & (lasts >= edges) & (lasts < ends), np.float64),
    )


def risk_sums(inputs: Array, coefficients: Array, risk: Array, events: Array) -> Array:
    """exp(b'x) [1, x, x x'] over each risk set, and events and their x (m, T, ...) flat."""
    weight = np.exp(np.clip(inputs @ coefficients, -500, 500))[:, None]
    first, second = np.triu_indices(inputs.shape[1])
    squares = inputs[:, first] * inputs[:, second]
    each = weight * np.concatenate([np.ones_like(weight), inputs, squares], axis=1)
    event = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    parts = [
        (risk[:, :, None] * each[:, None, :]).reshape(len(inputs), -1),
        (events[:, :, None] * event[:, None, :]).reshape(len(inputs), -1),
    ]
    return np.concatenate(parts, axis=1)


def cox_step(total: Array, d: int, times: int) -> Array:
    """Newton's step of the partial likelihood (Breslow's ties), from sums over all clients."""
    wide = 1 + d + d * (d + 1) // 2
    risk, event = total[: times * wide].reshape(times, wide), total[times * wide :]
    events = event.reshape(times, 1 + d)
    gradient, curvature = np.zeros(d), np.zeros((d, d))
    for sums, dead in zip(risk, events, strict=True):
        if sums[0] <= 0 or not dead[0]:
            continue
        mean, square = sums[1 : 1 + d] / sums[0], np.zeros((d, d))
        square[np.triu_indices(d)] = sums[1 + d :] / sums[0]
        square += np.triu(square, 1).T
        gradient += dead[1:] - dead[0] * mean
        curvature += dead[0] * (square - np.outer(mean, mean))
    # columns that are functions of each other move as little as they can
    return np.asarray(linalg.lstsq(curvature, gradient, cond=1e-9)[0])
