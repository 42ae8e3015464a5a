"""LeNet (kerkouche2023 section 6.2): forward, local training and per-record gradients, in torch.

Everything is batched. From one common model the gradients of many records come from one forward
and one backward pass: for a dense layer the pair (input, error), for a convolution the product of
unfolded patches and errors. Where clients have moved apart, their models are batched by vmap.
Dropout masks are drawn with the numpy generator that is passed in, so the same generator gives the
same bits.

Parameters are flat vectors (..., P) in the order of `LeNet.layout`; arrays go in and come out as
numpy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F

from overheard.programs.gradient_rows import GradientRows, Outer, Written, stacked
from overheard.programs.losses import loss_named
from overheard.programs.module import tensor
from overheard.programs.networks import Gradient, clipped, each, initial, searched
from overheard.programs.recipe import LeNet, pieces

Array = NDArray[np.floating[Any]]
CHUNK = 100
"""Records in one pass; a convolution's patches are about 30,000 numbers a record."""
CLIENTS = 50
"""Clients whose own models are trained in one call of vmap."""


def split(model: LeNet, theta: Tensor) -> list[Tensor]:
    """The parameters, in order, as views of the flat vector (P,)."""
    return pieces(model.layout(), theta)


def forward(
    model: LeNet, parts: list[Tensor], inputs: Tensor, masks: list[Tensor] | None
) -> Tensor:
    """Outputs (n, outputs) of images (n, d); ``masks`` multiply each dense layer's input."""
    x = inputs.reshape(-1, *model.image)
    for weight, bias in ((parts[0], parts[1]), (parts[2], parts[3])):
        x = F.max_pool2d(torch.relu(F.conv2d(x, weight, bias)), 2)
    x = x.flatten(1)
    dense = list(zip(parts[4::2], parts[5::2], strict=True))
    for layer, (weight, bias) in enumerate(dense):
        if masks is not None:
            x = x * masks[layer]
        x = F.linear(x, weight, bias)
        if layer < len(dense) - 1:
            x = torch.relu(x)
    return x


