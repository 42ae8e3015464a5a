"""How well does a recipe explain what clients sent, given their own records?

The recipe is replayed from the models that were sent. Where nothing is random there is one replay,
and a message may differ from it by rounding. Where the order of mini-batches is random, replays
under many orders give mean and covariance of what might have been sent: low rank and a diagonal,
mixed and scaled such that half of the replays are most likely under the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import gammaln

from overheard.attacks.wire import spread
from overheard.evaluation.replay import MOST_BYTES, certain
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.programs.training import local_training, shards

Array = NDArray[np.float64]

PULLING = 256  # records whose gradients say how orders correlate the coordinates
COORDINATES = 64  # of a message that are weighed: half as many as replays, which must know how
# these correlate
_FAR = 100.0  # square of a deviation beyond which it is a kink of the rule, not more unlikely
_CHOOSING = 3  # messages by which shares are chosen, which differ little from round to round
_LEAST, _TINY = 1e-3, 1e-300


@dataclass(frozen=True)
class Messages:
    """Some rounds of some clients, a client's together: models sent (M, P) as they were on the
    wire, what was added to them (M, P), the sd of its rounding (M, P), and whose they are (M,)."""

    sent: NDArray[Any]
    added: Array
    rounded: Array
    client: NDArray[np.int64]

    def spread(self, most: int) -> Messages:
        """At most so many of them, evenly spread; the same if that is all."""
        if most >= len(self.sent):
            return self
        rows = spread(len(self.sent), most)
        return Messages(self.sent[rows], self.added[rows], self.rounded[rows], self.client[rows])


@dataclass(frozen=True)
class Seen:
    """Every client's records as the model sees them."""

    inputs: tuple[Array, ...]
    labels: tuple[Array, ...]

    @classmethod
    def of(cls, recipe: Recipe, clients: Mapping[str, Records]) -> Seen:
        """These clients' records, each in its own encoding if it has one."""
        inputs = (encode(recipe.of(c).encoding, records) for c, records in clients.items())
        return cls(tuple(inputs), tuple(map(recipe.target.encode, clients.values())))


