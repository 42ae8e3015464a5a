"""Update rules against torch's own optimisers, in numpy and in torch; losses: numpy's derivatives
against autograd of the torch side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trainings import recipe_of

from overheard.errors import FixConfig
from overheard.programs.losses import LOSSES, loss_named
from overheard.programs.recipe import Adam, Dense, Recipe, Sgd
from overheard.programs.rules import Rule, rule_of

STEPS, SIZE = 7, 5


def recipe(**settings: Any) -> Recipe:
    return recipe_of(Dense(inputs=1), learning_rate=0.05, **settings)


def taken(rule: Rule, start: Any, gradients: Any) -> Any:
    theta, state = start, rule.init(start)
    for gradient in gradients:
        step, state = rule.update(gradient, state, theta)
        theta = theta + step
    return theta


CASES: list[tuple[dict[str, Any], Any]] = [
    ({}, lambda p: torch.optim.SGD(p, 0.05)),
    ({"clip_norm": 1.5}, lambda p: torch.optim.SGD(p, 0.05)),
    (
        {"optimiser": Sgd(momentum=0.9, weight_decay=0.1)},
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
    ),
    (
        {"optimiser": Sgd(momentum=0.8, dampening=0.3)},
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, dampening=0.3),
    ),
    (
        {"optimiser": Sgd(momentum=0.8, nesterov=True)},
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, nesterov=True),
    ),
    (
        {"optimiser": Adam(betas=(0.8, 0.99), weight_decay=0.1)},
        lambda p: torch.optim.Adam(p, 0.05, betas=(0.8, 0.99), weight_decay=0.1),
    ),
    (
        {"optimiser": Adam(weight_decay=0.1, decoupled=True, eps=1e-3)},
        lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.1, eps=1e-3),
    ),
]


@pytest.mark.parametrize(("settings", "optimiser"), CASES)
def test_steps_as_torch_does(
    settings: dict[str, Any], optimiser: Any, rng: np.random.Generator
) -> None:
    start, gradients = rng.normal(size=SIZE), rng.normal(size=(STEPS, SIZE))
    parameter = torch.nn.Parameter(torch.tensor(start))
    theirs = optimiser([parameter])
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([parameter], settings.get("clip_norm", np.inf))
        theirs.step()
    rule = rule_of(recipe(**settings))
    np.testing.assert_allclose(taken(rule, start, gradients), parameter.detach(), rtol=1e-12)
    ours = taken(rule, torch.tensor(start), torch.tensor(gradients))
    np.testing.assert_allclose(ours, parameter.detach(), rtol=1e-12)


def test_float32_stays_float32(rng: np.random.Generator) -> None:
    start = rng.normal(size=SIZE).astype(np.float32)
    gradients = rng.normal(size=(STEPS, SIZE)).astype(np.float32)
    for settings, _ in CASES:
        assert taken(rule_of(recipe(**settings)), start, gradients).dtype == np.float32


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("width", [1, 4])
def test_numpy_and_torch_agree(name: str, width: int, rng: np.random.Generator) -> None:
    loss = loss_named(name)
    if loss.single and width > 1:
        width = 1
    outputs = rng.normal(size=(9, width))
    labels = rng.normal(size=9)
    if loss.classes:
        labels = rng.integers(max(width, 2), size=9).astype(float)
    if name == "binary_cross_entropy":
        outputs = 1 / (1 + np.exp(-outputs))
    if name == "poisson":
        labels = rng.poisson(2, size=9).astype(float)
    tensor = torch.tensor(outputs, requires_grad=True)
    values = loss.of_tensors(tensor, torch.tensor(labels))
    np.testing.assert_allclose(loss.values(outputs, labels), values.detach(), rtol=1e-10)
    (slope,) = torch.autograd.grad(values.sum(), tensor)
    np.testing.assert_allclose(loss.errors(outputs, labels), slope, rtol=1e-8, atol=1e-12)


def test_an_unknown_loss_is_named() -> None:
    with pytest.raises(FixConfig, match="unknown loss 'hinge'"):
        loss_named("hinge")
