"""How time and memory grow: with records, candidates, parameters, rounds and clients."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from experiments.speed import decoding, sums
from experiments.speed.measure import Facts, Growth, Job, Sizes
from overheard.randomness import stream

WIDE = {"records": 300, "inputs": 300, "hidden": 128, "classes": 10, "candidates": 2}
"""A first layer with 38,528 parameters."""
WIDER = {**WIDE, "hidden": 700}
"""With 210,700: more than twice as many as 100,000 records."""
LARGE = {**WIDE, "inputs": 1000, "hidden": 1480}
"""1.5 million parameters."""
LOGISTIC = {**WIDE, "inputs": 50, "hidden": 0}
"""Logistic regression, whose rounds are all used."""


def _decoding_parameters(sizes: Sizes, folder: Path) -> Job:
    """200 records against a network of about so many parameters."""
    inputs = 20 if sizes["parameters"] < 10_000 else 100
    hidden = max(1, round((sizes["parameters"] - 10) / (inputs + 11)))
    chosen = {"records": 200, "inputs": inputs, "hidden": hidden}
    return decoding.attribute({**WIDE, **chosen}, folder)


def _messages(sizes: Sizes, folder: Path) -> Job:
    """Ten rounds of two clients, written and read."""
    from overheard.transcript.store import Recorder, Recording

    model = stream(0, "bench", "model").normal(size=sizes["parameters"]).astype(np.float32)
    path = folder / "written"

    def run() -> Facts:
        with Recorder(path) as recorder:
            for number in range(10):
                recorder.round(number, {"w": model}, {"a": {"w": model}, "b": {"w": model}})
        return {"rounds": len([*Recording.open(path).releases("a")])}

    return Job(run, before=lambda: shutil.rmtree(path, ignore_errors=True))


def _simulation(sizes: Sizes, folder: Path) -> Job:
    """Logistic regression of 50 inputs, 50 records a client, three rounds, recorded whole."""
    from experiments.recordings import federation, people, simulated

    training = {"rounds": 3, "learning_rate": 0.1, "batch_size": 10}
    config = federation(0, "file", "logistic", training)
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


def _detecting(sizes: Sizes, folder: Path) -> Job:
    """Sums of a LeNet's clients read round by round, 100 auxiliary records, and after more and more
    rounds the posterior over sets of 50 clients."""
    from overheard.attacks.property import MatchedFilter, collect, outputs
    from overheard.decoding.client_sets import FilterOptions

    adversary = sums.adversary_for({"auxiliary": 100, "shard": 30})
    few = FilterOptions(masks=4)

    def run() -> Facts:
        observed = sums.observed(adversary, sizes["rounds"])
        made = collect(outputs(adversary, observed, stream(0, "bench", "rounds"), few))
        MatchedFilter(filter=few).over_rounds(made)
        return {"rounds": len(made.y)}

    return Job(run)


RECORDS = (100, 316, 1000, 3162, 10_000, 31_623, 100_000)
CURVES = (
    # Up to 6,000 unknowns a Gram matrix is solved: its memory is the square of the records, its
    # factor costs the cube. Above, the first layer's equations are solved matrix-free: both linear
    # in the records, in the equations and in the number of iterations. The slope over all points
    # lies between the two laws.
    Growth(
        "decoding-records", "decoding an attribute, MLP 300-700-10, one full-batch round",
        "records", RECORDS, decoding.attribute, WIDER, time=2.0, memory=2.0,
    ),
    # Above 6,000 records the Gram matrix is not formed, and memory is that of the records.
    Growth(
        "decoding-large-model",
        "decoding an attribute, MLP 1000-1480-10 (1.5 million parameters), one full-batch round",
        "records", (1000, 5000, 20_000), decoding.attribute, LARGE, time=2.0, memory=1.0,
        peak=4.0,
    ),
    # K - 1 unknowns a record: the Gram matrix is their square, its factor their cube.
    Growth(
        "decoding-candidates", "decoding an attribute of 300 records, MLP 300-128-10, one round",
        "candidates", (2, 4, 8, 16, 32), decoding.attribute, WIDE, time=3.0, memory=2.0,
    ),
    # Models without hidden layers use every round; each adds its equations to a Gram matrix.
    Growth(
        "decoding-rounds", "decoding an attribute of 300 records, logistic regression of 50 inputs",
        "rounds", (10, 100, 1000), decoding.attribute, LOGISTIC, time=1.0, memory=1.0,
    ),
    # Per-record gradients are never built: a pass through the network and inner products of its
    # factors are linear in the parameters, in time and, by the factors (records x width) and a few
    # copies of the model, in memory. The solve does not depend on them: flat at first.
    Growth(
        "decoding-parameters", "decoding an attribute of 200 records, networks of growing width",
        "parameters", (1_000, 10_000, 100_000, 1_000_000, 10_000_000), _decoding_parameters, {},
        time=1.0, memory=1.0,
    ),
    # Every byte is written, hashed, read and hashed: linear. At small models the index and fsync
    # are all there is. Memory is that of the link that is read, which holds all rounds.
    Growth(
        "recording-parameters", "writing and reading ten rounds of two clients",
        "parameters", (1_000, 10_000, 100_000, 1_000_000, 10_000_000), _messages, {},
        time=1.0, memory=1.0,
    ),
    # Training, truth and side knowledge are linear in the clients; so is memory, which is the
    # records themselves and their copies on the way to the disk. Below a thousand clients what any
    # recording costs (libraries that write tables, a sync of each file) is most of both.
    Growth(
        "simulation-clients",
        "simulating and recording logistic regression of 50 inputs, 50 records a client",
        "clients", (10, 100, 1000, 10_000), _simulation, {}, time=1.0, memory=1.0,
    ),
    # One round after the other is read and let go: linear, what is kept is a few numbers a record.
    # The posterior of T rounds costs T^3, and all posteriors up to it a few times as much.
    Growth(
        "secure-aggregation-rounds",
        "detecting a property under secure aggregation, LeNet, 100 auxiliary records, 50 clients",
        "rounds", (10, 100, 1000), _detecting, {}, time=1.0, memory=0.5,
    ),
)  # fmt: skip
