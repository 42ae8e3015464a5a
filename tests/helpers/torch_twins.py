"""The slow, obviously right versions: torch.nn and its autograd, one record at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from overheard.programs.dense import split
from overheard.programs.recipe import Dense


def torch_twin(model: Dense, theta: np.ndarray) -> nn.Sequential:
    """The same network built from torch's own layers, in double precision or theta's."""
    activation = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[model.activation]
    dtype = torch.float64 if theta.dtype == np.float64 else torch.float32
    layers: list[nn.Module] = []
    for k, (weight, bias) in enumerate(split(model, theta)):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=model.bias, dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            if bias is not None:
                layer.bias.copy_(torch.tensor(bias))
        layers += [layer] if k == model.depth - 1 else [layer, activation()]
    return nn.Sequential(*layers)


def torch_loss(loss: str, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of a batch by torch's own functions."""
    if loss == "squared_error":
        return nn.functional.mse_loss(outputs[:, 0], labels)
    if outputs.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels)
    return nn.functional.cross_entropy(outputs, labels.long())


def flat(module: nn.Module, gradient: bool = False) -> np.ndarray:
    parts = [p.grad if gradient else p.detach() for p in module.parameters()]
    return np.concatenate([np.asarray(p).ravel() for p in parts if p is not None])
