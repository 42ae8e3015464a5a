"""Clients train a few at a time, for the cache; no bit of what they return may depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trainings import recipe_of

from overheard.programs import training
from overheard.programs.networks import initial, network
from overheard.programs.recipe import Dense, Recipe
from overheard.programs.training import Schedule, Shards, local_training, shards


def recipe(**changes: Any) -> Recipe:
    return recipe_of(Dense(inputs=9, hidden=(6,), outputs=3), "cross_entropy", **changes)


def people(rng: np.random.Generator) -> Shards:
    sizes = rng.integers(1, 30, size=17)
    inputs = [rng.normal(size=(n, 9)) for n in sizes]
    return shards(inputs, [rng.integers(3, size=n) for n in sizes], "float32")


def all_at_once(recipe: Recipe, start: Any, data: Shards, rng: np.random.Generator) -> Any:
    """Every step for all clients together, nothing in place: slow and obviously right."""
    theta = np.tile(start, (len(data), 1))
    for inputs, labels, weights in Schedule(recipe, data, rng).one_by_one(theta.dtype, slice(None)):
        step = network(recipe).gradient(theta, rng)(inputs, labels, weights)
        if recipe.algorithm == "fedprox":
            busy = weights.any(axis=-1, keepdims=True)
            step = step + np.float32(recipe.proximal) * (theta - start) * busy
        theta = theta - np.float32(recipe.learning_rate) * step
    return theta


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epochs": 3},
        {"batch_size": 4, "epochs": 2},
        {"batch_size": 1},
        {"batch_size": 5, "steps": 7},
        {"batch_size": 4, "algorithm": "fedprox", "proximal": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("cache", [1, 20_000, 1 << 30])
def test_same_bits_whatever_the_block(
    changes: dict[str, Any], cache: int, rng: np.random.Generator, monkeypatch: Any
) -> None:
    monkeypatch.setattr(training, "CACHE", cache)
    how, data = recipe(**changes), people(rng)
    start = initial(how.dense, 1).astype(np.float32)
    made = local_training(how, start, data, np.random.default_rng(5))
    expected = all_at_once(how, start, data, np.random.default_rng(5))
    assert made.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_what_was_sent_and_the_records_stay_as_they_were(rng: np.random.Generator) -> None:
    how, data = recipe(batch_size=4), people(rng)
    start = np.stack([initial(how.dense, k).astype(np.float32) for k in range(len(data))])
    before = start.copy(), data.inputs.copy()
    local_training(how, start, data.take(np.arange(len(data))), rng)
    assert (start == before[0]).all()
    assert (data.inputs == before[1]).all()
