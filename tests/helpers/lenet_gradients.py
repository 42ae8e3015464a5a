"""A LeNet from torch's own layers, and its gradients by vmap over autograd: slow, and right."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F

from overheard.programs import lenet
from overheard.programs.module import tensor
from overheard.programs.recipe import LeNet

Array = NDArray[np.floating[Any]]


def explicit_gradients(
    model: LeNet,
    theta: Array,
    inputs: Array,
    labels: Array,
    rng: np.random.Generator | None = None,
) -> Array:
    """The same gradients (n, P) written out, by vmap over autograd: for few records.

    With the same generator in the same state it draws the masks that `record_rows` draws.
    """

    def loss(flat: Tensor, x: Tensor, y: Tensor, drop: list[Tensor]) -> Tensor:
        outputs = lenet.forward(
            model, lenet.split(model, flat), x[None], [m[None] for m in drop] or None
        )
        return F.cross_entropy(outputs, y[None], reduction="sum")

    each = vmap(grad(loss), in_dims=(None, 0, 0, 0))
    made = []
    for part in lenet._chunks(len(labels)):
        y = torch.as_tensor(np.asarray(labels[part]).astype(np.int64))
        masks = None if rng is None else lenet.dropout_masks(model, (len(y),), theta.dtype, rng)
        drop = [tensor(m) for m in masks or ()]
        made.append(each(tensor(theta), tensor(inputs[part], theta.dtype), y, drop))
    return np.asarray(torch.cat(made).numpy())


class Twin(nn.Module):
    """The network as a torch user writes it, from torch's own layers, without dropout."""

    def __init__(self, model: LeNet, theta: np.ndarray) -> None:
        super().__init__()
        channels = (model.image[0], *model.filters)
        self.image = model.image
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5) for a, b in pairwise(channels))
        widths = (model.flattened, *model.hidden, model.outputs)
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
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
