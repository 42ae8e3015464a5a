"""What most people would write: a loop over clients, torch.nn, torch.optim.SGD, autograd.

No batching over clients and nothing of ours in it; one module is used for all clients, as in the
usual simulations, and records are indexed as tensors (a DataLoader would be several times slower).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


def network(sizes: Sequence[int]) -> nn.Sequential:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def loss_for(outputs: int) -> nn.Module:
    """Cross-entropy; of one output, binary."""
    return nn.CrossEntropyLoss() if outputs > 1 else nn.BCEWithLogitsLoss()


def train(
    net: nn.Module, loss: nn.Module, inputs: Tensor, labels: Tensor, batch: int, rate: float
) -> None:
    """One local epoch of mini-batches."""
    optimiser = torch.optim.SGD(net.parameters(), lr=rate)
    order = torch.randperm(len(labels))
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        optimiser.zero_grad()
        loss(net(inputs[chosen]), labels[chosen]).backward()
        optimiser.step()


def federated_averaging(
    sizes: Sequence[int], inputs: Tensor, labels: Tensor, batch: int, rate: float, rounds: int
) -> Weights:
    """The global model after so many rounds; inputs (C, n, d), labels (C, n) or (C, n, 1)."""
    net, loss = network(sizes), loss_for(sizes[-1])
    model: dict[str, Any] = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(rounds):
        total = {name: torch.zeros_like(value) for name, value in model.items()}
        for x, y in zip(inputs, labels, strict=True):
            net.load_state_dict(model)
            train(net, loss, x, y, batch, rate)
            for name, value in net.state_dict().items():
                total[name] += value
        model = {name: value / len(inputs) for name, value in total.items()}
    return model
