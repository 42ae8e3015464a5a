"""Federated averaging: our simulator against a plain loop over clients, and against Flower.

The simulator's rounds of training and averaging are timed; writing the recording is not, as neither
opponent keeps one (see the entries about recordings for what that costs).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.speed.measure import Comparison, Facts, Job, Party, Sizes
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

    from overheard.federation.server import Mean, Server
    from overheard.federation.simulate import train_clients
    from overheard.programs.networks import initial, network
    from overheard.programs.training import shards

    recipe, (inputs, labels) = recipe_for(sizes), people(sizes)
    data = shards(list(inputs), list(labels), "float32")
    everybody = np.arange(len(data))

    def run() -> Facts:
        server = Server(Mean(), recipe, initial(recipe.model, 0).astype(np.float32), ())
        for number in range(sizes["rounds"]):
            returned = train_clients(recipe, server.model, data, everybody, 0, number)
            server = server.averaged(returned, data.sizes / data.sizes.sum())
        outputs = network(recipe).predict(server.model, inputs[:50])
        return {"accuracy": _accuracy(outputs, labels[:50])}

    return Job(run)


def tensors(sizes: Sizes) -> tuple[Any, Any]:
    """Everybody's records as tensors."""
    import torch

    inputs, labels = people(sizes)
    y = torch.from_numpy(labels)
    return torch.from_numpy(inputs), y if sizes["outputs"] > 1 else y[..., None].float()


# ------------------------------------------------------------------------------ a loop over clients


def module(widths: Sequence[int]) -> tuple[Any, Any]:
    """What most people would write: dense layers with ReLU between them, and their loss."""
    from torch import nn

    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    loss = nn.CrossEntropyLoss() if widths[-1] > 1 else nn.BCEWithLogitsLoss()
    return nn.Sequential(*layers[:-1]), loss


def train(net: Any, loss: Any, inputs: Any, labels: Any) -> None:
    """One local epoch of mini-batches, which are indexed (a DataLoader would be several times
    slower), by torch.optim.SGD and autograd."""
    import torch

    optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
    order = torch.randperm(len(labels))
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        optimiser.zero_grad()
        loss(net(inputs[chosen]), labels[chosen]).backward()
        optimiser.step()


def federated_averaging(widths: Sequence[int], inputs: Any, labels: Any, rounds: int) -> Any:
    """The global model after so many rounds, one module for all clients, as in the usual
    simulations; inputs (C, n, d), labels (C, n) or (C, n, 1)."""
    net, loss = module(widths)
    model = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(rounds):
        total = {name: 0 * value for name, value in model.items()}
        for x, y in zip(inputs, labels, strict=True):
            net.load_state_dict(model)
            train(net, loss, x, y)
            for name, value in net.state_dict().items():
                total[name] += value
        model = {name: value / len(inputs) for name, value in total.items()}
    net.load_state_dict(model)
    return net


def _loop(sizes: Sizes, folder: Path) -> Job:
    import torch

    _, labels = people(sizes)
    x, y = tensors(sizes)
    shown = sizes["rounds_shown"]
    torch.manual_seed(0)

    def run() -> Facts:
        net = federated_averaging(shape(sizes), x, y, shown)
        with torch.no_grad():
            return {"accuracy": _accuracy(net(x[:50]).numpy(), labels[:50])}

    def warm() -> None:
        federated_averaging(shape(sizes), x[:10], y[:10], 1)

    return Job(run, shown / sizes["rounds"], warm)


