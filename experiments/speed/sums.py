"""Secure aggregation: one round's detector, and who has the property after many rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.speed.measure import Comparison, Facts, Job, Party, Sizes
from overheard.randomness import stream

Array = NDArray[Any]
CLASSES, SIDE, BATCH, RATE = 10, 28, 10, 0.01


def images(count: int, salt: str) -> tuple[Array, Array]:
    """Generated grey images (n, 784): ten blurred patterns and noise; and their classes."""
    patterns = stream(0, "bench", "patterns").random((CLASSES, SIDE, SIDE)).astype(np.float32)
    rng = stream(0, "bench", "images", salt)
    labels = rng.integers(CLASSES, size=count)
    noise = rng.normal(0, 0.5, size=(count, SIDE * SIDE)).astype(np.float32)
    return patterns[labels].reshape(count, -1) + noise, labels.astype(np.float64)


def adversary_for(sizes: Sizes) -> Any:
    """Who hears sums of LeNet clients and holds auxiliary records and one target record."""
    from overheard.attacks.property import Adversary, Known
    from overheard.programs.recipe import LeNet, Recipe, Target
    from overheard.programs.records import Encoding, Pixels

    model = LeNet(image=(1, SIDE, SIDE), dropout=0.5, outputs=CLASSES)
    recipe = Recipe(
        model=model,
        loss="cross_entropy",
        encoding=Encoding(blocks=(Pixels(column="image", shape=(1, SIDE, SIDE)),)),
        target=Target(column="y", classes=tuple(range(CLASSES))),
        learning_rate=RATE,
        batch_size=BATCH,
    )
    mine, target = Known(*images(sizes["auxiliary"], "mine")), Known(*images(1, "target"))
    return Adversary(recipe, mine, sizes["shard"], 50, target, "")


def observed(adversary: Any, rounds: int | None = None) -> Iterator[Any]:
    """Sums of ten clients a round, at models that hardly move."""
    from overheard.programs.networks import initial
    from overheard.transcript.kind import RoundSum

    rng = stream(0, "bench", "sums")
    theta = initial(adversary.recipe.model, 0)
    number = 0
    while rounds is None or number < rounds:
        total = rng.normal(0, 1e-4, size=len(theta))
        who = np.sort(rng.choice(50, 10, replace=False))
        yield RoundSum(number, theta.astype(np.float32), total, who)
        theta, number = theta - total / 10, number + 1


def _matched_filter(sizes: Sizes, folder: Path) -> Job:
    """A round in the middle of a recording: the first has to make all blocks of gradients."""
    from overheard.attacks.property import outputs

    adversary = adversary_for(sizes)
    rounds = outputs(adversary, observed(adversary), stream(0, "bench", "filter"))

    def run() -> Facts:
        return {"y": float(next(rounds).y[0])}

    return Job(run, warm=lambda: [next(rounds) for _ in range(2)])


def lenet_module(model: Any) -> Any:
    """The same LeNet from torch.nn."""
    from torch import nn

    first, second = model.filters
    return nn.Sequential(
        nn.Conv2d(1, first, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(model.dropout), nn.Linear(model.sizes[0], model.hidden[0]), nn.ReLU(),
        nn.Dropout(model.dropout), nn.Linear(model.hidden[0], model.outputs),
    )  # fmt: skip


def _shadows(sizes: Sizes, folder: Path) -> Job:
    """kerkouche2023 section 5.1.2: train a model on own records, once per simulated client."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    from experiments.speed.simulation import train
    from overheard.attacks.papers.kerkouche2023 import Options, train_detector
    from overheard.programs.networks import initial

    adversary = adversary_for(sizes)
    count, shown = 2 * sizes["auxiliary"], sizes["shadows_shown"]
    theta = torch.from_numpy(initial(adversary.recipe.model, 0)).float()
    net, loss = lenet_module(adversary.recipe.model), torch.nn.CrossEntropyLoss()
    inputs = torch.from_numpy(adversary.auxiliary.inputs).reshape(-1, 1, SIDE, SIDE)
    labels = torch.from_numpy(adversary.auxiliary.labels).long()
    own = torch.from_numpy(adversary.targets.inputs).reshape(1, 1, SIDE, SIDE)
    label = torch.from_numpy(adversary.targets.labels).long()

    def updates(many: int) -> tuple[Array, Array]:
        has = np.arange(many) % 2 == 1
        made = np.empty((many, len(theta)), np.float32)
        for k in range(many):
            rows = torch.randperm(len(labels))[: adversary.shard]
            x, y = inputs[rows], labels[rows]
            if has[k]:
                x[0], y[0] = own[0], label[0]
            with torch.no_grad():
                vector_to_parameters(theta.clone(), net.parameters())
            train(net, loss, x, y)
            with torch.no_grad():
                made[k] = (theta - parameters_to_vector(net.parameters())).numpy()
        return made, has

    def run() -> Facts:
        made, has = updates(shown)
        told = train_detector(made, has, Options(), stream(0, "bench", "detector"))
        return {"overlap": told.overlap}

    return Job(run, shown / count, lambda: updates(5))


