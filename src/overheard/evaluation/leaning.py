"""Would another description explain the messages better than the one that is stated?

Random orders hide a misfit that is small in every coordinate, unless one knows where to look.
Clients are simulated as stated and, in the same orders, by an alternative: columns scaled by each
client instead of together, or the other way round; labels that do not go with their records
exchanged. What the alternative changes on the average, weighed by the inverse covariance over
orders, is the direction in which the two are told apart best (Fisher's). The messages of several
clients together are asked how far they lean that way, beside federations simulated as stated that
had no part in finding it: that they lean farther than all of these has a known chance, whatever the
distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
BLOCK, LIKE = 256, (60, 1000)
"""Simulations by an alternative, and half of those as stated from which a covariance is taken; and
federations simulated as stated beside which the messages are, first and where they lean farther
than these: by chance one in a thousand does."""
SIMULATIONS = 4 * BLOCK + sum(LIKE)
OWN = 0.05
"""Part of a coordinate's variance that is taken to be its own: few simulations correlate many."""
WAY = 0.2
"""Of the way to the alternative that messages must lean. A description that is a little off, by a
deviation over n - 1 instead of n, leans by less, and is none the worse for it."""
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


def leaning(
    clients: Sequence[Heard], told: Recipe, truth: Mapping[str, Records]
) -> frozenset[str]:
    """Those of the clients whose messages an alternative explains better; mostly none."""
    labels = {c: told.target.encode(records) for c, records in truth.items()}
    stated = [_Stated.of(one, told, labels) for one in clients]
    for other in alternatives(told, truth, labels):
        asked = [one.asked(*other) for one in stated]
        own = np.array([one.leans(one.heard.messages) for one in asked])
        least = WAY * np.array([one.whole for one in asked])
        for seed, times in enumerate(LIKE, 2):
            like = np.sum([one.like(told, labels, times, seed) for one in asked], axis=0)
            if abs(own.sum()) <= max(np.abs(like).max(), least.sum()):
                break
        else:
            own *= np.sign(own.sum())
            return frozenset(
                one.name for one, far, some in zip(clients, own, least, strict=True) if far > some
            )
    return frozenset()


@dataclass(frozen=True)
class _Stated:
    """A client as it is stated: means of its messages (T, P), and simulations about them."""

    heard: Heard
    first: list[Array]
    mean: Array
    away: list[Array]

    @classmethod
    def of(cls, heard: Heard, told: Recipe, labels: Labels) -> _Stated:
        first, means, away = [], [], []
        for t in range(len(heard.messages)):
            many = [heard.simulated(told, labels, t, BLOCK, seed) for seed in (0, 1)]
            first.append(many[0])
            means.append(np.mean(many, axis=(0, 1)))
            away.append((np.concatenate(many) - means[-1]) / np.sqrt(2 * BLOCK - 1))
        return cls(heard, first, np.array(means), away)

    def asked(self, told: Recipe, labels: Labels) -> _Asked:
        """About an alternative."""
        ways, whole = [], 0.0
        for t, away in enumerate(self.away):
            mean = (self.heard.simulated(told, labels, t, BLOCK, 0) - self.first[t]).mean(axis=0)
            variance = (away**2).sum(axis=0)
            variance = (1 - OWN) * variance + OWN * variance.mean()
            own = np.maximum(OWN * variance + self.heard.rounded[t] ** 2, _TINY)
            low = np.sqrt(1 - OWN) * away / own
            inside = np.eye(len(low)) + low @ (np.sqrt(1 - OWN) * away).T
            way = mean / own - low.T @ linalg.solve(inside, low @ mean, assume_a="pos")
            ways.append(way)
            whole += float(way @ mean)
        return _Asked(self.heard, self.mean, np.array(ways), whole)


@dataclass(frozen=True)
class _Asked:
    """A client and the direction of an alternative; ``whole``: how far the alternative leans."""

    heard: Heard
    mean: Array
    ways: Array
    whole: float

    def leans(self, messages: Array) -> float:
        return float(((messages - self.mean) * self.ways).sum())

    def like(self, told: Recipe, labels: Labels, times: int, seed: int) -> Array:
        """How far simulated clients lean (times,)."""
        return np.sum(
            [
                (self.heard.simulated(told, labels, t, times, seed) - mean) @ way
                for t, (mean, way) in enumerate(zip(self.mean, self.ways, strict=True))
            ],
            axis=0,
        )


def alternatives(
    told: Recipe, truth: Mapping[str, Records], labels: Labels
) -> Iterator[tuple[Recipe, Labels]]:
    """Other descriptions that are easily mistaken for this one."""
    if told.own:
        columns = told.encoding.columns()
        every = {n: np.concatenate([records[n] for records in truth.values()]) for n in columns}
        together = rescaled(told.encoding, Records(every))
        yield told.model_copy(update={"encoding": together, "own": {}}), labels
    else:
        own = {c: rescaled(told.encoding, records) for c, records in truth.items()}
        if any(encoding != told.encoding for encoding in own.values()):
            yield told.model_copy(update={"own": own}), labels
    classes = len(told.target.classes)
    seen = {c: encode(told.of(c).encoding, records) for c, records in truth.items()}
    yield told, {c: doubted(seen[c], y, classes, stream(0, "labels", c)) for c, y in labels.items()}


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
