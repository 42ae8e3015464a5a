"""Local models: xu2021's learned map, of many clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.speed.measure import Comparison, Facts, Job, Party, Sizes
from overheard.randomness import stream

Array = NDArray[np.float64]


def _links(sizes: Sizes) -> tuple[Array, Array]:
    """Models sent and returned (C, T, P) by least-squares clients."""
    rng = stream(0, "bench", "links")
    clients, rounds, size = sizes["clients"], sizes["rounds"], sizes["parameters"]
    sent, returned = np.empty((2, clients, rounds, size))
    optima = rng.normal(size=(clients, size))
    for c in range(clients):
        inputs = rng.normal(size=(4 * size, size))
        step = 0.3 * inputs.T @ inputs / len(inputs)
        sent[c] = rng.normal(size=(rounds, size)).astype(np.float32)
        returned[c] = (sent[c] - (sent[c] - optima[c]) @ step).astype(np.float32)
    return sent, returned


def _maps(sizes: Sizes) -> tuple[Array, Array, Any]:
    from overheard.attacks.papers.xu2021 import LearnedMap

    sent, returned = _links(sizes)
    settings = LearnedMap(
        hidden=sizes["hidden"], steps=sizes["steps"], search_steps=sizes["search_steps"]
    )
    return sent, sent - returned, settings


def _learned(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.xu2021 import learn_map

    sent, updates, settings = _maps(sizes)

    def run() -> Facts:
        losses = []
        for x, y in zip(sent, updates, strict=True):
            # as a share of the updates' variance, which is the other side's unit
            losses.append(learn_map(x, y, settings, 0)[1] / ((y - y.mean(axis=0)) ** 2).sum())
        return {"map_loss": float(np.mean(losses))}

    return Job(run, warm=lambda: learn_map(sent[0, :10], updates[0, :10], settings, 0))


def _learned_one_by_one(sizes: Sizes, folder: Path) -> Job:
    """xu2021's map and search with torch.nn and torch.optim.Adam, client after client."""
    import torch
    from torch import nn

    sent, updates, settings = _maps(sizes)
    size, some = sizes["parameters"], sizes["clients_shown"]

    def one(x: Any, y: Any, steps: int) -> float:
        net = nn.Sequential(
            nn.Linear(size, settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, size)
        )
        train = torch.optim.Adam(net.parameters(), lr=settings.rate)
        for _ in range(steps):
            train.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            train.step()
        for weight in net.parameters():
            weight.requires_grad_(False)
        theta = x[-1:].clone().requires_grad_(True)
        search = torch.optim.Adam([theta], lr=settings.search_rate)
        for _ in range(settings.search_steps):
            search.zero_grad()
            (net(theta) ** 2).mean().backward()
            search.step()
        return float(loss.detach())

    def pair(client: int) -> tuple[Any, Any]:
        x, y = sent[client], updates[client]
        x, y = (x - x.mean(0)) / x.std(0), (y - y.mean(0)) / y.std()
        return torch.from_numpy(x).float(), torch.from_numpy(y).float()

    def run() -> Facts:
        losses = [one(*pair(c), settings.steps) for c in range(some)]
        return {"map_loss": float(np.mean(losses))}

    return Job(run, some / sizes["clients"], lambda: one(*pair(0), 1))


def _products(sizes: Sizes, folder: Path) -> Job:
    """The matrix products of the training alone: two forward, three backward, a step and client."""
    import torch

    hidden, size, rounds = sizes["hidden"], sizes["parameters"], sizes["rounds"]
    x, w1 = torch.rand(rounds, size), torch.rand(size, hidden)
    h, w2 = torch.rand(rounds, hidden), torch.rand(size, hidden)

    def run() -> Facts:
        for _ in range(sizes["clients"] * sizes["steps"]):
            for left, right in ((x, w1), (w2, h.T), (x.T, h), (x, w2), (x.T, h)):
                torch.mm(left, right)
        return {}

    return Job(run)


SIZES = {"clients": 20, "rounds": 300, "parameters": 61, "hidden": 1000, "steps": 6}
SIZES |= {"search_steps": 3, "clients_shown": 20}
QUICK = {"clients": 3, "rounds": 10, "parameters": 5, "hidden": 8, "steps": 3}
QUICK |= {"search_steps": 2, "clients_shown": 2}
LINES = (
    # On one thread the matrix products of the training are the work, and they are the same products
    # for one client or for twenty: batching saves only what Python and autograd add to them. What
    # is possible is the bare products. Twenty clients in one product were slower than one at a time
    # (their activations leave the cache); one fused step of Adam is what is measured.
    Comparison(
        "learned-map",
        "learned map (xu2021): 20 clients together, 61 parameters, 300 messages, 1000 hidden units",
        _learned,
        Party("one client at a time, torch.nn and Adam", _learned_one_by_one),
        SIZES,
        QUICK,
        goal=1.5,
        limit=_products,
    ),
)
