"""Dense networks in numpy, batched over clients: the factors of `overheard.programs.dense`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs import dense
from overheard.programs.gradient_rows import GradientRows, Outer, shrinkage
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, searched
from overheard.programs.recipe import Dense

Array = NDArray[np.floating[Any]]


class DenseNetwork:
    """See `overheard.programs.networks.Network`."""

    chance = mixes = False
    factored = True

    def __init__(self, model: Dense, loss: str) -> None:
        self.model, self.loss = model, loss

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        return dense.initial(self.model, seed, scheme)

    def predict(self, theta: Array, inputs: Array) -> Array:
        return dense.predict(self.model, theta, inputs)

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        made = np.empty_like(theta)
        layers, slopes = dense.split(self.model, theta), dense.split(self.model, made)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            pairs = dense.factors(self.model, self.loss, layers, inputs, labels)
            if clip is not None:
                scale = shrinkage([Outer(d, a, self.model.bias) for a, d in pairs], clip)
                pairs = [(a, d * scale[..., None]) for a, d in pairs]
            dense.write_gradient(pairs, weights, slopes)
            return made

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        pairs = dense.factors(self.model, self.loss, theta, inputs, labels)
        return GradientRows(tuple(Outer(delta, a, self.model.bias) for a, delta in pairs))

    def mean_gradients(self, thetas: Any, inputs: Any, labels: Any) -> Any:
        import torch  # takes a second

        activate = getattr(torch, self.model.activation)

        def outputs(flat: Any, x: Any) -> Any:
            for number, (weight, bias) in enumerate(dense.split(self.model, flat)):
                x = activate(x) if number else x
                x = x @ weight.swapaxes(-1, -2)
                x = x if bias is None else x + bias[..., None, :]
            return x

        return searched(outputs, loss_named(self.loss), thetas, inputs, labels)
