"""DP-SGD of a LeNet, by Opacus: the same steps as `programs.private`, one client after the other.

Opacus takes each record's gradient (GradSampleModule), clips it, adds the noise and divides by the
expected batch (DPOptimizer). Which records a step takes, the dropout masks and the seed of the
noise come from the numpy generator that is passed in, so the same generator gives the same bits.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from overheard.errors import FixConfig
from overheard.programs.private import sampled_weights, sampling_rate
from overheard.programs.recipe import LeNet, PrivateSteps, Recipe
from overheard.programs.training import Shards

Array = NDArray[np.floating[Any]]
Masks = Callable[[int], list[Array] | None]
"""Dropout masks for so many records."""


class Layers(nn.Module):
    """The network from torch's own layers, whose parameters stand in the order of the layout."""

    def __init__(self, model: LeNet) -> None:
        super().__init__()
        self.image = model.image
        channels = (model.image[0], *model.filters)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 5) for a, b in pairwise(channels))
        widths = (model.flattened, *model.hidden, model.outputs)
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, inputs: Tensor, masks: list[Tensor] | None) -> Tensor:
        """Outputs (n, outputs) of images (n, d); ``masks`` multiply each dense layer's input."""
        x = inputs.reshape(-1, *self.image)
        for convolution in self.convolutions:
            x = F.max_pool2d(torch.relu(convolution(x)), 2)
        x = x.flatten(1)
        for number, layer in enumerate(self.dense):
            x = torch.relu(x) if number else x
            x = layer(x if masks is None else x * masks[number])
        return x


def private_training(
    recipe: Recipe, model: LeNet, start: Array, data: Shards, rng: np.random.Generator, masks: Masks
) -> Array:
    """What the clients return (C, P) after DP-SGD from ``start`` (C, P); FedSGD: the gradient."""
    assert recipe.private is not None
    made = np.empty(start.shape, start.dtype)
    for client, size in enumerate(data.sizes.tolist()):
        expected = sampling_rate(recipe, size) * size
        taker = _Taker(model, recipe.private, expected, start.dtype, rng)
        theta = start[client]
        for weights, _ in sampled_weights(recipe, data.sizes[[client]], size, rng):
            drawn = np.flatnonzero(weights[0])
            inputs, labels = data.inputs[client, drawn], data.labels[client, drawn]
            step = taker.step(theta, inputs, labels, masks(len(drawn)))
            if recipe.sends_gradient:
                theta = step
                break
            if recipe.pull:
                step = step + theta.dtype.type(recipe.proximal) * (theta - start[client])
            theta = theta - theta.dtype.type(recipe.learning_rate) * step
        made[client] = theta
    return made


class _Taker:
    """Opacus' module and optimiser for one client."""

    def __init__(
        self,
        model: LeNet,
        private: PrivateSteps,
        expected: float,
        dtype: np.dtype[Any],
        rng: np.random.Generator,
    ) -> None:
        with _quiet():
            sampler, optimiser = _opacus()
            self.layers = Layers(model).to(torch.float64 if dtype == np.float64 else torch.float32)
            self.module = sampler(self.layers, loss_reduction="sum")
            self.optimiser = optimiser(
                torch.optim.SGD(self.module.parameters(), lr=1.0),
                noise_multiplier=private.noise,
                max_grad_norm=private.clip,
                expected_batch_size=expected,
                generator=torch.Generator().manual_seed(int(rng.integers(2**63))),
            )

    def step(self, theta: Array, inputs: Array, labels: Array, masks: list[Array] | None) -> Array:
        """The private gradient (P,) of these records at ``theta``."""
        vector = torch.from_numpy(np.array(theta))
        nn.utils.vector_to_parameters(vector, self.layers.parameters())
        drop = None if masks is None else [torch.from_numpy(m) for m in masks]
        with _quiet():
            self.optimiser.zero_grad()
            if len(labels):
                outputs = self.module(torch.from_numpy(inputs.astype(theta.dtype)), drop)
                target = torch.from_numpy(labels.astype(np.int64))
                F.cross_entropy(outputs, target, reduction="sum").backward()  # type: ignore[no-untyped-call]
            else:  # nobody was drawn: noise alone
                for p in self.layers.parameters():
                    p.grad_sample = p.new_zeros((0, *p.shape))  # type: ignore[attr-defined]
            self.optimiser.pre_step()
        parts = [p.grad for p in self.layers.parameters() if p.grad is not None]
        return np.asarray(torch.cat([g.flatten() for g in parts]).numpy())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Opacus and torch's hooks warn of and nobody here can change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _opacus() -> tuple[Any, Any]:
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
    except ImportError as error:
        raise FixConfig(
            "private steps of a 'lenet' are taken by Opacus, which is not installed: "
            "pip install 'overheard[dp]', or use model 'mlp'"
        ) from error
    logging.getLogger("opacus").setLevel(logging.ERROR)
    return GradSampleModule, DPOptimizer
