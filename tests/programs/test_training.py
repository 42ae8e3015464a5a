"""Local training, batched over clients, against plain torch.nn and SGD for one client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_twins import flat, torch_loss, torch_twin
from trainings import recipe_of

from overheard.programs import training as module
from overheard.programs.networks import initial, network
from overheard.programs.recipe import Dense, Recipe
from overheard.programs.training import Schedule, Shards, batch_order, local_training, shards
from overheard.randomness import stream

pytestmark = pytest.mark.slow

SIZES = (9, 4, 1, 13)
MODELS = {
    "linear": ("squared_error", Dense(inputs=3)),
    "logistic": ("cross_entropy", Dense(inputs=3)),
    "softmax": ("cross_entropy", Dense(inputs=3, outputs=4)),
    "tanh": ("squared_error", Dense(inputs=3, hidden=(5,), activation="tanh")),
    "relu": ("cross_entropy", Dense(inputs=3, hidden=(4, 3), bias=False)),
    "sigmoid": ("cross_entropy", Dense(inputs=3, hidden=(4,), outputs=3, activation="sigmoid")),
}
TRAINING: dict[str, dict[str, Any]] = {
    "one full batch": {},
    "five epochs": {"epochs": 5},
    "mini-batches": {"batch_size": 4},
    "mini-batches, epochs": {"batch_size": 4, "epochs": 3},
    "single records": {"batch_size": 1},
    # the small client is on its second pass while the large one is on its first
    "steps": {"batch_size": 4, "steps": 3},
    "batch beyond the data": {"batch_size": 50, "epochs": 2},
    "fedprox": {"algorithm": "fedprox", "proximal": 0.7, "epochs": 4},
    "fedprox, mini-batches": {"algorithm": "fedprox", "proximal": 0.7, "batch_size": 4},
    "fedprox without pull": {"algorithm": "fedprox", "epochs": 2},
    "fedsgd": {"algorithm": "fedsgd"},
}


def recipe_for(model: str, **training: Any) -> Recipe:
    loss, dense = MODELS[model]
    return recipe_of(dense, loss, learning_rate=0.15, **training)


def client_data(recipe: Recipe, sizes: tuple[int, ...], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    classes = max(2, recipe.model.outputs)
    return [
        (
            rng.normal(size=(m, recipe.model.inputs)),
            rng.normal(size=m)
            if recipe.loss == "squared_error"
            else rng.integers(classes, size=m).astype(np.float64),
        )
        for m in sizes
    ]


def padded(data: list[Any], dtype: str = "float64") -> Shards:
    return shards([x for x, _ in data], [y for _, y in data], dtype)


def orders(recipe: Recipe, sizes: tuple[int, ...], rng: np.random.Generator) -> list[Any]:
    """The order of records in each pass, drawn as local_training draws it."""
    passes = recipe.steps or recipe.epochs
    if recipe.batch_size is None:
        return [None] * passes
    return [batch_order(np.array(sizes), max(sizes), rng) for _ in range(passes)]


@pytest.mark.parametrize("training", TRAINING.values(), ids=TRAINING)
@pytest.mark.parametrize("model", MODELS)
def test_clients_do_what_torch_does(model: str, training: dict[str, Any]) -> None:
    recipe = recipe_for(model, **training)
    data = client_data(recipe, SIZES)
    start = np.random.default_rng(1).normal(size=(len(SIZES), recipe.model.size))
    returned = local_training(recipe, start, padded(data), stream(0, "order"))
    epochs = orders(recipe, SIZES, stream(0, "order"))
    for client, (x, y) in enumerate(data):
        twin = torch_twin(recipe.model, start[client])
        anchor = [p.detach().clone() for p in twin.parameters()]
        optimiser = torch.optim.SGD(twin.parameters(), lr=recipe.learning_rate)
        size, batches = recipe.batch_size or len(y), []
        for order in epochs:
            mine = np.arange(len(y)) if order is None else order[client, : len(y)]
            batches += [mine[begin : begin + size] for begin in range(0, len(y), size)]
        for rows in batches[: recipe.steps]:
            optimiser.zero_grad()
            value = torch_loss(recipe.loss, twin(torch.tensor(x[rows])), torch.tensor(y[rows]))
            if recipe.algorithm == "fedprox":
                pulls = zip(twin.parameters(), anchor, strict=True)
                away = sum(((p - a) ** 2).sum() for p, a in pulls)
                value = value + recipe.proximal / 2 * away
            value.backward()
            if recipe.algorithm != "fedsgd":
                optimiser.step()
        expected = flat(twin, gradient=recipe.algorithm == "fedsgd")
        assert np.allclose(returned[client], expected, rtol=1e-10, atol=1e-12), client


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(sorted(TRAINING)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e3, -7.0]),
)
def test_padding_changes_nothing(model: str, training: str, seed: int, filler: float) -> None:
    """Whatever stands in the padding, the result has the same bits."""
    recipe = recipe_for(model, **TRAINING[training])
    data = padded(client_data(recipe, SIZES, seed))
    rows = np.arange(data.inputs.shape[1])
    padding = rows >= data.sizes[:, None]
    assert padding.any()
    filled = Shards(data.inputs.copy(), data.labels.copy(), data.sizes)
    filled.inputs[padding] = filler
    filled.labels[padding] = abs(filler) % max(2, recipe.model.outputs)
    start = np.random.default_rng(seed).normal(size=recipe.model.size)
    one = local_training(recipe, start, data, stream(seed, "order"))
    other = local_training(recipe, start, filled, stream(seed, "order"))
    assert np.array_equal(one, other)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_every_record_is_visited_once_an_epoch(sizes: list[int], seed: int) -> None:
    order = batch_order(np.array(sizes), max(sizes), stream(seed, "order"))
    for client, size in enumerate(sizes):
        assert sorted(order[client, :size].tolist()) == list(range(size))


def test_orders_differ_between_epochs_and_clients() -> None:
    rng = stream(0, "order")
    first, second = (batch_order(np.array([30, 30]), 30, rng) for _ in range(2))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def wide(**changes: Any) -> Recipe:
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
    monkeypatch.setattr(module, "CACHE", cache)
    how, data = wide(**changes), people(rng)
    start = initial(how.model, 1).astype(np.float32)
    made = local_training(how, start, data, np.random.default_rng(5))
    expected = all_at_once(how, start, data, np.random.default_rng(5))
    assert made.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_what_was_sent_and_the_records_stay_as_they_were(rng: np.random.Generator) -> None:
    how, data = wide(batch_size=4), people(rng)
    start = np.stack([initial(how.model, k).astype(np.float32) for k in range(len(data))])
    before = start.copy(), data.inputs.copy()
    local_training(how, start, data.take(np.arange(len(data))), rng)
    assert (start == before[0]).all()
    assert (data.inputs == before[1]).all()
