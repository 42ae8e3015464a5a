"""Would another description explain the messages better than the one that is stated?

Random orders hide a misfit that is small in every coordinate, unless one knows where to look.
Clients are simulated as stated and, in the same orders, by an alternative: columns scaled by each
client instead of together, or the other way round; labels that do not go with their records
exchanged. What that changes, and the covariance over orders, give the log odds of the alternative.
The messages of several clients together are beside federations simulated as stated that had no part
in this: that their odds are larger than all of these has a known chance, whatever the distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.programs.recipe import Recipe
from overheard.programs.records import AnyBlock, Codes, Encoding, OneHot, Records, encode
from overheard.randomness import stream

Array = NDArray[np.float64]
Labels = Mapping[str, Array]
"""Of clients, as the model sees them: (n,), or in every simulation others (times, n)."""
CLIENTS = 6
"""That are asked, evenly spread."""
BLOCK, LIKE = 256, (60, 3000)
"""Simulations by an alternative, and half of those as stated that tell the covariance; then
federations beside which the messages are, first and where they lean farther than these: by chance
one in 3000 does, and three are asked: one audit in a thousand."""
SIMULATIONS = 4 * BLOCK + LIKE[0]
"""That every client takes."""
PARAMETERS = 1000
"""The most whose covariance is worth while."""
OWN = 0.05
"""Part of a coordinate's variance that is taken to be its own: few simulations correlate many."""
RIDGE = 0.3
"""Of the mean square of what is changed: shrinks what a single label is found to change."""
FAR = 1.5
"""Times as far as usual a message may be from the mean before it is pulled in: some orders are."""
WAY = 0.2
"""Of the way to the alternative that messages must be. A description that is a little off, by a
deviation over n - 1 instead of n, leans by less, and is none the worse for it."""
SURE = 0.99
"""Of the simulated clients that one leans farther than, to be named where all together do."""
WRONG, VALUES = 0.1, 20
"""Chance of a label to be wrong; and what it may be instead, where it is a number."""
_TINY = 1e-300


@dataclass(frozen=True)
class Heard:
    """A client's messages (T, P), the sd of their rounding, and what it would have sent in round t:
    ``simulated(told, labels, t, times, seed)`` (times, P), of one seed in the same orders."""

    name: str
    messages: Array
    rounded: Array
    simulated: Callable[[Recipe, Labels, int, int, int], Array]

    def every(self, told: Recipe, labels: Labels, times: int, seed: int) -> Array:
        """Of all rounds (times, T, P)."""
        rounds = range(len(self.messages))
        return np.stack([self.simulated(told, labels, t, times, seed) for t in rounds], axis=1)


def leaning(clients: Sequence[Heard], told: Recipe, truth: Mapping[str, Records]) -> dict[str, str]:
    """The clients whose messages an alternative explains better, with its words; mostly none."""
    labels = {one.name: told.target.encode(truth[one.name]) for one in clients}
    stated = [Stated.of(one, told, labels) for one in clients]

    @cache
    def like(times: int, seed: int) -> list[Array]:
        return [one.likely(one.heard.every(told, labels, times, seed)) for one in stated]

    for words, other, others in alternatives(told, truth, labels):
        changed = [one.heard.every(other, others, BLOCK, 0) - one.first for one in stated]
        differ = [others[one.name] != labels[one.name] for one in clients]
        for each in sorted({False, any(map(np.any, differ))}):
            parts = [d if each and d.any() else np.ones((BLOCK, 1)) for d in differ]
            asked = list(map(Beside.of, stated, changed, parts))
            own = np.array([one.odds(one.stated.own)[0] for one in asked])
            for seed, times in enumerate(LIKE, 2):
                odds = [one.odds(many) for one, many in zip(asked, like(times, seed), strict=True)]
                if own.sum() <= np.sum(odds, axis=0).max():
                    break
            else:
                along, whole = np.sum([one.way() for one in asked], axis=0)
                ranks = (np.array(odds) < own[:, None]).mean(axis=1)
                if abs(along) > WAY * whole:
                    least = min(SURE, ranks.max())
                    named = zip(clients, ranks, strict=True)
                    return {one.name: words for one, rank in named if rank >= least}
    return {}


@dataclass(frozen=True)
class Stated:
    """A client that does as stated: simulations of its messages, their means (T, P), and roots of
    their covariances over orders (T, P, P)."""

    heard: Heard
    first: Array
    mean: Array
    roots: Array

    @classmethod
    def of(cls, heard: Heard, told: Recipe, labels: Labels) -> Stated:
        first, more = (heard.every(told, labels, BLOCK, seed) for seed in (0, 1))
        many = np.concatenate([first, more])
        roots = []
        for t, rounded in enumerate(heard.rounded):
            covariance = np.cov(many[:, t], rowvar=False)
            variance = np.diagonal(covariance)
            own = (1 - OWN) * variance + OWN * variance.mean()
            covariance = (1 - OWN) * covariance + np.diag(OWN * own + rounded**2 + _TINY)
            roots.append(np.linalg.cholesky(covariance))
        return cls(heard, first, many.mean(axis=0), np.array(roots))

    @property
    def own(self) -> Array:
        """The messages, as those that are like them."""
        return self.likely(self.heard.messages[None])

    def white(self, away: Array) -> Array:
        """Differences (N, T, P) in units of what orders do, all directions alike."""
        made = [
            linalg.solve_triangular(root, away[:, t].T, lower=True).T
            for t, root in enumerate(self.roots)
        ]
        return np.stack(made, axis=1)

    def likely(self, messages: Array) -> Array:
        """How messages (N, T, P) differ from the mean (N, T * P), no farther than is likely."""
        usual = np.median(np.linalg.norm(self.white(self.first - self.mean), axis=2), axis=0)
        white = self.white(messages - self.mean)
        lengths = np.maximum(np.linalg.norm(white, axis=2), _TINY)
        short = white * np.minimum(1, FAR * usual / lengths)[..., None]
        return np.asarray(short.reshape(len(white), -1))


