"""Per-record gradients of any torch module: for layers that are not dense.

A decoder needs one gradient per record and candidate value. `torch.func` makes them for a whole
chunk of records at once (vmap over grad), whatever the layers, as long as the module treats records
one by one (no batch normalisation in training mode). They are P numbers a record: for small models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap

Array = NDArray[np.float64]
Loss = Callable[[Tensor, Tensor], Tensor]


def flat_parameters(module: torch.nn.Module) -> Array:
    """The module's parameters (P,) in the order of ``named_parameters``."""
    parts = [p.detach().reshape(-1) for p in module.parameters()]
    return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)


def record_gradients(
    module: torch.nn.Module,
    loss: Loss,
    theta: Array,
    inputs: NDArray[np.floating],
    labels: NDArray[np.generic],
    chunk: int = 256,
) -> Array:
    """Gradients (n, P) of each record's loss at the parameters ``theta``, in float64.

    ``loss(outputs, labels)`` is of one record: outputs without the batch axis, and its label.
    The module itself is left as it is.
    """
    shapes = {name: p.shape for name, p in module.named_parameters()}
    flat = torch.as_tensor(theta, dtype=torch.float64)
    pieces = torch.split(flat, [s.numel() for s in shapes.values()])
    parameters = {n: v.reshape(s) for (n, s), v in zip(shapes.items(), pieces, strict=True)}
    buffers = {n: b.double() if b.is_floating_point() else b for n, b in module.named_buffers()}

    def one(named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(module, (named, buffers), (x[None],))
        return loss(outputs[0], y)

    each = vmap(grad(one), in_dims=(None, 0, 0))
    x = torch.as_tensor(np.ascontiguousarray(inputs), dtype=torch.float64)
    y = torch.as_tensor(np.ascontiguousarray(labels))
    rows = []
    for start in range(0, len(x), chunk):
        made = each(parameters, x[start : start + chunk], y[start : start + chunk])
        rows.append(torch.cat([made[n].flatten(1) for n in shapes], dim=1).detach().numpy())
    return np.concatenate(rows)
