"""The targets' mean gradients over the draws of neighbouring rounds."""

from __future__ import annotations

import numpy as np

from overheard.attacks.property import _OwnMean
from overheard.programs.gradient_rows import GradientRows, Written


def drawn(rng: np.random.Generator, mean: np.ndarray, masks: int, noise: float) -> GradientRows:
    """``masks`` noisy draws of each target's gradient, (targets, P) the means."""
    rows = np.repeat(mean, masks, axis=0)
    return GradientRows((Written(rows + noise * rng.normal(size=rows.shape), 1),))


def test_draws_of_several_rounds_are_averaged() -> None:
    """At first all alike; after ``memory`` rounds the noise is that of so many rounds' draws."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(3, 400))
    kept, sets = _OwnMean(4, 5), []
    for _ in range(6):
        sets.append(drawn(rng, mean, 4, 2.0))
        kept.add(sets[-1])
    plain = np.mean([one.explicit().reshape(3, 4, -1).mean(axis=1) for one in sets], axis=0)
    np.testing.assert_allclose(kept.value, plain.T, atol=1e-12)
    for _ in range(60):
        kept.add(drawn(rng, mean, 4, 2.0))
    error = np.sqrt(np.mean((kept.value - mean.T) ** 2))
    one_set = 2.0 / np.sqrt(4)
    assert error < 0.3 * one_set  # a geometric average over 10 sets: sqrt(1 / 19) = 0.23
    assert error > 0.18 * one_set


def test_it_follows_a_model_that_moves() -> None:
    rng = np.random.default_rng(1)
    mean = np.ones((2, 50))
    kept = _OwnMean(4, 2)
    for _ in range(10):
        kept.add(drawn(rng, mean, 4, 0.0))
    for _ in range(16):
        kept.add(drawn(rng, 3 * mean, 4, 0.0))
    np.testing.assert_allclose(kept.value, 3 * mean.T, atol=0.03)


def test_without_memory_the_last_draws_count() -> None:
    rng = np.random.default_rng(2)
    kept = _OwnMean(4, 0)
    for size in (1.0, 5.0, 2.0):
        kept.add(drawn(rng, size * np.ones((2, 30)), 4, 0.0))
    np.testing.assert_allclose(kept.value, 2.0)
