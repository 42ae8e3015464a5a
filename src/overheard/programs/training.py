"""A client's local training (xu2021 Algorithm 2), batched over clients.

Clients of different sizes are padded; padding carries weight zero, so it changes nothing.
Records are visited in a fresh random order each epoch, or in the order that `Shards` settles; the
last batch may be smaller, and its records then weigh more, as in the usual training loops, unless
the recipe drops it.

What a defence does inside local training is private steps, as data, or a change of the batches: a
local step is taken on a batch, inputs (C, n, d), labels and weights (C, n) of C clients, whose
gradients are added up with these weights. Whatever is a sum over records of some loss is another
batch: noisy inputs, other labels, a record under several labels with a part of its weight each.

Private steps (DP-SGD) take every record with the same probability q (Poisson sampling), clip each
gradient to norm ``clip``, sum, add N(0, (noise * clip)^2) to every coordinate and divide by the
expected batch q * m. The full batch is q = 1. How many records m a client holds is no secret: it is
sent with every update, and divides every sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs.networks import network
from overheard.programs.recipe import PrivateSteps, Recipe
from overheard.programs.rules import rule_of

Array = NDArray[np.floating[Any]]
Trace = Callable[[int, Array, Array], None]
Batch = tuple[Array, Array, Array]
BatchHook = Callable[[Batch, np.random.Generator], Batch]
"""The batch that the client uses in place of this one. Padding, and clients that are done, have
weight 0 and must keep it."""
Hooks = tuple[BatchHook, ...]
CACHE = 1 << 22
"""Bytes of models, gradients and records worked on at a time: what a processor's cache holds."""


@dataclass(frozen=True)
class LocalStep:
    """``classes``: how many the label has, 0 for a number. ``private``: records' gradients are
    clipped and noise is added, which the recipe then says. ``batches``: hooks, which act one after
    the other on the batch of every local step."""

    classes: int
    private: PrivateSteps | None = None
    batches: Hooks = ()


def hooked(batches: Iterable[Batch], hooks: Hooks, rng: np.random.Generator) -> Iterator[Batch]:
    """The batches as the hooks leave them."""
    for batch in batches:
        for hook in hooks:
            batch = hook(batch, rng)
        yield batch


@dataclass(frozen=True)
class Shards:
    """Encoded records of several clients, padded: inputs (C, n, d), labels (C, n), sizes (C,).

    ``orders``: how each epoch visits them (C, n), padding last, where that is settled; else an
    order is drawn for every epoch.
    """

    inputs: Array
    labels: Array
    sizes: NDArray[np.int64]
    orders: tuple[NDArray[np.int64], ...] = ()

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, clients: Any) -> Shards:
        """These clients, padded no further than their largest."""
        sizes = self.sizes[clients]
        longest = int(sizes.max())
        first, last, who = int(clients[0]), int(clients[-1]) + 1, clients
        if longest == self.inputs.shape[1] and np.array_equal(clients, np.arange(first, last)):
            who = np.s_[first:last]  # no copy
        orders = tuple(order[who, :longest] for order in self.orders)
        return Shards(self.inputs[who, :longest], self.labels[who, :longest], sizes, orders)


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


def local_training(
    recipe: Recipe,
    start: Array,
    data: Shards,
    rng: np.random.Generator,
    out: Array | None = None,
    trace: Trace | None = None,
    hooks: Hooks = (),
) -> Array:
    """What the clients return (C, P) from ``start`` ((P,) or (C, P)): the one local training loop.

    The arithmetic is done in ``start``'s precision. FedSGD returns the full-batch gradient at
    ``start`` instead of a model. ``out``: where to write them; a large array made anew costs as
    much as a step of training. ``trace(step, theta, gradient)`` sees every step before it is taken,
    of some clients at once. ``hooks``: what defences do to the batch of every step, see
    `LocalStep`.
    """
    made = np.empty((len(data), start.shape[-1]), start.dtype) if out is None else out
    made[...] = start
    if recipe.private is not None:
        return _privately_descended(recipe, made, data, rng, trace)
    if recipe.sends_gradient:
        gradient = network(recipe).gradient(made, rng)
        whole = data.inputs, data.labels, shares(data, made.dtype)
        (batch,) = hooked([whole], hooks, rng)
        made[...] = gradient(*batch)
        return made
    return _descended(recipe, made, data, rng, trace, hooks)


