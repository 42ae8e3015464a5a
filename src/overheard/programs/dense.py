"""Dense networks as explicit factors: forward, backward and per-record gradients.

For dense layers the gradient of one record's loss with respect to a layer's weights is an
outer product ``delta_i a_i'`` (back-propagated error times input). Everything the project
needs comes from these two factors: a client's step is a weighted sum of them, and a decoder
takes inner products of per-record gradients as ``(delta_i . delta_j)(a_i . a_j + 1)`` without
ever building them. All functions are batched: leading axes of parameters and data broadcast,
so 1,000 clients are one call.

Parameters are flat vectors (..., P) in the order of `Dense.layout`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from overheard.programs.gradient_rows import GradientRows, Outer, shrinkage
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, initial, searched
from overheard.programs.recipe import Dense, pieces

Array = NDArray[np.floating[Any]]
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


def split(model: Dense, theta: Any) -> Layers:
    """Weights (..., out, in) and biases (..., out) of each layer, as views of the flat vector."""
    parts = pieces(model.layout(), theta)
    if not model.bias:
        return [(weight, None) for weight in parts]
    return list(zip(parts[::2], parts[1::2], strict=True))


def forward(model: Dense, theta: Array | Layers, inputs: Array) -> list[Array]:
    """Inputs of every layer, then the outputs (..., n, outputs)."""
    activate, _ = _ACTIVATIONS[model.activation]
    trace = [inputs]
    layers = theta if isinstance(theta, list) else split(model, theta)
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


def predict(model: Dense, theta: Array, inputs: Array) -> Array:
    """Raw outputs (..., n, outputs)."""
    return forward(model, theta, inputs)[-1]


def factors(
    model: Dense, loss: str, theta: Array | Layers, inputs: Array, labels: Array
) -> Factors:
    """Per layer the pair (a, delta) whose outer products are the per-record gradients.

    ``theta``: parameters, flat or already `split`.

    The loss is the record's own, not divided by anything, see `overheard.programs.losses`.
    """
    _, slope = _ACTIVATIONS[model.activation]
    layers = theta if isinstance(theta, list) else split(model, theta)
    trace = forward(model, layers, inputs)
    delta = loss_named(loss).errors(trace[-1], labels)
    pairs: Factors = []
    for layer in range(len(layers) - 1, -1, -1):
        pairs.append((trace[layer], delta))
        if layer:
            delta = (delta @ layers[layer][0]) * slope(trace[layer])
    return pairs[::-1]


def write_gradient(pairs: Factors, weights: Array, out: Layers) -> None:
    """Sums over records of weight times gradient, into layers of a vector (..., P)."""
    for (a, delta), (weight, bias) in zip(pairs, out, strict=True):
        weighted = delta * weights[..., None]
        np.matmul(weighted.swapaxes(-1, -2), a, out=weight)
        if bias is not None:
            np.add.reduce(weighted, axis=-2, out=bias)


def record_gradients(model: Dense, loss: str, theta: Array, inputs: Array, labels: Array) -> Array:
    """Gradients of each record's loss, flat (..., n, P): for small P only."""
    parts: list[Array] = []
    for a, delta in factors(model, loss, theta, inputs, labels):
        grad = delta[..., :, None] * a[..., None, :]
        parts.append(grad.reshape(*grad.shape[:-2], -1))
        if model.bias:
            parts.append(delta)
    return np.concatenate(parts, axis=-1)


class DenseNetwork:
    """See `overheard.programs.networks.Network`."""

    chance = mixes = False
    factored = True

    def __init__(self, model: Dense, loss: str) -> None:
        self.model, self.loss = model, loss

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        return initial(self.model, seed, scheme)

    def predict(self, theta: Array, inputs: Array) -> Array:
        return predict(self.model, theta, inputs)

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
            write_gradient(pairs, weights, slopes)
            return made

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        pairs = factors(self.model, self.loss, theta, inputs, labels)
        return GradientRows(tuple(Outer(delta, a, self.model.bias) for a, delta in pairs))

    def mean_gradients(self, thetas: Any, inputs: Any, labels: Any) -> Any:
        import torch  # takes a second

        activate = getattr(torch, self.model.activation)

        def outputs(flat: Any, x: Any) -> Any:
            for number, (weight, bias) in enumerate(split(self.model, flat)):
                x = activate(x) if number else x
                x = x @ weight.swapaxes(-1, -2)
                x = x if bias is None else x + bias[..., None, :]
            return x

        return searched(outputs, loss_named(self.loss), thetas, inputs, labels)
