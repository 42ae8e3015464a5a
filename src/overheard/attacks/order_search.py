"""With which seed did a client shuffle its records?

Seeds are few and conventions are fewer, so all orders that they give can be compared with one
message, before anything is known of the secrets (docs/decoders.md section 8.1). On the mean path
of simulated clients the gradient of every record is a table; under an order the batches' gradients
are sums of its rows, and the update rule, entry by entry, predicts some coordinates of the returned
model. How far such predictions are off under the right order simulated clients say: their orders
are known. An order that fits far better than others is then decoded, and only an
answer whose replay is the message makes a claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from overheard.attacks.client import Client
from overheard.attacks.replay import Replay, ReplayOptions
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.noise import whitening
from overheard.programs.linearise import batches_of
from overheard.programs.networks import network
from overheard.programs.orders import SOURCES, Convention, Place, orders
from overheard.programs.rules import rule_of
from overheard.programs.training import batch_order, local_training
from overheard.transcript.knowledge import BatchOrder

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

WELL_KNOWN = (
    314, 333, 365, 404, 420, 444, 512, 555, 666, 777, 888, 999, 1000, 1024, 1111, 1234, 1337, 2000,
    *range(2010, 2031), 2048, 3407, 4242, 5678, 9999, 12345, 31337, 54321, 65535, 99999, 123123,
    123456, 1234567, 12345678, 42424242, 123456789, 3735928559, 4294967295,
)  # fmt: skip
"""Seeds that people like, besides small ones."""
Tried = tuple[Convention, int]
"""One seed under one convention."""
_AT_ONCE = 1_000_000  # entries of the orders that are looked at together


@dataclass(frozen=True)
class OrderOptions:
    """Settings of the search for the seed of the order.

    clients: simulated clients, whose orders are known.
    widths, survivors: coordinates that are predicted, more of them for fewer orders; and how many
        orders go on.
    stands_out: by how many standard deviations of random orders' fit an order must fit better than
        the eighth best to be decoded: the best of many wrong ones does by about .6.
    decoded: orders that are decoded at most, the best: the right one is among the first.
    parts: segments of training in which a record's gradient is taken as constant.
    clear: variance by the order, relative to the rest, beyond which no coordinate is preferred.
    own: of the covariance of what predictions miss, how much is taken as uncorrelated.
    """

    clients: int = 64
    widths: tuple[int, ...] = (64, 256, 1024)
    survivors: tuple[int, ...] = (2000, 100, 8)
    stands_out: float = 1.5
    decoded: int = 2
    parts: int = 8
    clear: float = 30.0
    own: float = 0.3


GUESSED = ReplayOptions(stale=3)
"""Of an order that may be wrong: the right one is seen to be right after a few passes."""


def dictionary(seeds: int) -> BatchOrder:
    """The seeds from 0, and those that people like, under every convention."""
    return BatchOrder(tuple(dict.fromkeys((*range(seeds), *WELL_KNOWN))))


class Screen:
    """How well orders explain one message; see the module."""

    def __init__(self, client: Client, rng: np.random.Generator) -> None:
        self.options, recipe = OrderOptions(), client.recipe
        self.sent, self.returned = client.messages.sent[0], client.messages.returned[0]
        self.recipe, self.prior, self.candidates = recipe, client.prior, client.encoded
        n = len(self.prior)
        steps = batches_of(recipe, n, np.tile(np.arange(n), (recipe.epochs, 1)))
        self.sizes = np.array([len(b) for b in steps[: len(steps) // recipe.epochs]])
        per = max(1, min(len(self.sizes), self.options.parts // recipe.epochs))
        self.pieces = np.array_split(np.arange(len(self.sizes)), per)
        segment = np.concatenate([np.full(len(p), j) for j, p in enumerate(self.pieces)])
        self.segment = np.repeat(segment, self.sizes)
        self._fit(rng)

    def _fit(self, rng: np.random.Generator) -> None:
        """Tables, and what predictions under the right order miss, by simulated clients."""
        n, epochs, clients = len(self.prior), self.recipe.epochs, self.options.clients
        chosen = self.candidates.drawn(self.prior, clients, rng)
        drawn = [batch_order(np.full(clients, n), n, rng) for _ in range(epochs)]
        path: list[Array] = []
        data = self.candidates.shards(chosen, self.sent.dtype)
        data = replace(data, orders=tuple(drawn))
        ends = local_training(
            self.recipe, self.sent, data, rng,
            trace=lambda step, theta, slope: path.append(theta.mean(axis=0, dtype=np.float64)),
        )  # fmt: skip
        live = np.flatnonzero(ends.var(axis=0) > 0)
        self.which = np.sort(rng.permutation(live)[: 2 * self.options.widths[-1]])
        self.table = self._tables(path)
        predicted = self.predicted(np.stack(drawn, axis=1), slice(None))
        missed = ends[:, self.which].astype(np.float64) - predicted
        by_order = predicted.var(axis=0)
        spread = np.maximum(missed.var(axis=0, ddof=1), 1e-4 * by_order) + 1e-30
        ratio = np.minimum(by_order / spread, self.options.clear)
        clear = np.argsort(-ratio, kind="stable")[: self.options.widths[-1]]
        # the clearest stand first, in random order within: fewer are taken first
        self.which = self.which[clear]
        self.table = np.ascontiguousarray(self.table[..., clear])
        self.centre, self.sd = missed.mean(axis=0)[clear], np.sqrt(spread[clear])
        self.missed = missed[:, clear] - self.centre

    def _tables(self, path: Sequence[Array]) -> NDArray[np.float32]:
        """Expected gradients (epochs, segments, n, coordinates) on the mean path."""
        net, c, each = network(self.recipe), self.candidates, len(self.sizes)
        made = np.zeros(
            (self.recipe.epochs, len(self.pieces), len(self.prior), len(self.which)), np.float32
        )
        for epoch, segment in np.ndindex(made.shape[:2]):
            steps = epoch * each + self.pieces[segment]
            theta = np.mean([path[t] for t in steps], axis=0)
            for k, share in enumerate(self.prior.T):
                rows = net.rows(theta, c.inputs[k].astype(np.float64), c.labels[k])
                made[epoch, segment] += share[:, None] * rows.columns(self.which)
        return made

    def predicted(self, some: Indices, width: slice) -> Array:
        """The coordinates under these orders (m, epochs, n), on the mean path."""
        rule, used = rule_of(self.recipe), int(self.sizes.sum())
        start = self.sent[self.which[width]].astype(np.float32)
        theta = np.repeat(start[None], len(some), axis=0)
        state = rule.init(theta)
        for epoch in range(some.shape[1]):
            table = np.ascontiguousarray(self.table[epoch][..., width]).reshape(-1, len(start))
            rows = self.segment * len(self.prior) + some[:, epoch, :used]
            ends = np.append(0, np.cumsum(np.tile(self.sizes, len(some))))
            shares = np.tile(np.repeat(1 / self.sizes, self.sizes), len(some)).astype(np.float32)
            shape = len(ends) - 1, len(table)
            means = sparse.csr_array((shares, rows.ravel(), ends), shape) @ table
            slopes = means.reshape(len(some), len(self.sizes), len(start))
            for step in range(len(self.sizes)):
                moved, state = rule.update(slopes[:, step], state, theta)
                theta = theta + moved
        return theta.astype(np.float64)

    def scores(self, some: Indices, width: int) -> Array:
        """What the best of so many predictions leave of the message: less is better."""
        part = slice(width)
        own, missed = self.options.own, self.missed[:, part]
        white = whitening(missed / np.sqrt(len(missed) - 1), self.sd[part], own)
        residual = self.returned[self.which[part]] - self.predicted(some, part) - self.centre[part]
        return np.asarray(np.log1p(white(residual) ** 2 / (4 * own)).mean(axis=1))


def orders_of(some: Sequence[Tried], place: Place) -> Indices:
    """The orders (tried, epochs, records): a convention's are drawn together."""
    made = np.empty((len(some), place.epochs, place.records), np.int64)
    for convention in {tried[0] for tried in some}:
        at = [i for i, tried in enumerate(some) if tried[0] == convention]
        made[at] = orders(convention, [some[i][1] for i in at], place)
    return made


