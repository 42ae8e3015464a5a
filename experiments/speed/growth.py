"""How time and memory grow: with records, parameters, clients and rounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from experiments.speed import decoding, sums
from experiments.speed.measure import Facts, Growth, Job, Sizes
from overheard.randomness import stream

WIDE = {"inputs": 300, "hidden": 128, "classes": 10, "values": 2}
"""A first layer with 38,528 parameters: more than three times the records."""


def _decoding(sizes: Sizes, folder: Path) -> Job:
    """One full-batch round of a network, one attribute of all records."""
    return decoding._max_entropy({**WIDE, **sizes}, folder)


def _decoding_parameters(sizes: Sizes, folder: Path) -> Job:
    """200 records against a network of about so many parameters."""
    inputs = 20 if sizes["parameters"] < 10_000 else 100
    hidden = max(1, round((sizes["parameters"] - 10) / (inputs + 11)))
    chosen = {"records": 200, "inputs": inputs, "hidden": hidden, "classes": 10, "values": 2}
    return decoding._max_entropy(chosen, folder)


def _messages(sizes: Sizes, folder: Path) -> Job:
    """Ten rounds of two clients, written and read."""
    from overheard.transcript.store import Recorder, Recording

    model = stream(0, "bench", "model").normal(size=sizes["parameters"]).astype(np.float32)
    path = folder / "written"

    def run() -> Facts:
        with Recorder(path) as recorder:
            for number in range(10):
                recorder.round(number, {"w": model}, {"a": {"w": model}, "b": {"w": model}})
        _, sent, _, _ = Recording.open(path).link("a")
        return {"rounds": len(sent["w"])}

    return Job(run, before=lambda: shutil.rmtree(path, ignore_errors=True))


def _simulation(sizes: Sizes, folder: Path) -> Job:
    """Logistic regression of 50 inputs, 50 records a client, three rounds, recorded whole."""
    from experiments.recordings import people, simulated

    config = {
        "data": {"source": "file"},
        "model": {"name": "logistic"},
        "training": {"rounds": 3, "learning_rate": 0.1, "batch_size": 10},
    }
    rng = stream(0, "bench", "growing", sizes["clients"])
    rows = 50 * sizes["clients"]
    columns: dict[str, Any] = {f"x{j}": rng.normal(size=rows) for j in range(49)}
    columns["s"] = (rng.random(rows) < 0.4).astype(np.float64)
    score = columns["x0"] + columns["s"] + rng.normal(size=rows)
    columns["y"] = (score > 0).astype(np.float64)
    columns["at"] = np.repeat([f"client {c}" for c in range(sizes["clients"])], 50)
    dataset = people(columns, classes=True)

    def run() -> Facts:
        simulated(config, dataset, folder / "run")
        return {}

    return Job(run, before=lambda: shutil.rmtree(folder / "run", ignore_errors=True))


def _listening(sizes: Sizes, folder: Path) -> Job:
    """Sums of a LeNet's clients read round by round, 100 auxiliary records."""
    from overheard.attacks.property import outputs
    from overheard.decoding.client_sets import FilterOptions

    adversary = sums.adversary_for({"auxiliary": 100, "shard": 30})
    few = FilterOptions(masks=4)

    def run() -> Facts:
        observed = sums.observed(adversary, sizes["rounds"])
        made = outputs(adversary, observed, stream(0, "bench", "rounds"), few)
        return {"rounds": sum(1 for _ in made)}

    return Job(run)


CURVES = (
    Growth(
        "decoding-records",
        "decoding an attribute, MLP 300-128-10, one full-batch round",
        "records",
        (100, 316, 1000, 3162, 10_000),
        (30, 60),
        _decoding,
        why="Up to 6,000 unknowns a Gram matrix is solved: its memory is records x effective "
        "rank, and the rank is the number of records, so both are squared; its eigenvectors "
        "cost the cube. Above, the first layer's equations are solved matrix-free: both "
        "linear in the records, in the equations and in the number of iterations: the last "
        "point. 100,000 records would need 200,000 equations, 80 billion operations an "
        "iteration, and are left out. The slope over all points lies between the two laws.",
        time=2.0,
        memory=2.0,
    ),
    Growth(
        "decoding-parameters",
        "decoding an attribute of 200 records, networks of growing width",
        "parameters",
        (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        (300, 600),
        _decoding_parameters,
        why="Per-record gradients are never built: a pass through the network and inner products "
        "of its factors are linear in the parameters, in time and, by the factors (records x "
        "width) and a few copies of the model, in memory. The solve does not depend on them, "
        "so that the curve is flat at first.",
        time=1.0,
        memory=1.0,
    ),
    Growth(
        "recording-parameters",
        "writing and reading ten rounds of two clients",
        "parameters",
        (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        (300, 600),
        _messages,
        why="Every byte is written, hashed, read and hashed: linear. At small models "
        "the index and fsync are all there is, so that the curve is flat at first. Memory is "
        "that of the link that is read, which holds all rounds.",
        time=1.0,
        memory=1.0,
    ),
    Growth(
        "simulation-clients",
        "simulating and recording logistic regression of 50 inputs, 50 records a client",
        "clients",
        (10, 100, 1000, 10_000),
        (5, 10),
        _simulation,
        why="Training, truth and side knowledge are linear in the clients; so is memory, which is "
        "the records themselves and their copies on the way to the disk. Below a thousand "
        "clients what any recording costs (the libraries that write tables, a sync of each "
        "file) is most of both, which lowers the slopes.",
        time=1.0,
        memory=1.0,
    ),
    Growth(
        "secure-aggregation-rounds",
        "reading sums under secure aggregation, LeNet, 100 auxiliary records",
        "rounds",
        (10, 100, 1000),
        (2, 4),
        _listening,
        why="One round after the other is read and let go: time is linear, memory does not grow.",
        time=1.0,
        memory=0.0,
    ),
)