def _flower(sizes: Sizes, folder: Path, recorded: bool = False) -> Job:
    """Flower's FedAvg, whose clients train with plain torch; Ray gets one processor, as everybody
    here, and its start is not counted."""
    import torch
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from overheard.flower import record

    widths, clients, shown = shape(sizes), sizes["clients"], sizes["flower_rounds"]
    client, server = ClientApp(), ServerApp()
    found: dict[str, float] = {}
    inputs, labels = tensors(sizes)

    def fit(message: Any, context: Any) -> Any:
        number = int(context.node_config["partition-id"])
        net, loss = module(widths)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        train(net, loss, inputs[number], labels[number])
        content: Any = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": sizes["records"]}),
        }
        return Message(RecordDict(content), reply_to=message)

    def main(grid: Any, context: Any) -> None:
        strategy: Any = FedAvg(1.0, 0.0, clients, 0, clients)
        list(grid.get_node_ids())
        start = ArrayRecord(module(widths)[0].state_dict())
        strategy.start(grid, start, num_rounds=1)  # starts the workers
        strategy = record(strategy, folder / "recorded") if recorded else strategy
        begin = time.perf_counter()
        strategy.start(grid, start, num_rounds=shown)
        found["seconds"] = time.perf_counter() - begin

    main.__annotations__ = {"grid": Grid, "context": Context}
    fit.__annotations__ = {"message": Message, "context": Context}
    client.train()(fit)
    server.main()(main)

    def run() -> Facts:
        torch.manual_seed(0)
        options: dict[str, Any] = {
            "init_args": {"include_dashboard": False, "num_cpus": 1},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        run_simulation(server, client, num_supernodes=clients, backend_config=options)
        return dict(found)

    return Job(run, shown / sizes["rounds"])


def _recorder(sizes: Sizes, folder: Path) -> Job:
    """Of the same federation, recorded, the time in which it waits for the recorder."""
    from overheard.recorders.recorder import Listener

    spent: list[float] = []
    hear, job, inside = Listener.hear, _flower(sizes, folder, recorded=True), False

    def timed(listener: Any, tell: Any) -> None:
        nonlocal inside
        begin, outermost, inside = time.perf_counter(), not inside, True
        hear(listener, tell)
        if outermost:
            spent.append(time.perf_counter() - begin)
            inside = False

    def run() -> Facts:
        setattr(Listener, "hear", timed)  # noqa: B010
        job.run()
        return {"seconds": sum(spent), "times": len(spent)}

    return Job(run, job.share)


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


NETWORK = {"clients": 100, "records": 50, "inputs": 446, "hidden": 128, "outputs": 30}
NETWORK |= {"rounds": 20, "rounds_shown": 5, "flower_rounds": 1}
SMALL = {"clients": 4, "records": 20, "inputs": 30, "hidden": 8, "outputs": 3}
SMALL |= {"rounds": 2, "rounds_shown": 1, "flower_rounds": 1}
WHAT = "FedAvg, 100 clients x MLP 446-128-30, 50 records each, batches of 10, 20 rounds"
LOOP = Party("loop over clients, torch.nn and SGD", _loop)
FLOWER = Party("Flower's simulation engine", _flower, needs="flwr", engine=True)
LINES = (
    # What is possible is the products of the steps alone. The rest of our time is streams through
    # the models, 250 kB a client, twice a step, in caches shared with whoever else runs.
    Comparison("fedavg-mlp", WHAT, _ours, LOOP, NETWORK, SMALL, goal=4, limit=_products),
    # Flower on Ray, one processor; the start of Ray is not counted
    Comparison("fedavg-flower", WHAT, _ours, FLOWER, NETWORK, SMALL, goal=50, clock="wall"),
    # Not a race: how many times longer the federation takes than it waits for its recorder. Of five
    # rounds each is written while the next goes on, and only the last is waited for.
    Comparison(
        "flower-recorder", "recording Flower's federation of 100 clients x 61,086 parameters",
        Party("the recorder", _recorder, needs="flwr", engine=True),
        replace(FLOWER, name="the whole federation"), {**NETWORK, "flower_rounds": 5}, SMALL,
        goal=50, clock="wall",
    ),
    Comparison(
        "fedavg-logistic",
        "the same, 1000 clients x logistic regression of 446 inputs",
        _ours,
        LOOP,
        {**NETWORK, "clients": 1000, "hidden": 0, "outputs": 1, "rounds_shown": 4},
        {**SMALL, "clients": 20, "hidden": 0, "outputs": 1},
        goal=50,
    ),
)  # fmt: skip