def replayed(recipe: Recipe, seen: Seen, heard: Messages, times: int, kind: str = "") -> Array:
    """What replays add to the models that were sent (M, times, P), in the precision ``kind`` (by
    default the wire's); under the same orders whenever batches and epochs are the same."""
    rng = np.random.default_rng(0)
    sent = heard.sent.astype(kind or heard.sent.dtype)
    most = max(seen.inputs[c].nbytes for c in set(heard.client.tolist()))
    together = max(1, MOST_BYTES // max(most * times, 1))
    made = []
    for begin in range(0, len(sent), together):
        part = slice(begin, begin + together)
        whose = np.repeat(heard.client[part], times)
        start = np.repeat(sent[part], times, axis=0)
        data = shards(
            [seen.inputs[c] for c in whose], [seen.labels[c] for c in whose], str(sent.dtype)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            ended = local_training(recipe, start, data, rng).astype(np.float64)
            made.append(ended if recipe.sends_gradient else ended - start)
    return np.concatenate(made).reshape(len(sent), times, -1)


def looked_at(heard: Messages) -> NDArray[np.int64]:
    """The coordinates that are weighed where orders are random: of many, some that move at all
    (those that moved far did so by chance, too, and would make any rate seem too low)."""
    size = heard.added.shape[1]
    if size <= 2 * COORDINATES:
        return np.arange(size)
    moving = np.flatnonzero((heard.added != 0).any(axis=0))
    return np.sort(np.random.default_rng(0).permutation(moving)[:COORDINATES])


def gradients(recipe: Recipe, seen: Seen, heard: Messages) -> list[Array]:
    """Of every message, how its client's records pull apart (n, P): their gradients, halfway from
    the model that was sent to the one returned, less their mean; of many, some."""
    net, places = network(recipe), looked_at(heard)
    if net.mixes or recipe.sends_gradient:
        return [np.zeros((0, len(places))) for _ in heard.added]
    made = []
    for sent, added, c in zip(heard.sent, heard.added, heard.client, strict=True):
        half = sent.astype(np.float64) + added / 2
        some = np.random.default_rng(0).permutation(len(seen.labels[c]))[:PULLING]
        own = net.rows(half, seen.inputs[c][some], seen.labels[c][some]).columns(places)
        made.append(np.asarray(own - own.mean(axis=0), dtype=np.float64))
    return made


def evidence(
    recipe: Recipe, seen: Seen, heard: Messages, times: int, nearby: bool = True
) -> tuple[Array, float]:
    """Log densities of the messages (M,), given that clients trained so, at the best rate nearby
    (or at this one); and by how much its logarithm is off."""
    if certain(recipe):
        exact = replayed(recipe, seen, heard, 1, "float64")[:, 0]
        plain = replayed(recipe, seen, heard, 1)[:, 0]
        variance = heard.rounded**2 + ((exact - plain) ** 2).mean(axis=1, keepdims=True)
        squares = np.minimum((heard.added - exact) ** 2 / variance, _FAR)
        return -0.5 * (np.log(2 * np.pi * variance) + squares).sum(axis=1), 0.0
    many = replayed(recipe, seen, heard, times)
    if not np.isfinite(many).all():
        return np.full(len(many), -np.inf), 0.0
    places = looked_at(heard)
    many, size, chosen = many[..., places], len(places), []
    pulls = gradients(recipe, seen, heard)
    half, every = times // 2, [*zip(many, heard.rounded[:, places], pulls, strict=True)]
    some = every[:: -(-len(every) // _CHOOSING)]
    halves = [Orders(m[:half], sd, pull) for m, sd, pull in some]
    for shares in SHARES:
        told = [one.under(shares) for one in halves]
        tried = [(one.white(m[half:]) ** 2).sum(axis=0)
                 for one, (m, *_) in zip(told, some, strict=True)]  # fmt: skip
        wide = max(float(np.mean(tried)) / size, _LEAST)
        for freedom in FREEDOM:
            dense = sum(one.densities(squares, wide, freedom).sum()
                        for one, squares in zip(told, tried, strict=True))  # fmt: skip
            chosen.append((float(dense), shares, wide, freedom))
    _, shares, wide, freedom = max(chosen)
    told = [Orders(m, sd, pull).under(shares) for m, sd, pull in every]
    # to a rate a little larger a message answers by a little more of itself
    white = np.array([one.white(np.stack([added, 2 * one.mean]))
                      for one, added in zip(told, heard.added[:, places], strict=True)]
                     )  # fmt: skip
    left, along, length = (np.einsum("mp,mp->m", white[..., i], white[..., j])
                           for i, j in ((0, 0), (0, 1), (1, 1)))  # fmt: skip
    off = float(along.sum() / max(length.sum(), _TINY)) if nearby else 0.0
    squares = left - 2 * off * along + off**2 * length
    found = [one.densities(x, wide, freedom) for one, x in zip(told, squares, strict=True)]
    return np.array(found), off


class Shares(NamedTuple):
    """Of a message's variance over orders: what the records' pulls correlate, what replays do, and
    the rest, each coordinate's own. ``each``: pulls are scaled to every coordinate's variance, as
    an adaptive rule does, and not by one factor."""

    pulls: float
    replays: float
    each: bool

    @property
    def own(self) -> float:
        return 1 - self.pulls - self.replays


SHARES = tuple(
    Shares(pulls * (1 - own), (1 - pulls) * (1 - own), each)
    for own in (1e-6, 1e-4, 0.01, 0.1, 0.5)
    for pulls in (0.0, 0.5, 0.95)
    for each in ((False, True) if pulls else (False,))
)
"""Of which replays choose: how likely half of them are under the other half."""


FREEDOM = (4.0, 10.0, 30.0, 1000.0)
"""Degrees of freedom of which replays choose: from long tails to none."""


class Orders:
    """What replays under random orders show: their mean, and covariances of which one is chosen."""

    def __init__(self, many: Array, rounded: Array, pulls: Array) -> None:
        count = len(many)
        self.mean, self.rounded = many.mean(axis=0), rounded
        away = many - self.mean
        # the covariance of one more about their mean
        self.replays = (1 + 1 / count) / (count - 1) * away.T @ away
        self.variance, inner = np.diagonal(self.replays), pulls.T @ pulls
        squares = np.maximum(np.diagonal(inner), _TINY)
        each = np.sqrt(self.variance / squares)
        self.pulls = inner * self.variance.sum() / squares.sum(), each[:, None] * inner * each

    def under(self, shares: Shares) -> Normal:
        """One more message, if its variance is shared so."""
        covariance = shares.replays * self.replays + shares.pulls * self.pulls[shares.each]
        covariance += np.diag(shares.own * self.variance + self.rounded**2 + _TINY)
        return Normal(self.mean, linalg.cholesky(covariance, lower=True, check_finite=False))


class Normal(NamedTuple):
    """A mean (P,) and a root of a covariance (P, P)."""

    mean: Array
    root: Array

    def white(self, messages: Array) -> Array:
        """How they differ from the mean (P, K), all directions alike."""
        away = (messages - self.mean).T
        return np.asarray(linalg.solve_triangular(self.root, away, lower=True, check_finite=False))

    def densities(self, squares: Any, wide: float, freedom: float) -> Any:
        """Log densities at these distances, with a covariance ``wide`` times as large: Student's,
        of so many degrees of freedom, as some orders are far from all others."""
        size, scale = len(self.mean), wide * (freedom - 2) / freedom
        constant = gammaln((freedom + size) / 2) - gammaln(freedom / 2)
        constant -= 0.5 * size * np.log(freedom * np.pi * scale)
        constant -= float(np.log(np.diagonal(self.root)).sum())
        return constant - 0.5 * (freedom + size) * np.log1p(squares / (freedom * scale))
