"""A client's local training (xu2021 Algorithm 2), batched over clients.

Clients of different sizes are padded; padding carries weight zero, so it changes nothing.
Records are visited in a fresh random order each epoch; the last batch may be smaller, and its
records then weigh more, as in the usual training loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.learning.dense import factors, weighted_gradient
from overheard.learning.private import clipped, sampled_weights
from overheard.learning.recipe import LeNet, Recipe

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Shards:
    """Encoded records of several clients, padded: inputs (C, n, d), labels (C, n), sizes (C,)."""

    inputs: Array
    labels: Array
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, clients: NDArray[np.int64]) -> Shards:
        """These clients, padded no further than their largest."""
        sizes = self.sizes[clients]
        longest = int(sizes.max())
        return Shards(self.inputs[clients, :longest], self.labels[clients, :longest], sizes)


def shards(inputs: Sequence[Array], labels: Sequence[Array], dtype: str = "float64") -> Shards:
    """Pad the clients' records into one block."""
    sizes = np.array([len(y) for y in labels], dtype=np.int64)
    longest = int(sizes.max())
    block = np.zeros((len(inputs), longest, inputs[0].shape[1]), dtype)
    targets = np.zeros((len(inputs), longest), dtype)
    for client, (x, y) in enumerate(zip(inputs, labels, strict=True)):
        block[client, : len(y)] = x
        targets[client, : len(y)] = y
    return Shards(block, targets, sizes)


def local_training(recipe: Recipe, start: Array, data: Shards, rng: np.random.Generator) -> Array:
    """Models (C, P) after the recipe's local epochs from ``start`` ((P,) or (C, P)).

    The arithmetic is done in ``start``'s precision. FedSGD returns the full-batch gradient at
    ``start`` instead of a model; FedProx adds ``proximal * (theta - start)`` to each gradient.
    """
    if isinstance(recipe.model, LeNet):
        from overheard.learning import lenet  # torch: only where a model needs it

        return lenet.local_training(recipe, start, data, rng)
    theta = np.broadcast_to(start, (len(data), start.shape[-1]))
    rate = theta.dtype.type(recipe.learning_rate)
    if recipe.private is not None:
        return _private_training(recipe, theta, data, rng)
    if recipe.algorithm == "fedsgd":
        return _gradient(recipe, theta, data.inputs, data.labels, shares(data, theta.dtype))
    for inputs, labels, weights in training_batches(recipe, data, theta.dtype, rng):
        step = _gradient(recipe, theta, inputs, labels, weights)
        if recipe.algorithm == "fedprox":
            busy = weights.any(axis=-1, keepdims=True)
            step = step + theta.dtype.type(recipe.proximal) * (theta - start) * busy
        theta = theta - rate * step
    return np.array(theta)


def _private_training(
    recipe: Recipe, start: Array, data: Shards, rng: np.random.Generator
) -> Array:
    """DP-SGD from ``start`` (C, P), see `learning.private`."""
    private, model = recipe.private, recipe.dense
    assert private is not None
    theta = start
    for weights, noisy in sampled_weights(recipe, data.sizes, data.inputs.shape[1], rng):
        pairs = factors(model, recipe.loss, theta, data.inputs, data.labels)
        kept = clipped(pairs, private.clip, model.bias)
        step = weighted_gradient(model, kept, weights.astype(theta.dtype))
        sd = private.noise * private.clip * noisy[:, None]
        step = step + (sd * rng.standard_normal(theta.shape)).astype(theta.dtype)
        if recipe.algorithm == "fedsgd":
            return np.asarray(step)
        if recipe.algorithm == "fedprox":
            pull = theta.dtype.type(recipe.proximal) * (theta - start)
            step = step + pull * (noisy[:, None] > 0)
        theta = theta - theta.dtype.type(recipe.learning_rate) * step
    return np.array(theta)


def _gradient(recipe: Recipe, theta: Array, inputs: Array, labels: Array, weights: Array) -> Array:
    pairs = factors(recipe.dense, recipe.loss, theta, inputs, labels)
    return weighted_gradient(recipe.dense, pairs, weights)


def shares(data: Shards, dtype: np.dtype[Any]) -> Array:
    """1/size for a client's records, 0 for padding."""
    real = np.arange(data.inputs.shape[1]) < data.sizes[:, None]
    return (real / data.sizes[:, None]).astype(dtype)


def training_batches(
    recipe: Recipe, data: Shards, dtype: np.dtype[Any], rng: np.random.Generator
) -> Iterator[tuple[Array, Array, Array]]:
    """Inputs, labels and weights of each local step; a client that is done weighs nothing."""
    if recipe.batch_size is None:
        equal = shares(data, dtype)
        for _ in range(recipe.epochs):
            yield data.inputs, data.labels, equal
        return
    longest, batch = data.inputs.shape[1], recipe.batch_size
    clients, within = np.arange(len(data))[:, None], np.arange(min(batch, longest))
    passes = -(-data.sizes // batch)  # batches in one pass over a client's records
    if recipe.steps is None:
        schedule = [
            (np.full(len(data), epoch), np.full(len(data), number))
            for epoch in range(recipe.epochs)
            for number in range(int(passes.max()))
        ]
    else:
        schedule = [(step // passes, step % passes) for step in range(recipe.steps)]
    orders = np.empty((0, len(data), longest), dtype=np.int64)
    for epoch, number in schedule:
        while len(orders) <= epoch.max():
            fresh = batch_order(data.sizes, longest, rng)
            orders = np.concatenate([orders, fresh[None]])
        begin = number * batch
        left = np.clip(data.sizes - begin, 0, batch)
        places = np.minimum(begin[:, None] + within, longest - 1)
        chosen = orders[epoch[:, None], clients, places]
        real = within < left[:, None]
        weights = (real / np.maximum(left, 1)[:, None]).astype(dtype)
        yield data.inputs[clients, chosen], data.labels[clients, chosen], weights


def batch_order(
    sizes: NDArray[np.int64], longest: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A random order of each client's records (C, longest); padding comes last."""
    keys = rng.random((len(sizes), longest))
    keys[np.arange(longest) >= sizes[:, None]] = 2.0
    return np.argsort(keys, axis=1)