@dataclass(frozen=True)
class Beside:
    """A client beside an alternative of K parts, each of which is so in some simulations: what each
    changes (K, T * P), and how often it is so."""

    stated: Stated
    each: Array
    mean: Array
    sd: Array

    @classmethod
    def of(cls, stated: Stated, changed: Array, parts: NDArray[Any]) -> Beside:
        inner = (parts := parts.astype(float)).T @ parts
        inner += RIDGE * np.trace(inner) / len(inner) * np.eye(len(inner))
        each = np.linalg.solve(inner, parts.T @ stated.white(changed).reshape(BLOCK, -1))
        return cls(stated, each, parts.mean(axis=0), parts.std(axis=0))

    def odds(self, likely: Array) -> Array:
        """Log odds of the alternative (N,) after such messages (N, T * P), but for a constant."""
        moved = self.each @ self.each.T
        told = likely @ self.each.T
        left = (told - moved @ self.mean) * self.sd
        inner = np.eye(len(moved)) + self.sd[:, None] * moved * self.sd
        more = (left * np.linalg.solve(inner, left.T).T).sum(axis=1) / 2
        return np.asarray(told @ self.mean + more)

    def way(self) -> Array:
        """How far the messages are on the way to the alternative, and how far that is."""
        whole = self.mean @ self.each
        white = self.stated.white(self.stated.heard.messages[None] - self.stated.mean)
        return np.array([white.ravel() @ whole, whole @ whole])


def alternatives(
    told: Recipe, truth: Mapping[str, Records], labels: Labels
) -> Iterator[tuple[str, Recipe, Labels]]:
    """Other descriptions that are easily mistaken for this one, in words."""
    if told.own:
        columns = told.encoding.columns()
        every = {n: np.concatenate([records[n] for records in truth.values()]) for n in columns}
        together = rescaled(told.encoding, Records(every))
        alike = told.model_copy(update={"encoding": together, "own": {}})
        yield "columns scaled together", alike, labels
    else:
        own = {c: rescaled(told.encoding, records) for c, records in truth.items()}
        if any(encoding != told.encoding for encoding in own.values()):
            yield "columns scaled per client", told.model_copy(update={"own": own}), labels
    classes = len(told.target.classes)
    seen = {c: encode(told.of(c).encoding, truth[c]) for c in labels}
    drawn = {c: doubted(seen[c], y, classes, stream(0, "labels", c)) for c, y in labels.items()}
    yield "other labels", told, drawn


def rescaled(encoding: Encoding, records: Records) -> Encoding:
    """With every column that is scaled at all scaled by the mean and deviation of these records."""

    def anew(block: AnyBlock) -> AnyBlock:
        if isinstance(block, OneHot) or (block.shift, block.scale) == (0.0, 1.0):
            return block
        values = records[block.column]
        numbers = block.places(values) if isinstance(block, Codes) else values
        update = {"shift": float(numbers.mean()), "scale": float(numbers.std()) or 1.0}
        return block.model_copy(update=update)

    return Encoding(blocks=tuple(map(anew, encoding.blocks)))


def doubted(x: Array, y: Array, classes: int, rng: np.random.Generator) -> Array:
    """Labels (BLOCK, n) drawn from what they may really be: each is wrong with chance `WRONG`, and
    then what the other records suggest (ridge regression without it). ``classes``: 0 if numbers."""
    values = np.arange(classes) if classes else np.quantile(y, np.linspace(0, 1, VALUES))
    points = np.eye(classes) if classes else values[:, None]
    own = ((y[:, None] - values) ** 2).argmin(axis=1)
    stated = points[own] if classes else y[:, None]
    x = np.column_stack([np.ones(len(x)), x])
    hat = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T)
    left = (stated - x @ (hat @ stated)) / np.maximum(1 - (x * hat.T).sum(axis=1), OWN)[:, None]
    far = ((points - (stated - left)[:, None]) ** 2).sum(axis=2) / (left**2).sum(axis=1).mean()
    same = np.arange(len(values)) == own[:, None]
    chance = np.exp(-far / 2) * np.where(same, 1 - WRONG, WRONG / (len(values) - 1))
    sure = (chance / chance.sum(axis=1, keepdims=True)).cumsum(axis=1)
    drawn = (rng.random((BLOCK, len(y), 1)) > sure[:, :-1]).sum(axis=2)
    return np.where(drawn == own, y, values[drawn])
