"""Federated averaging: our simulator against a plain loop over clients, and against Flower.

The simulator's rounds of training and averaging are timed; writing the recording is not, as neither
opponent keeps one (see the entries about recordings for what that costs).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.entries import flower
from benchmarks.runner.entry import Entry, Facts, Job, Opponent, Side, Sizes
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.randomness import stream

Array = NDArray[Any]
BATCH, RATE = 10, 0.05


def shape(sizes: Sizes) -> tuple[int, ...]:
    """Widths of the layers."""
    hidden = (sizes["hidden"],) if sizes["hidden"] else ()
    return (sizes["inputs"], *hidden, sizes["outputs"])


def people(sizes: Sizes) -> tuple[Array, Array]:
    """Sparse zeros and ones (C, n, d), and classes (C, n) that a linear model can learn."""
    rng = stream(0, "bench", "people")
    inputs = (rng.random((sizes["clients"], sizes["records"], sizes["inputs"])) < 0.1).astype("f4")
    classes = max(sizes["outputs"], 2)
    scores = inputs @ rng.normal(size=(sizes["inputs"], classes)).astype("f4")
    return inputs, scores.argmax(axis=-1)


def recipe_for(sizes: Sizes) -> Recipe:
    """The network, mini-batches of 10, one epoch."""
    width, *hidden, outputs = shape(sizes)
    return Recipe(
        model=Dense(inputs=width, hidden=tuple(hidden), outputs=outputs),
        loss="cross_entropy",
        encoding=Encoding(blocks=tuple(Scaled(column=f"x{i}") for i in range(width))),
        target=Target(column="y", classes=tuple(range(max(outputs, 2)))),
        learning_rate=RATE,
        batch_size=BATCH,
    )


def _accuracy(outputs: Array, labels: Array) -> float:
    guess = outputs.argmax(-1) if outputs.shape[-1] > 1 else outputs[..., 0] > 0
    return float((guess == labels).mean())


def _ours(sizes: Sizes, folder: Path) -> Job:

    from overheard.federation.server import WeightedMean, aggregate
    from overheard.federation.simulate import train_clients
    from overheard.programs.networks import initial, network
    from overheard.programs.training import shards

    recipe, (inputs, labels) = recipe_for(sizes), people(sizes)
    data = shards(list(inputs), list(labels), "float32")
    everybody = np.arange(len(data))

    def run() -> Facts:
        model: Array = initial(recipe.dense, 0).astype(np.float32)
        for number in range(sizes["rounds"]):
            returned = train_clients(recipe, model, data, everybody, 0, number)
            model, _ = aggregate(WeightedMean(), (), recipe, model, returned, data.sizes)
        return {"accuracy": _accuracy(network(recipe).predict(model, inputs[:50]), labels[:50])}

    return Job(run)


def _loop(sizes: Sizes, folder: Path) -> Job:
    import torch

    from benchmarks.entries.plain_torch import federated_averaging, network

    inputs, labels = people(sizes)
    x = torch.from_numpy(inputs)
    y = torch.from_numpy(labels) if sizes["outputs"] > 1 else torch.from_numpy(labels[..., None])
    y = y if sizes["outputs"] > 1 else y.float()
    rounds, shown = sizes["rounds"], sizes["rounds_shown"]
    torch.manual_seed(0)

    def run() -> Facts:
        model = federated_averaging(shape(sizes), x, y, BATCH, RATE, shown)
        net = network(shape(sizes))
        net.load_state_dict(model)
        with torch.no_grad():
            return {"accuracy": _accuracy(net(x[:50]).numpy(), labels[:50])}

    def warm() -> None:
        federated_averaging(shape(sizes), x[:10], y[:10], BATCH, RATE, 1)

    return Job(run, shown / rounds, warm)


def _products(sizes: Sizes, folder: Path) -> Job:
    """The matrix products of every step of every client by BLAS, and nothing else."""
    from overheard.programs.networks import times_transposed

    rng = stream(0, "bench", "products")
    widths = shape(sizes)
    steps = -(-sizes["records"] // BATCH)
    many = 4  # different models, so that they do not simply stay in the nearest cache
    weights = [rng.random((many, b, a), dtype=np.float32) for a, b in pairwise(widths)]
    values = [rng.random((many, BATCH, width), dtype=np.float32) for width in widths]
    share = sizes["rounds_shown"] / sizes["rounds"]

    def run() -> Facts:
        for _ in range(sizes["rounds_shown"] * steps * sizes["clients"] // many):
            for layer, weight in enumerate(weights):
                before, after = values[layer], values[layer + 1]
                times_transposed(before, weight)
                np.matmul(after.swapaxes(-1, -2), before)
                if layer:
                    np.matmul(after, weight)
        return {}

    return Job(run, share)


LOOP = Side("loop over clients, torch.nn and SGD", _loop)
PRODUCTS = (
    "The ratio at the limit is that of the products of the steps alone. The rest of our time is "
    "streams through the models, 250 kB a client, twice a step, in caches shared with whoever "
    "else runs."
)
FLOWER = Opponent(
    Side("Flower's simulation engine", flower.prepare, needs="flwr", loopback=True, tree=True),
    goal=50,
    clock="wall",
    note="Flower on Ray, one processor; the start of Ray is not counted",
)
ENTRIES = (
    Entry(
        "fedavg-mlp",
        "FedAvg, 100 clients x MLP 446-128-30, 50 records each, batches of 10, 20 rounds",
        Side("ours", _ours),
        (Opponent(LOOP, goal=4, note=PRODUCTS), FLOWER),
        {"clients": 100, "records": 50, "inputs": 446, "hidden": 128, "outputs": 30}
        | {"rounds": 20, "rounds_shown": 5, "flower_rounds": 1},
        {"clients": 4, "records": 20, "inputs": 30, "hidden": 8, "outputs": 3}
        | {"rounds": 2, "rounds_shown": 1, "flower_rounds": 1},
        Side("the matrix products alone", _products),
    ),
    Entry(
        "fedavg-logistic",
        "the same, 1000 clients x logistic regression of 446 inputs",
        Side("ours", _ours),
        (Opponent(LOOP, goal=50),),
        {"clients": 1000, "records": 50, "inputs": 446, "hidden": 0, "outputs": 1}
        | {"rounds": 20, "rounds_shown": 4},
        {"clients": 20, "records": 20, "inputs": 30, "hidden": 0, "outputs": 1}
        | {"rounds": 2, "rounds_shown": 1},
    ),
)