def _descended(
    recipe: Recipe,
    theta: Array,
    data: Shards,
    rng: np.random.Generator,
    trace: Trace | None,
    hooks: Hooks,
) -> Array:
    """The models (C, P), changed in place by every local step.

    Clients do not depend on each other, so that a few at a time take all of their steps: their
    models and gradients then stay in the processor's cache, which is most of the time saved.
    """
    net, rule = network(recipe), rule_of(recipe)
    schedule = Schedule(recipe, data, rng)
    if not net.random:
        schedule.draw_all()
    for part in _parts(recipe, schedule, theta, whole=net.random):
        model = theta[part]
        gradient, state = net.gradient(model, rng), rule.init(model)
        batches = (schedule.one_by_one if net.random else schedule.batches)(theta.dtype, part)
        for number, (inputs, labels, weights) in enumerate(hooked(batches, hooks, rng)):
            if not weights.any():
                continue  # they wait for clients with more batches to end their epoch
            slope = gradient(inputs, labels, weights)
            if trace is not None:
                trace(number, model, slope)
            step, state = rule.update(slope, state, model)
            model += step
    return theta


def _parts(recipe: Recipe, schedule: Schedule, theta: Array, whole: bool) -> Iterator[slice]:
    """Clients that are trained together: as many as the cache holds, or all of them.

    Clients of fewer batches wait for the others to end their epoch. Plain descent does not move
    them meanwhile, every other rule would: those take clients of equally many batches.
    """
    clients = len(theta)
    alike = np.flatnonzero(np.diff(schedule.passes)) + 1
    still = (recipe.plain and not recipe.pull) or schedule.counted
    ends = [clients] if still else [*alike.tolist(), clients]
    width = schedule.data.inputs[0, : schedule.width].nbytes
    together = clients if whole else max(1, CACHE // (2 * theta[0].nbytes + width))
    begin = 0
    for end in ends:
        for first in range(begin, end, together):
            yield slice(first, min(first + together, end))
        begin = end


def _privately_descended(
    recipe: Recipe, theta: Array, data: Shards, rng: np.random.Generator, trace: Trace | None
) -> Array:
    """The models (C, P) after DP-SGD; of FedSGD the private gradient."""
    private, rule = recipe.private, rule_of(recipe)
    assert private is not None
    gradient, state = network(recipe).gradient(theta, rng, private.clip), rule.init(theta)
    drawn = sampled_weights(recipe, data.sizes, data.inputs.shape[1], rng)
    for number, (weights, noisy) in enumerate(drawn):
        slope = gradient(data.inputs, data.labels, weights.astype(theta.dtype))
        sd = private.noise * private.clip * noisy[:, None]
        slope = slope + (sd * rng.standard_normal(theta.shape)).astype(theta.dtype)
        if recipe.sends_gradient:
            theta[...] = slope
            break
        if trace is not None:
            trace(number, theta, slope)
        step, state = rule.update(slope, state, theta)
        theta += step * (noisy[:, None] > 0)  # who is done waits for the others
    return theta


def sampling_rate(recipe: Recipe, records: int) -> float:
    """The probability with which a record takes part in one private step."""
    return 1.0 if recipe.batch_size is None else min(1.0, recipe.batch_size / records)


def sampled_weights(
    recipe: Recipe, sizes: NDArray[np.int64], longest: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Of each private step the records' weights (C, n), 1/(q m) for those drawn and 0 for others,
    and the weight (C,) of the noise, 0 for a client that is done."""
    real = np.arange(longest) < sizes[:, None]
    rates = np.array([sampling_rate(recipe, int(m)) for m in sizes])
    share = 1 / (rates * sizes)
    steps = np.array([recipe.local_steps(int(m)) for m in sizes])
    for number in range(int(steps.max())):
        busy = number < steps
        drawn = rng.random(real.shape) < rates[:, None]
        yield (real & drawn & busy[:, None]) * share[:, None], busy * share


def update_noise(recipe: Recipe, records: int) -> float:
    """Standard deviation that private steps leave on each coordinate of a client's update (to first
    order: later steps also carry earlier noise through the gradient)."""
    if recipe.private is None:
        return 0.0
    one = recipe.private.noise * recipe.private.clip / (sampling_rate(recipe, records) * records)
    if recipe.sends_gradient:
        return one
    return recipe.learning_rate * one * sqrt(recipe.local_steps(records))


def shares(data: Shards, dtype: np.dtype[Any]) -> Array:
    """1/size for a client's records, 0 for padding."""
    real = np.arange(data.inputs.shape[1]) < data.sizes[:, None]
    return (real / data.sizes[:, None]).astype(dtype)


class Schedule:
    """Which of its records each client uses at each local step."""

    def __init__(self, recipe: Recipe, data: Shards, rng: np.random.Generator) -> None:
        self.data, self.rng = data, rng
        self.longest = data.inputs.shape[1]
        self.full = recipe.batch_size is None
        self.size = self.longest if recipe.batch_size is None else recipe.batch_size
        self.width = min(self.size, self.longest)
        self.dropped = recipe.drop_last
        self.passes = recipe.batches(data.sizes)  # in one pass over a client's records
        self.counted = recipe.steps is not None
        self.each = 1 if self.full else int(self.passes.max())
        self.steps = recipe.epochs * self.each if recipe.steps is None else recipe.steps
        self._orders = list(data.orders)

    def draw_all(self) -> None:
        """Draw every epoch's order now."""
        if self.steps and not self.full:
            self._order(int(self._places(np.array([self.steps - 1]), slice(None))[0].max()))

    def one_by_one(self, dtype: np.dtype[Any], part: slice) -> Iterator[tuple[Array, Array, Array]]:
        """As `batches`; an epoch's order is drawn when it begins, so that whoever takes the steps
        may draw from the same generator in between."""
        for step in range(self.steps):
            yield from self.batches(dtype, part, range(step, step + 1))

    def batches(
        self, dtype: np.dtype[Any], part: slice, steps: range | None = None
    ) -> Iterator[tuple[Array, Array, Array]]:
        """The same for some clients, step after step; what each step uses is worked out at once."""
        data = self.data
        sizes = data.sizes[part]
        steps = range(self.steps) if steps is None else steps
        if self.full:
            equal = shares(Shards(data.inputs[part], data.labels[part], sizes), dtype)
            yield from ((data.inputs[part], data.labels[part], equal) for _ in steps)
            return
        epochs, numbers = self._places(np.array(steps), part)  # (S, c)
        self._order(int(epochs.max(initial=0)))
        begin, within = numbers * self.size, np.arange(self.width)
        rest = np.clip(sizes - begin, 0, self.size)
        rest = np.where(self.dropped & (rest < self.size), 0, rest)
        places = np.minimum(begin[..., None] + within, self.longest - 1)
        here = np.arange(len(data))[part, None]
        orders = np.stack([order[part] for order in self._orders])
        chosen = orders[epochs[..., None], np.arange(len(sizes))[:, None], places]
        weights = ((within < rest[..., None]) / np.maximum(rest, 1)[..., None]).astype(dtype)
        rows = here * data.labels.shape[1] + chosen
        flat, labels = data.inputs.reshape(-1, data.inputs.shape[2]), data.labels.reshape(-1)
        for step_rows, step_weights in zip(rows, weights, strict=True):
            yield flat.take(step_rows, axis=0), labels.take(step_rows), step_weights

    def _places(
        self, steps: NDArray[np.int64], part: slice
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Epoch and number of the batch in it (S, c); each client's own where steps are counted."""
        passes = self.passes[part] if self.counted else np.full(len(self.passes[part]), self.each)
        return steps[:, None] // passes, steps[:, None] % passes

    def _order(self, epoch: int) -> None:
        while len(self._orders) <= epoch:
            self._orders.append(batch_order(self.data.sizes, self.longest, self.rng))


def batch_order(
    sizes: NDArray[np.int64], longest: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A random order of each client's records (C, longest); padding comes last."""
    keys = rng.random((len(sizes), longest))
    keys[np.arange(longest) >= sizes[:, None]] = 2.0
    return np.argsort(keys, axis=1)