def guessed(
    client: Client, order: BatchOrder, place: Place, rng: np.random.Generator
) -> Posterior | None:
    """The proven answer under one of the orders that may be, if there is one."""
    if client.recipe.clip_norm is not None or not client.recipe.local_steps(place.records):
        return None  # coordinates of a clipped gradient cannot be predicted by themselves
    sources = {c.source: c for c in order.tried()}  # to a first message restarts are one
    every = [(c, seed) for c in sources.values() for seed in order.seeds]
    screen = Screen(client, rng)
    for tried in ranked(screen, every, place, rng)[: screen.options.decoded]:
        result = Replay(client, orders_of([tried], place)[0], GUESSED).answer()
        if result is not None:
            seed_words = f"seed {tried[1]}: {SOURCES[tried[0].source].words}"
            notes = {**result.notes, "order_guessed": seed_words, "seeds_tried": len(every)}
            return replace(result, notes=notes)
    return None


def ranked(
    screen: Screen, every: Sequence[Tried], place: Place, rng: np.random.Generator
) -> list[Tried]:
    """The orders that explain the message far better than others do, the best first."""
    options, chunk = screen.options, max(1, _AT_ONCE // (place.records * place.epochs))
    some = list(every)
    for width, survivors in zip(options.widths, options.survivors, strict=True):
        parts = [some[start : start + chunk] for start in range(0, len(some), chunk)]
        scores = np.concatenate([screen.scores(orders_of(p, place), width) for p in parts])
        best = np.argsort(scores, kind="stable")[:survivors]
        some, scores = [some[i] for i in best], scores[best]
    n, times = place.records, options.clients * place.epochs
    random = batch_order(np.full(times, n), n, rng).reshape(options.clients, place.epochs, n)
    wrong = screen.scores(random, options.widths[-1])
    eighth = np.sort(np.append(scores, wrong))[options.survivors[-1] - 1]
    stands_out = scores < eighth - options.stands_out * wrong.std(ddof=1)
    return [tried for tried, far in zip(some, stands_out, strict=True) if far]
