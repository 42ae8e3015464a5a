"""The slow, obviously right versions: torch.nn and its autograd, one record at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from overheard.programs.networks import split
from overheard.programs.recipe import Dense, LeNet


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
        layers += [layer] if k == len(model.hidden) else [layer, activation()]
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


def by_torch(
    model: Dense | LeNet, loss: str, theta: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Gradients (n, P) of the records' losses, by autograd and one record at a time."""
    twin = LeNetTwin(model, theta) if isinstance(model, LeNet) else torch_twin(model, theta)
    return by_autograd(twin, loss, inputs, labels)


def by_autograd(
    network: nn.Module, loss: str, inputs: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """The same of any module."""
    rows, trained = [], [p for p in network.parameters() if p.requires_grad]
    for x, y in zip(torch.tensor(inputs), torch.tensor(labels), strict=True):
        outputs = network(x[None]).reshape(1, -1)
        made = torch.autograd.grad(torch_loss(loss, outputs, y[None]), trained)
        rows.append(torch.cat([g.flatten() for g in made]).numpy())
    return np.array(rows)


class LeNetTwin(nn.Module):
    """A LeNet as a torch user writes it, from torch's own layers, without dropout."""

    def __init__(self, model: LeNet, theta: np.ndarray) -> None:
        super().__init__()
        channels = (model.image[0], *model.filters)
        self.image = model.image
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5) for a, b in pairwise(channels))
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(model.sizes))
        self.double()
        nn.utils.vector_to_parameters(torch.tensor(theta), self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(-1, *self.image)
        for conv in self.convs:
            x = nn.functional.max_pool2d(torch.relu(conv(x)), 2)
        x = x.flatten(1)
        for k, layer in enumerate(self.dense):
            x = layer(torch.relu(x) if k else x)
        return x
