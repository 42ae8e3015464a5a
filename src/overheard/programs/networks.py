"""The networks that clients train: which one a recipe has, and dense layers in numpy.

`network` gives the network of a recipe; nothing outside of this package asks which kind it is. Any
torch module, layer by layer, is `overheard.programs.layers`. Dense layers one after the other
(linear and logistic regression, multi-layer perceptrons) have a fast path here, without torch:
the tests hold it against the general one.

For dense layers the gradient of one record's loss with respect to a layer's weights is an outer
product ``delta_i a_i'`` (back-propagated error times input). Everything the project needs comes
from these two factors: a client's step is a weighted sum of them, and a decoder takes inner
products of per-record gradients as ``(delta_i . delta_j)(a_i . a_j + 1)`` without ever building
them. All functions are batched: leading axes of parameters and data broadcast, so 1,000 clients
are one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.programs.gradient_rows import GradientRows, Outer, shrinkage
from overheard.programs.losses import loss_named
from overheard.programs.recipe import Dense, LeNet, Module, Recipe, pieces
from overheard.randomness import stream

if TYPE_CHECKING:
    from overheard.programs.layers import LayeredNetwork

Array = NDArray[np.floating[Any]]
Gradient = Callable[[Array, Array, Array], Array]
"""Inputs (C, n, d), labels and weights (C, n) to weighted sums of gradients (C, P)."""


Network: TypeAlias = "DenseNetwork | LayeredNetwork"
"""Both answer alike; what is asked of a network stands in `LayeredNetwork`."""


def network(recipe: Recipe) -> Network:
    """The recipe's model with its loss."""
    if isinstance(recipe.model, Dense):
        return DenseNetwork(recipe.model, recipe.loss)
    from overheard.programs.layers import LayeredNetwork  # torch takes a second

    made = LayeredNetwork(recipe.model, recipe.loss)
    if recipe.private is not None and made.mixes:
        raise FixConfig(
            "private steps clip each record's gradient, and a network that normalises over the "
            "batch has none: use GroupNorm or LayerNorm in place of BatchNorm"
        )
    return made


def client_rows(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> GradientRows:
    """Gradients of n records at one model (P,) that a client with this recipe adds up."""
    net = network(recipe)
    if net.random or net.mixes:
        raise ChooseAnotherAttack(
            "decodes networks that treat records one by one and draw nothing; this one drops "
            "units at random or normalises over the batch"
        )
    rows = net.rows(theta, inputs, labels)
    return rows if recipe.private is None else rows.clipped(recipe.private.clip)


def initial(
    model: Dense | LeNet | Module, seed: int, scheme: str = "uniform"
) -> NDArray[np.float64]:
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


Factors = list[tuple[Array, Array]]
"""Per layer: inputs a (..., n, fan_in) and errors delta (..., n, fan_out)."""
Layers = list[tuple[Array, Array | None]]
"""Per layer: weights (..., out, in) and biases (..., out), as views of the flat vector."""
_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    # the activation, and its derivative as a function of its output
    "relu": (lambda z: np.maximum(z, 0), lambda out: (out > 0).astype(out.dtype)),
    "tanh": (np.tanh, lambda out: 1 - out * out),
    "sigmoid": (expit, lambda out: out * (1 - out)),
}


def split(model: Dense, theta: Array) -> Layers:
    """Weights (..., out, in) and biases (..., out) of each layer, as views of the flat vector."""
    parts = pieces(model.layout(), theta)
    if not model.bias:
        return [(weight, None) for weight in parts]
    return list(zip(parts[::2], parts[1::2], strict=True))


def forward(model: Dense, layers: Layers, inputs: Array) -> list[Array]:
    """Inputs of every layer, then the outputs (..., n, outputs)."""
    activate, _ = _ACTIVATIONS[model.activation]
    trace = [inputs]
    for layer, (weight, bias) in enumerate(layers):
        out = times_transposed(trace[-1], weight)
        if bias is not None:
            out = out + bias[..., None, :]
        trace.append(out if layer == len(layers) - 1 else activate(out))
    return trace


def times_transposed(inputs: Array, weight: Array) -> Array:
    """inputs (..., n, in) times weight' (..., in, out).

    A small batch through a wide layer is up to twice as fast with the weights on the left, and a
    narrow layer up to ten times slower: that is how BLAS packs them.
    """
    if 8 <= inputs.shape[-2] <= 64 <= weight.shape[-2]:
        turned = weight @ np.ascontiguousarray(inputs.swapaxes(-1, -2))
        return np.asarray(turned.swapaxes(-1, -2))
    return np.asarray(inputs @ weight.swapaxes(-1, -2))


def factors(model: Dense, loss: str, layers: Layers, inputs: Array, labels: Array) -> Factors:
    """Per layer the pair (a, delta) whose outer products are the per-record gradients.

    The loss is the record's own, not divided by anything, see `overheard.programs.losses`.
    """
    _, slope = _ACTIVATIONS[model.activation]
    trace = forward(model, layers, inputs)
    delta = loss_named(loss).errors(trace[-1], labels)
    pairs: Factors = []
    for layer in range(len(layers) - 1, -1, -1):
        pairs.append((trace[layer], delta))
        if layer:
            delta = (delta @ layers[layer][0]) * slope(trace[layer])
    return pairs[::-1]


class DenseNetwork:
    """Dense layers one after the other: what `LayeredNetwork` answers, in numpy. ``rows`` also
    takes several models (C, P), each with its own records (C, n, d)."""

    random = mixes = False
    factored = True

    def __init__(self, model: Dense, loss: str) -> None:
        self.model, self.loss = model, loss

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        return initial(self.model, seed, scheme)

    def predict(self, theta: Array, inputs: Array) -> Array:
        return forward(self.model, split(self.model, theta), inputs)[-1]

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        made = np.empty_like(theta)
        layers, slopes = split(self.model, theta), split(self.model, made)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            pairs = factors(self.model, self.loss, layers, inputs, labels)
            if clip is not None:
                scale = shrinkage([Outer(d, a, self.model.bias) for a, d in pairs], clip)
                pairs = [(a, d * scale[..., None]) for a, d in pairs]
            for (a, delta), (weight, bias) in zip(pairs, slopes, strict=True):
                weighted = delta * weights[..., None]
                np.matmul(weighted.swapaxes(-1, -2), a, out=weight)
                if bias is not None:
                    np.add.reduce(weighted, axis=-2, out=bias)
            return made

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        pairs = factors(self.model, self.loss, split(self.model, theta), inputs, labels)
        return GradientRows(tuple(Outer(delta, a, self.model.bias) for a, delta in pairs))