def dropout_masks(
    model: LeNet, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> list[Array] | None:
    """For each dense layer the factors (*shape, width) of its inputs: 0, or 1/(1 - dropout)."""
    if not model.dropout:
        return None
    keep = 1 - model.dropout
    return [
        ((rng.random((*shape, width), dtype=np.float32) < keep) / keep).astype(dtype)
        for width in (model.flattened, *model.hidden)
    ]


def client_gradients(
    model: LeNet,
    theta: Array,
    inputs: Array,
    labels: Array,
    weights: Array,
    rng: np.random.Generator,
) -> Array:
    """Weighted sums of gradients (C, P): theta (C, P), inputs (C, n, d), labels and weights (C, n).

    Clients that still have one common model share one pass.
    """
    masks = dropout_masks(model, weights.shape, theta.dtype, rng)
    if len(theta) > 1 and (theta == theta[0]).all():
        return _from_one_model(model, theta[0], inputs, labels, weights, masks)
    return _from_own_models(model, theta, inputs, labels, weights, masks)


def _from_one_model(
    model: LeNet,
    theta: Array,
    inputs: Array,
    labels: Array,
    weights: Array,
    masks: list[Array] | None,
) -> Array:
    clients, records = weights.shape
    together = max(1, CHUNK // records)
    made = np.empty((clients, model.size), theta.dtype)
    for begin in range(0, clients, together):
        part = slice(begin, begin + together)
        chosen = [m[part].reshape(-1, m.shape[-1]) for m in masks] if masks else None
        x = inputs[part].reshape(-1, inputs.shape[-1])
        rows = _rows(model, theta, x, labels[part].ravel(), chosen)
        share = weights[part].astype(theta.dtype)
        made[part] = np.concatenate([_sums(layer, share) for layer in rows.layers], axis=1)
    return made


def _sums(layer: Outer | Written, weights: Array) -> Array:
    """Weighted sums over each client's records, the rows of a client standing together."""
    clients, records = weights.shape
    if isinstance(layer, Written):
        rows = layer.rows.reshape(clients, records, -1)
        return np.asarray((weights[:, None, :] @ rows)[:, 0])
    errors = layer.errors.reshape(clients, records, -1) * weights[:, :, None]
    inputs = layer.inputs.reshape(clients, records, -1)
    products = (errors.transpose(0, 2, 1) @ inputs).reshape(clients, -1)
    return np.concatenate([products, errors.sum(axis=1)], axis=1)


def _from_own_models(
    model: LeNet,
    theta: Array,
    inputs: Array,
    labels: Array,
    weights: Array,
    masks: list[Array] | None,
) -> Array:
    def loss(flat: Tensor, x: Tensor, y: Tensor, share: Tensor, drop: list[Tensor]) -> Tensor:
        outputs = forward(model, split(model, flat), x, drop or None)
        return (F.cross_entropy(outputs, y, reduction="none") * share).sum()

    each = vmap(grad(loss))
    made = np.empty((len(theta), model.size), theta.dtype)
    for begin in range(0, len(theta), CLIENTS):
        part = slice(begin, begin + CLIENTS)
        drop = [tensor(m[part]) for m in masks or ()]
        made[part] = each(
            tensor(theta[part]),
            tensor(inputs[part], theta.dtype),
            torch.as_tensor(labels[part].astype(np.int64)),
            tensor(weights[part], theta.dtype),
            drop,
        ).numpy()
    return made


def record_rows(
    model: LeNet,
    theta: Array,
    inputs: Array,
    labels: Array,
    rng: np.random.Generator | None = None,
) -> GradientRows:
    """Gradients of n records at one model (P,): factored for dense layers, written for the others.

    With ``rng`` every record has dropout masks of its own; without it there is no dropout.
    """
    blocks = []
    for part in _chunks(len(labels)):
        x, y = inputs[part], labels[part]
        masks = None if rng is None else dropout_masks(model, (len(y),), theta.dtype, rng)
        blocks.append(_rows(model, theta, x, y, masks))
    return blocks[0] if len(blocks) == 1 else stacked(blocks)


def _chunks(count: int) -> Iterator[slice]:
    for begin in range(0, max(count, 1), CHUNK):
        yield slice(begin, min(begin + CHUNK, count))


def _rows(
    model: LeNet, theta: Array, inputs: Array, labels: Array, masks: list[Array] | None
) -> GradientRows:
    """One forward and one backward pass; the errors of every layer are kept record by record."""
    parts = split(model, tensor(theta))
    x = tensor(inputs, theta.dtype).reshape(-1, *model.image)
    n = len(x)
    heard: list[tuple[Tensor, Tensor]] = []  # a layer's input and what it gives, before ReLU
    for weight, bias in ((parts[0], parts[1]), (parts[2], parts[3])):
        out = F.conv2d(x, weight, bias).requires_grad_()
        heard.append((x, out))
        x = F.max_pool2d(torch.relu(out), 2)
    x = x.flatten(1)
    for layer, (weight, bias) in enumerate(zip(parts[4::2], parts[5::2], strict=True)):
        if layer:
            x = torch.relu(x)
        if masks is not None:
            x = x * tensor(masks[layer])
        out = F.linear(x, weight, bias).requires_grad_()
        heard.append((x, out))
        x = out
    target = torch.as_tensor(np.asarray(labels).astype(np.int64))
    total = F.cross_entropy(x, target, reduction="sum")
    errors = torch.autograd.grad(total, [out for _, out in heard])
    layers: list[Outer | Written] = []
    with torch.no_grad():
        for (before, _), error in zip(heard[:2], errors[:2], strict=True):
            patches = F.unfold(before, 5)
            flat = error.flatten(2)
            weight = torch.bmm(flat, patches.transpose(1, 2)).reshape(n, -1)
            rows = torch.cat([weight, flat.sum(dim=2)], dim=1).numpy()
            layers.append(Written(rows, flat.shape[1]))
        for (before, _), error in zip(heard[2:], errors[2:], strict=True):
            layers.append(Outer(error.numpy(), before.detach().numpy()))
    return GradientRows(tuple(layers))


class LeNetNetwork:
    """See `overheard.programs.networks.Network`."""

    mixes = factored = False

    def __init__(self, model: LeNet, loss: str) -> None:
        self.model, self.loss, self.chance = model, loss_named(loss), model.dropout > 0

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        return initial(self.model, seed, scheme)

    def predict(self, theta: Array, inputs: Array) -> Array:
        def one(flat: Array, images: Array) -> Array:
            parts = split(self.model, tensor(flat))
            with torch.no_grad():
                chunks = torch.split(tensor(images, flat.dtype), 2 * CHUNK)
                made = [forward(self.model, parts, chunk, None) for chunk in chunks]
            return np.asarray(torch.cat(made).numpy())

        return each(one, theta, inputs)

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        if clip is not None:
            return clipped(self, theta, rng, clip)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            return client_gradients(self.model, theta, inputs, labels, weights, rng)

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        return record_rows(self.model, theta, inputs, labels, rng)

    def mean_gradients(self, thetas: Any, inputs: Any, labels: Any) -> Any:
        def outputs(flats: Any, images: Any) -> Any:
            parts = [split(self.model, flat) for flat in flats]
            return torch.stack([forward(self.model, p, images, None) for p in parts])

        return searched(outputs, self.loss, thetas, inputs, labels)
