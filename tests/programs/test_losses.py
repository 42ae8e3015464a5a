"""Losses: numpy's derivatives against torch's autograd of the torch side."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from overheard.errors import FixConfig
from overheard.programs.losses import LOSSES, loss_named


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
