"""Dense networks in torch, for adversaries who search: gradients that can be differentiated.

The same formulas as `overheard.programs.dense` (tests compare them), written for torch so that a
search can follow the derivative of a model's gradient by the records' inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from overheard.programs.dense import split
from overheard.programs.losses import loss_named
from overheard.programs.recipe import Dense

_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": (torch.relu, lambda out: (out > 0).to(out.dtype)),
    "tanh": (torch.tanh, lambda out: 1 - out * out),
    "sigmoid": (torch.sigmoid, lambda out: out * (1 - out)),
}


def mean_gradients(
    model: Dense, loss: str, thetas: Tensor, inputs: Tensor, labels: Tensor
) -> Tensor:
    """Gradients (T, P) of the mean loss at each of the models (T, P).

    ``inputs`` (m, d); ``labels`` (m,) numbers or class indices, or (m, outputs) class shares.
    Differentiable by inputs and labels.
    """
    activate, slope = _ACTIVATIONS[model.activation]
    parts: list[tuple[Tensor, Tensor | None]] = split(model, thetas)  # type: ignore[arg-type,assignment]
    trace = [inputs.expand(len(thetas), *inputs.shape)]
    for layer, (weight, bias) in enumerate(parts):
        out = trace[-1] @ weight.transpose(-1, -2)
        if bias is not None:
            out = out + bias[:, None, :]
        trace.append(out if layer == model.depth - 1 else activate(out))
    delta = _output_error(loss, trace[-1], labels) / len(inputs)
    gradients: list[Tensor] = []
    for layer in range(model.depth - 1, -1, -1):
        weight, bias = parts[layer]
        if bias is not None:
            gradients.append(delta.sum(dim=1))
        gradients.append((delta.transpose(-1, -2) @ trace[layer]).flatten(1))
        if layer:
            delta = (delta @ weight) * slope(trace[layer])
    return torch.cat(gradients[::-1], dim=1)


def _output_error(loss: str, outputs: Tensor, labels: Tensor) -> Tensor:
    if loss == "squared_error":
        return 2 * (outputs - labels[:, None])
    if loss != "cross_entropy":
        with torch.enable_grad():
            at = outputs if outputs.requires_grad else outputs.detach().requires_grad_()
            values = loss_named(loss).of_tensors(at, labels.expand(at.shape[:-1]))
            return torch.autograd.grad(values.sum(), at, create_graph=True)[0]
    if outputs.shape[-1] == 1:
        return torch.sigmoid(outputs) - (labels[:, None] if labels.ndim == 1 else labels[:, 1:])
    if labels.ndim == 1:
        labels = torch.nn.functional.one_hot(labels.long(), outputs.shape[-1]).to(outputs.dtype)
    return torch.softmax(outputs, dim=-1) - labels
