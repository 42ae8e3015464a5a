"""The networks that clients train, whatever their layers: one interface, a kernel an architecture.

`network` gives the kernel of a recipe's model. Nothing outside this package asks which one it is.
A kernel that knows its layers is a fast path of `overheard.programs.module`, which
differentiates any torch module record by record (vmap over grad); tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.losses import Loss
from overheard.programs.recipe import Dense, LeNet, Recipe, pieces
from overheard.randomness import stream

Array = NDArray[np.floating[Any]]
Gradient = Callable[[Array, Array, Array], Array]
"""Inputs (C, n, d), labels and weights (C, n) to weighted sums of gradients (C, P)."""


class Network(Protocol):
    """A model and its loss. Parameters are flat vectors (..., P) in the order of the layout."""

    chance: bool
    """Does a forward pass draw random numbers (dropout)?"""
    mixes: bool
    """Do the records of a batch change each other's outputs (batch normalisation)?"""
    factored: bool
    """Is a record's gradient by every layer an outer product, by the first one with its inputs?"""

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        """The first global model."""

    def predict(self, theta: Array, inputs: Array) -> Array:
        """Outputs (..., n, outputs) without dropout, for theta (P,) or (C, P)."""

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        """Weighted sums of gradients at the models (C, P) that ``theta`` holds when it is called;
        with ``clip`` every record's gradient is scaled down to that norm first (DP-SGD).

        The array that is returned may be overwritten by the next call.
        """

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        """Gradients of n records' losses at one model (P,); with ``rng`` with chance in them."""

    def mean_gradients(self, thetas: Any, inputs: Any, labels: Any) -> Any:
        """Gradients (T, P) of the mean loss at models (T, P), torch tensors that can themselves be
        differentiated by inputs (m, d) and labels: (m,), or shares of classes (m, outputs)."""


KERNELS: dict[str, str] = {
    "dense": "overheard.programs.dense:DenseNetwork",
    "lenet": "overheard.programs.lenet:LeNetNetwork",
    "module": "overheard.programs.module:ModuleNetwork",
}
"""Where the kernel of an architecture is; imported when it is needed (torch takes a second)."""


def network(recipe: Recipe) -> Network:
    """The kernel of the recipe's model with its loss."""
    module, _, name = KERNELS[recipe.model.architecture].partition(":")
    made: Network = getattr(import_module(module), name)(recipe.model, recipe.loss)
    if recipe.private is not None and made.mixes:
        raise FixConfig(
            "private steps clip each record's gradient, and a network that normalises over the "
            "batch has none: use GroupNorm or LayerNorm in place of BatchNorm"
        )
    return made


def initial(model: Dense | LeNet, seed: int, scheme: str = "uniform") -> NDArray[np.float64]:
    """Starting parameters: ``zeros``, or ``uniform`` in +-1/sqrt(fan_in) (torch's own start)."""
    theta = np.zeros(model.size)
    if scheme == "zeros":
        return theta
    rng, reach = stream(seed, "initial model"), 0.0
    for part in pieces(model.layout(), theta):
        if part.ndim > 1:
            reach = 1 / np.sqrt(part[0].size)  # a layer's weight stands before its bias
        part[...] = rng.uniform(-reach, reach, part.shape)
    return theta


def each(predict: Callable[[Array, Array], Array], theta: Array, inputs: Array) -> Array:
    """`Network.predict` from that of one model (P,) and its inputs (n, d)."""
    lead = np.broadcast_shapes(theta.shape[:-1], inputs.shape[:-2])
    models = np.broadcast_to(theta, (*lead, theta.shape[-1])).reshape(-1, theta.shape[-1])
    data = np.broadcast_to(inputs, (*lead, *inputs.shape[-2:])).reshape(-1, *inputs.shape[-2:])
    made = np.stack([predict(one, its) for one, its in zip(models, data, strict=True)])
    return made.reshape(*lead, *made.shape[1:])


def clipped(net: Network, theta: Array, rng: np.random.Generator, clip: float) -> Gradient:
    """`Network.gradient` with a ``clip`` from `Network.rows`, one client after the other."""

    def at(inputs: Array, labels: Array, weights: Array) -> Array:
        made = np.zeros_like(theta)
        for client in np.flatnonzero(weights.any(axis=1)):
            used = np.flatnonzero(weights[client])
            rows = net.rows(theta[client], inputs[client][used], labels[client][used], rng)
            made[client] = rows.clipped(clip).scaled(weights[client][used]).total()
        return made

    return at


def searched(outputs: Callable[[Any, Any], Any], loss: Loss, *at: Any) -> Any:
    """`Network.mean_gradients` by autograd, for outputs (T, m, outputs) of models and inputs."""
    import torch

    thetas, inputs, labels = at
    with torch.enable_grad():  # whoever only looks at the answer may have turned it off
        flat = thetas.detach().requires_grad_()
        made = outputs(flat, inputs).flatten(0, 1)
        losses = loss.of_tensors(made, labels.repeat(len(thetas), *[1] * (labels.ndim - 1)))
        return torch.autograd.grad(losses.sum() / len(inputs), flat, create_graph=True)[0]
