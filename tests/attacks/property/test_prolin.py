"""PROLIN's regression and its search, on features whose clients are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from overheard.attacks.papers.kerkouche2023 import (
    Detected,
    Detector,
    Losses,
    MTAdam,
    Options,
    prolin,
)

pytestmark = pytest.mark.slow


def seen(sums, weights, plus, wide, minus, narrow, there) -> Detected:
    """Detectors of these distributions and weights, whose features of the sums are these."""
    none = np.zeros(len(sums))
    return Detected(
        np.diag(sums), Detector(none, none, plus, wide, minus, narrow, 1 - weights), there
    )


def features(
    rng: np.random.Generator, rounds: int = 120, noise: float = 0.3
) -> tuple[Detected, np.ndarray]:
    a = (rng.random((rounds, 15)) < 0.25).astype(float)
    positive = np.arange(15) < 3
    own = np.where(positive, 1.0, -1.0) + noise * rng.normal(size=(rounds, 15))
    full = np.ones(rounds)
    made = seen((a * own).sum(axis=1), 0.9 * full, full, noise**2 * full, -full, noise**2 * full, a)
    return made, positive


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_three_losses(seed: int) -> None:
    """The paper's losses written down as they stand, differentiated by torch."""
    rng = np.random.default_rng(seed)
    rounds, clients = 12, 6
    there = rng.random((rounds, clients)) < 0.5
    there[:, 5] = False
    made = seen(
        rng.normal(size=rounds), rng.uniform(0.2, 1, rounds), rng.normal(1, 0.3, rounds),
        rng.uniform(0.5, 3, rounds), rng.normal(-1, 0.3, rounds), rng.uniform(0.5, 3, rounds),
        there.astype(float),
    )  # fmt: skip
    expected = rng.normal(size=clients)
    problem, d = Losses(made, expected), made.detectors
    unit = np.sqrt((d.variance_with + d.variance_without) / 2).mean()
    tau = torch.tensor(rng.uniform(0.1, 0.9, clients), requires_grad=True)
    start = np.where(there, rng.normal(size=(rounds, clients)), 0.0)
    x = torch.tensor(start, requires_grad=True)  # in units of ``unit``
    feature = x * unit
    dense = [
        torch.distributions.Normal(*(torch.tensor(v)[:, None] for v in (mean, np.sqrt(variance))))
        for mean, variance in (
            (d.mean_with, d.variance_with),
            (d.mean_without, d.variance_without),
        )
    ]
    mask = torch.tensor(there)
    plus, minus = (torch.where(mask, d.log_prob(feature), 0.0).sum(0) for d in dense)
    likelihood = -torch.logaddexp(torch.log(tau) + plus, torch.log(1 - tau) + minus).sum()
    took = torch.tensor(np.maximum(there.sum(axis=0), 1))
    level = ((feature.sum(0) / took - torch.tensor(expected)) ** 2).sum() / unit**2
    missing = feature.sum(1) - torch.tensor(made.aggregates)
    whole = (torch.tensor(1 - d.overlap) * missing**2).sum() / unit**2
    by_tau, by_x = problem.gradients(tau.detach().numpy(), start)
    for loss, found in zip((likelihood, level, whole), by_x, strict=True):
        (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
        np.testing.assert_allclose(found, np.where(there, slope.numpy(), 0.0), atol=1e-9)
    (slope,) = torch.autograd.grad(likelihood, tau)
    np.testing.assert_allclose(by_tau, slope.numpy(), atol=1e-9)


def test_finds_the_positive_clients() -> None:
    made, positive = features(np.random.default_rng(1))
    tau = prolin(made)
    assert ((tau > 0.5) == positive).all()
    assert ((tau >= 0) & (tau <= 1)).all()


def test_one_loss_is_adam() -> None:
    """MTAdam with a single loss takes Adam's steps."""
    rng = np.random.default_rng(3)
    memory, m, v = MTAdam(1, (4,), Options(step_size=0.1)), np.zeros(4), np.zeros(4)
    for turn in range(1, 6):
        gradient = rng.normal(size=4)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = -0.1 * (m / (1 - 0.9**turn)) / (np.sqrt(v / (1 - 0.999**turn)) + 1e-8)
        np.testing.assert_allclose(memory.step([gradient]), step)
