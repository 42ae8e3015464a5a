"""Local models: the exact one of least squares, and xu2021's learned map, of many clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner.entry import Check, Entry, Facts, Job, Opponent, Side, Sizes
from overheard.randomness import stream

Array = NDArray[np.float64]
SUBSETS = 10_000


def _links(sizes: Sizes) -> tuple[Array, Array, Array]:
    """Models sent and returned (C, T, P) by least-squares clients, and their optima (C, P)."""
    rng = stream(0, "bench", "links")
    clients, rounds, size = sizes["clients"], sizes["rounds"], sizes["parameters"]
    sent, returned = np.empty((2, clients, rounds, size))
    optima = rng.normal(size=(clients, size))
    for c in range(clients):
        inputs = rng.normal(size=(4 * size, size))
        step = 0.3 * inputs.T @ inputs / len(inputs)
        sent[c] = rng.normal(size=(rounds, size)).astype(np.float32)
        returned[c] = (sent[c] - (sent[c] - optima[c]) @ step).astype(np.float32)
    return sent, returned, optima


def _error(found: Array, optima: Array) -> Facts:
    apart = np.linalg.norm(found - optima, axis=1) / np.linalg.norm(optima, axis=1)
    return {"worst_relative_error": float(apart.max())}


def _exact(sizes: Sizes, folder: Path) -> Job:
    from overheard.decoding.affine_map import fixed_points

    sent, returned, optima = _links(sizes)

    def run() -> Facts:
        found, fine = fixed_points(sent, returned)
        return _error(found, optima) | {"solved": int(fine.sum())}

    return Job(run)


def _map_and_optimum(sent: Array, update: Array) -> Array:
    """D = theta W' - W theta* by least squares on [theta, 1], then W theta* solved for theta*."""
    design = np.column_stack([sent, np.ones(len(sent))])
    found = np.linalg.lstsq(design, update, rcond=None)[0]
    return np.asarray(np.linalg.solve(found[:-1].T, -found[-1]))


def _lstsq(sizes: Sizes, folder: Path) -> Job:
    sent, returned, optima = _links(sizes)
    some = sizes["clients_shown"]

    def run() -> Facts:
        found = [_map_and_optimum(sent[c], sent[c] - returned[c]) for c in range(some)]
        return _error(np.array(found), optima[:some])

    return Job(run, some / sizes["clients"])


def _subsets(sizes: Sizes, folder: Path) -> Job:
    """d + 1 of the messages at random, the square system solved; the best fit to all is kept."""
    sent, returned, optima = _links(sizes)
    tried, size = sizes["subsets_shown"], sizes["parameters"]
    design = np.column_stack([sent[0], np.ones(sizes["rounds"])])
    update = sent[0] - returned[0]

    def run() -> Facts:
        rng = stream(0, "bench", "subsets")
        best, least = optima[0], np.inf
        for _ in range(tried):
            rows = rng.choice(len(design), size + 1, replace=False)
            found = np.linalg.solve(design[rows], update[rows])
            misfit = float(((design @ found - update) ** 2).sum())
            if misfit < least:
                best, least = np.linalg.solve(found[:-1].T, -found[-1]), misfit
        return _error(best[None], optima[:1])

    return Job(run, tried / (SUBSETS * sizes["clients"]))


def _maps(sizes: Sizes) -> tuple[Array, Array, Any]:
    from overheard.attacks.local_model.learned_map import LearnedMap

    sent, returned, _ = _links(sizes)
    settings = LearnedMap(
        hidden=sizes["hidden"], steps=sizes["steps"], search_steps=sizes["search_steps"]
    )
    return sent, sent - returned, settings


def _learned_together(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.local_model.learned_map import learn_maps

    sent, updates, settings = _maps(sizes)

    def run() -> Facts:
        _, loss, _ = learn_maps(sent, updates, settings, 0)
        # as a share of the updates' variance, which is the other side's unit
        total = ((updates - updates.mean(1, keepdims=True)) ** 2).sum((1, 2))
        return {"map_loss": float((loss / total).mean())}

    return Job(run, warm=lambda: learn_maps(sent[:1, :10], updates[:1, :10], settings, 0))


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
    h, w2 = torch.rand(rounds, hidden), torch.rand(hidden, size)

    def run() -> Facts:
        for _ in range(sizes["clients"] * sizes["steps"]):
            for left, right in ((x, w1), (h, w2), (h.T, x), (x, w2.T), (x.T, h)):
                torch.mm(left, right)
        return {}

    return Job(run)


ENTRIES = (
    Entry(
        "exact-local-model",
        "exact local model of least squares, d = 200, 100 clients, 300 messages each",
        Side("ours", _exact),
        (
            Opponent(
                Side("one lstsq per client", _lstsq),
                goal=10,
                checks=(
                    Check(
                        "every client solved, error below 1e-4",
                        lambda ours, _: ours["worst_relative_error"] < 1e-4,
                    ),
                ),
            ),
            Opponent(
                Side("random subsets (10,000)", _subsets),
                goal=1000,
                checks=(
                    Check(
                        "error no greater than the best subset's",
                        lambda ours, theirs: (
                            ours["worst_relative_error"] <= theirs["worst_relative_error"]
                        ),
                    ),
                ),
                note="d + 1 messages drawn at random, the best fit to all kept; a few subsets of "
                "one client are timed and scaled",
            ),
        ),
        {"clients": 100, "rounds": 300, "parameters": 200, "clients_shown": 10}
        | {"subsets_shown": 20},
        {"clients": 3, "rounds": 20, "parameters": 8, "clients_shown": 3, "subsets_shown": 5},
    ),
    Entry(
        "learned-map",
        "learned map (xu2021): 20 clients together, 61 parameters, 300 messages, 1000 hidden units",
        Side("ours", _learned_together),
        (
            Opponent(
                Side("one client at a time, torch.nn and Adam", _learned_one_by_one),
                goal=3,
                note="On one thread the matrix products of the training are the work, and they "
                "are the same products for one client or for twenty: batching saves only what "
                "Python and autograd add to them. The ratio at the limit is that of the bare "
                "products. Twenty clients in one product were slower than one at a time (their "
                "activations leave the cache); two at a time and one fused step of Adam are "
                "what is measured.",
            ),
        ),
        {"clients": 20, "rounds": 300, "parameters": 61, "hidden": 1000, "steps": 6}
        | {"search_steps": 3, "clients_shown": 20},
        {"clients": 3, "rounds": 10, "parameters": 5, "hidden": 8, "steps": 3}
        | {"search_steps": 2, "clients_shown": 2},
        Side("the matrix products alone", _products),
    ),
)
