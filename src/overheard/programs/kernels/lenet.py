"""LeNets: convolutions and dense layers, see `overheard.programs.lenet`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from overheard.programs import lenet
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, clipped, searched
from overheard.programs.recipe import LeNet

Array = NDArray[np.floating[Any]]


class LeNetNetwork:
    """See `overheard.programs.networks.Network`."""

    mixes = factored = False

    def __init__(self, model: LeNet, loss: str) -> None:
        self.model, self.loss, self.chance = model, loss_named(loss), model.dropout > 0

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        return lenet.initial(self.model, seed, scheme)

    def predict(self, theta: Array, inputs: Array) -> Array:
        return lenet.predict(self.model, theta, inputs)

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        if clip is not None:
            return clipped(self, theta, rng, clip)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            return lenet.client_gradients(self.model, theta, inputs, labels, weights, rng)

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        return lenet.record_rows(self.model, theta, inputs, labels, rng)

    def mean_gradients(self, thetas: Any, inputs: Any, labels: Any) -> Any:
        def outputs(flats: Any, images: Any) -> Any:
            parts = [lenet.split(self.model, flat) for flat in flats]
            return torch.stack([lenet.forward(self.model, p, images, None) for p in parts])

        return searched(outputs, self.loss, thetas, inputs, labels)