def evidence_for(sizes: Sizes) -> Any:
    """What the rounds would tell of a tenth of the clients."""
    from overheard.decoding.client_sets import Evidence

    rng = stream(0, "bench", "evidence")
    rounds, clients = sizes["rounds"], sizes["clients"]
    takes_part = np.argsort(rng.random((rounds, clients)), axis=1) < max(1, clients // 5)
    tau = np.arange(clients) < clients // 10
    effect = np.full(rounds, 3.0)
    lean = rng.normal(0, 0.3, clients)
    y = takes_part @ (tau * 3.0 + lean) + rng.normal(size=rounds) * np.sqrt(takes_part.sum(1))
    few = np.full(rounds, 0.05)
    common = np.full((rounds, rounds), 0.09)
    doubt = 0.0025 * (common + 0.91 * np.eye(rounds))
    return Evidence(y, effect, few, doubt, takes_part.astype(np.float64), common), tau


def _mixed(sizes: Sizes, folder: Path) -> Job:
    from overheard.decoding.client_sets import posterior

    evidence, tau = evidence_for(sizes)

    def run() -> Facts:
        found = posterior(evidence)
        return _scores(found.probabilities, found.chosen, tau)

    return Job(run)


def _scores(probabilities: Array, chosen: Array, tau: Array) -> Facts:
    """Of who is named, and of the probabilities."""
    f1 = 2 * (chosen & tau).sum() / (chosen.sum() + tau.sum())
    return {"f1": float(f1), "brier": float(((probabilities - tau) ** 2).mean())}


def _relaxed(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.kerkouche2023 import (
        Detected,
        Detector,
        Options,
        above_half,
        prolin,
    )

    evidence, tau = evidence_for(sizes)
    level = np.ones(len(evidence.y))
    detectors = Detector(level, 0 * level, 3 * level, level, 0 * level, level, 0.1 * level)
    observed = Detected(np.diag(evidence.y), detectors, evidence.participation)

    def run() -> Facts:
        found = prolin(observed, Options(steps=sizes["steps"]))
        return _scores(found, above_half(found), tau)

    return Job(run)


def _algebra(sizes: Sizes, folder: Path) -> Job:
    """The likelihood of "nobody" alone: a Cholesky factor for each scale s."""
    from overheard.decoding.client_sets import Options, nobody_likelihoods

    evidence, _ = evidence_for(sizes)

    def run() -> Facts:
        nobody_likelihoods(evidence, Options())
        return {}

    return Job(run)


LINES = (
    # clients of 30 records; a round in the middle of a recording
    Comparison(
        "secure-aggregation",
        "secure aggregation, one round, 6,000 auxiliary records, LeNet (21,840 parameters)",
        _matched_filter,
        Party("12,000 shadow updates one at a time, detector by SGD", _shadows),
        {"auxiliary": 6000, "shard": 30, "shadows_shown": 120},
        {"auxiliary": 100, "shard": 10, "shadows_shown": 20},
        goal=150,
    ),
    # Not the same answer: the relaxation gives one point, ours a posterior with its marginal
    # likelihood, by expectation propagation at the few noise levels that are plausible; its F1 and
    # Brier score must not be worse. What is possible is the likelihood of nobody alone, at all
    # noise levels.
    Comparison(
        "mixed-model",
        "who has the property: posterior over sets, N = 200 clients, 300 rounds",
        _mixed,
        Party("PROLIN's relaxed optimisation (3000 steps)", _relaxed),
        {"clients": 200, "rounds": 300, "steps": 3000},
        {"clients": 10, "rounds": 15, "steps": 20},
        goal=20,
        limit=_algebra,
        check=lambda ours, theirs: bool(
            ours["f1"] >= theirs["f1"] and ours["brier"] <= theirs["brier"]
        ),
    ),
)
