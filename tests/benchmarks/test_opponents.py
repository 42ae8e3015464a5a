"""Opponents are no straw men: their loops cost what the plainest code costs.

Neither is PROLIN's relaxation, which is faster than ours (docs/benchmarks.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.entries import attribute, local_model, simulation, sums
from benchmarks.entries.plain_torch import federated_averaging, network, train
from overheard.programs.networks import initial
from overheard.programs.training import local_training, shards
from overheard.randomness import stream

# ratios of processor time, run by `pytest -m timing`: whatever else a machine does can tip them
pytestmark = pytest.mark.timing
SIZES = {"clients": 3, "records": 20, "inputs": 30, "hidden": 8, "outputs": 3, "rounds": 1}


def slower(ours: Callable[[], object], plain: Callable[[], object], times: int = 15) -> float:
    """How many times as long ours takes, in processor time.

    In turn, and the least of each, because what else the machine does only adds; and the least of
    three goes, because it may add to one of them all along.
    """
    ours(), plain()
    ratios = []
    for _ in range(3):
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(times):
            for run, seconds in zip((ours, plain), taken, strict=True):
                begin = time.process_time()
                run()
                seconds.append(time.process_time() - begin)
        ratios.append(min(taken[0]) / min(taken[1]))
    return min(ratios)


def test_the_plain_loop_is_as_fast_as_bare_torch_calls() -> None:
    """Against the fewest torch calls that do the same work: no optimiser, no module, no copies."""
    inputs, labels = simulation.people(SIZES)
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    widths = simulation.shape(SIZES)

    def bare() -> None:
        w1, b1, w2, b2 = (p.detach().clone() for p in network(widths).parameters())
        for _ in range(SIZES["rounds"]):
            for client in range(len(x)):
                own = [p.clone().requires_grad_(True) for p in (w1, b1, w2, b2)]
                order = torch.randperm(len(y[client]))
                for begin in range(0, len(order), 10):
                    rows = order[begin : begin + 10]
                    hidden = torch.relu(torch.nn.functional.linear(x[client][rows], *own[:2]))
                    out = torch.nn.functional.linear(hidden, *own[2:])
                    loss = torch.nn.functional.cross_entropy(out, y[client][rows])
                    slopes = torch.autograd.grad(loss, own)
                    with torch.no_grad():
                        for p, slope in zip(own, slopes, strict=True):
                            p -= 0.05 * slope

    def loop() -> None:
        federated_averaging(widths, x, y, 10, 0.05, SIZES["rounds"])

    bare(), loop()
    # the optimiser, its zeroing and the copies of the model are what anybody would pay
    assert slower(loop, bare, 7) < 3


def test_the_plain_loop_learns_what_ours_learns() -> None:
    """The same records, rates and batches: one client, one batch, so that no order matters."""
    sizes = {**SIZES, "clients": 1, "records": 10}
    recipe, (inputs, labels) = simulation.recipe_for(sizes), simulation.people(sizes)
    theta = initial(recipe.dense, 3).astype(np.float32)
    data = shards(list(inputs), list(labels), "float32")
    ours = local_training(recipe, theta, data, stream(0, "x"))[0]
    net = network(simulation.shape(sizes))
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    x, y = torch.from_numpy(inputs[0]), torch.from_numpy(labels[0])
    train(net, torch.nn.CrossEntropyLoss(), x, y, 10, simulation.RATE)
    theirs = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


class PlainMatching:
    """The least torch code that a search needs: the gradient of a network at mixed inputs."""

    def __init__(self, problem: Any) -> None:
        widths = problem.net.model.sizes
        self.problem, self.labels = problem, problem.labels.long()
        self.splits = [widths[1] * widths[0], widths[1], widths[2] * widths[1], widths[2]]
        shapes = [(widths[1], widths[0]), (widths[1],), (widths[2], widths[1]), (widths[2],)]
        parts = torch.split(problem.thetas[0].clone(), self.splits)
        both = zip(parts, shapes, strict=True)
        self.weights = [part.reshape(shape).requires_grad_(True) for part, shape in both]

    def gradient(self, shares: torch.Tensor) -> torch.Tensor:
        inputs = (shares.T[:, :, None] * self.problem.candidates).sum(dim=0)
        hidden = torch.relu(inputs @ self.weights[0].T + self.weights[1])
        out = hidden @ self.weights[2].T + self.weights[3]
        loss = torch.nn.functional.cross_entropy(out, self.labels)
        slopes = torch.autograd.grad(loss, self.weights, create_graph=True)
        return torch.cat([s.ravel() for s in slopes])


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from overheard.attacks.papers.lyu2021 import matching

    sizes = {"records": 300, "inputs": 60, "hidden": 32, "classes": 5, "values": 2}
    view, _ = attribute.view_of(sizes, tmp_path_factory.mktemp("matching"))
    return matching(view)


def test_our_cosine_search_is_as_fast_as_plain_autograd(problem: Any) -> None:
    """cos-matching is ours to write: at most 1.2 times a minimal torch version of Algorithm 1."""
    from overheard.attacks.papers.lyu2021 import cosine_searches

    start = torch.zeros(300, 2, dtype=torch.float64)
    bare = PlainMatching(problem)

    def plain() -> None:
        logits = start.clone().requires_grad_(True)
        search = torch.optim.Adam([logits], lr=0.1)
        for _ in range(5):
            search.zero_grad()
            flat = bare.gradient(torch.softmax(logits, dim=1))
            cosine = torch.nn.functional.cosine_similarity(flat[None], problem.heard[:1])
            (1 - cosine).mean().backward()
            search.step()

    def ours() -> None:
        cosine_searches(problem, [np.arange(1)], (start,), (1.0,), 5, 0.1)

    assert slower(ours, plain) < 1.2


@pytest.mark.parametrize("theme", [attribute, local_model, sums])
def test_every_party_runs_at_small_sizes(theme: Any, tmp_path: Path) -> None:
    """Each party in this process, once, with the checks that need no clock."""
    for entry in theme.ENTRIES:
        folder = tmp_path / entry.name
        folder.mkdir()
        facts = {}
        for name, side in entry.sides().items():
            job = side.prepare(entry.quick, folder)
            if job.warm is not None:
                job.warm()
            facts[name] = job.run()
        for opponent in entry.opponents:
            for check in opponent.checks:
                if check.says != "accuracy is higher":  # a matter of real sizes
                    assert check.holds(facts["ours"], facts[opponent.side.name]), entry.name
