"""Is a message as far from replays of it as these are from each other, or as rounding goes?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

Array = NDArray[np.float64]
CLOSE = 0.01
"""What chance does not explain must be more than this part of the update's length."""
CARELESS = 3.0
"""How many standard deviations of rounding are no misfit."""
FARTHER = 1.25
"""A strange client is farther from its replays than any of them from the others, by this much."""
SHRUNK = 0.1
"""Part of a coordinate's variance that is taken from all: few replays know one poorly."""
TINY = 1e-300


@dataclass(frozen=True)
class Outcome:
    """A client's messages beside their replays. ``strange``: farther than chance and rounding
    explain. Of the round that tells most (``row``), in parts of its update's length: ``off``, how
    far the message is from the mean replay, and ``by_chance``, how far the farthest replay is from
    the others (0 where nothing is random). ``longer``: how much longer than the replays all
    messages are, along these, with its standard error ``longer_sd`` (0: there is none).
    ``absorbed``: random orders are no more than an excuse, as a full batch comes closer."""

    strange: bool
    row: int
    off: float
    by_chance: float
    longer: float = 0.0
    longer_sd: float = 0.0
    absorbed: bool = False


def exactly(update: Array, replay: Array, rounded: Array, row: int = 0) -> Outcome:
    """A message (P,) beside the one replay there can be; ``rounded``: sd of its rounding (P,)."""
    length = _length(update)
    if not np.isfinite(replay).all():
        return Outcome(True, row, np.inf, 0.0)
    off = np.linalg.norm(update - replay)
    explained = np.hypot(CLOSE * length, CARELESS * np.linalg.norm(rounded))
    return Outcome(bool(off > explained), row, float(off / length), 0.0)


class Chance:
    """Messages beside replays that differ by chance, round after round.

    Four readings of a client. Three in units of each coordinate's spread among the replays: how far
    its messages are from the mean replays; how much longer they are along these, which a learning
    rate or a number of epochs changes; and how far the mean of all its messages is, which other
    records change in every round alike. The fourth is how close messages are to the direction of a
    full batch: orders that are random leave them no closer to any one direction than they leave the
    replays. Each replay is read against the others, in all rounds together.
    """

    def __init__(self, replays: int, parameters: int) -> None:
        self.replays, self.rounds = replays, 0
        # of the message first, then of each replay
        self.squares = np.zeros(replays + 1)
        self.along, self.certainty = np.zeros(replays + 1), np.zeros(replays + 1)
        self.moved = np.zeros((replays + 1, parameters))
        self.variance = np.zeros((replays + 1, parameters))
        self.turned = np.zeros(replays + 1)
        self.beyond = self.lengths = 0.0
        self.offs: list[tuple[float, float]] = []

    def add(self, update: Array, many: Array, rounded: Array, whole: Array | None = None) -> None:
        """A round: the message (P,), its replays (R, P), the sd of its rounding (P,), and what a
        full batch leads to (P,), if that is to be told from random orders."""
        count = self.replays
        mean = many.mean(axis=0)
        own = many - mean
        total = (own**2).sum(axis=0)
        scale = count / (count - 1)  # a replay is so much farther from the mean of the others
        away = np.vstack([update - mean, scale * own])
        means = np.vstack([mean, mean - own / (count - 1)])
        left = np.vstack([total / (count - 1), (total - scale * own**2) / (count - 2)])
        variance = (1 - SHRUNK) * left + SHRUNK * left.mean(axis=1, keepdims=True) + rounded**2
        weights = 1 / np.maximum(variance, TINY)
        self.squares += (away**2 * weights).mean(axis=1)
        self.along += (away * means * weights).sum(axis=1)
        self.certainty += (means**2 * weights).sum(axis=1)
        self.moved += away
        self.variance += variance
        self.rounds += 1
        length, apart = _length(update), np.linalg.norm(away, axis=1)
        self.beyond += float(apart[0] ** 2 - np.mean(apart[1:] ** 2))
        self.lengths += length**2
        if whole is not None:
            all_ = np.vstack([update, many])
            cosines = all_ @ whole / (np.linalg.norm(all_, axis=1) * _length(whole)).clip(TINY)
            self.turned += np.maximum(1 - cosines**2, 0)
        self.offs.append((float(apart[1:].max()) / length, float(apart[0]) / length))

    @property
    def longer(self) -> Array:
        """(1 + R,) by which part of themselves messages are longer along the mean replays."""
        return self.along / np.maximum(self.certainty, TINY)

    def readings(self) -> Array:
        """(1 + R, 4): of the message, then of each replay."""
        straight = self.moved**2 / np.maximum(self.variance, TINY)
        # its logarithm, as chance may bring one of few messages close to any direction
        close = (
            -np.log(np.maximum(self.turned / self.rounds, TINY))
            if self.turned.any()
            else self.turned
        )
        far = np.sqrt(self.squares / self.rounds)
        return np.stack([far, np.abs(self.longer), np.sqrt(straight.mean(axis=1)), close], axis=1)

    def farthest(self) -> bool:
        """Whether the client is farther than every replay, in any reading."""
        own, *others = self.readings()
        return bool((own > np.max(others, axis=0)).any())

    def strange(self, level: float) -> bool:
        """Whether the client differs in any reading."""
        return bool(self.exceeded(level).any())

    def exceeded(self, level: float) -> NDArray[np.bool_]:
        """Which readings are larger than those of all replays, than Student's ``level`` allows
        for one more of them, and by more than `CLOSE` of the updates."""
        own, others = (readings := self.readings())[0], readings[1:]
        asked = len(own) if self.turned.any() else len(own) - 1
        allowed = student_t.ppf(1 - level / asked, self.replays - 1)
        allowed *= np.sqrt(1 + 1 / self.replays)
        farther = np.array([FARTHER, FARTHER, FARTHER, 1.0]) * others.max(axis=0)
        most = np.maximum(others.mean(axis=0) + allowed * others.std(axis=0, ddof=1), farther)
        length = max(self.lengths, TINY)
        matters = [
            np.sqrt(max(self.beyond, 0.0) / length),
            own[1],
            np.linalg.norm(self.moved[0]) / np.sqrt(self.rounds * length),
            np.sqrt(self.turned[1:].mean() / self.rounds),
        ]
        return np.asarray((own > most) & (np.array(matters) > CLOSE))

    def outcome(self, level: float) -> Outcome:
        """The round that tells most is the one that leaves least to chance."""
        by_chance, off, row = min((*offs, row) for row, offs in enumerate(self.offs))
        strange, longer = self.exceeded(level), self.longer
        sd = float(longer[1:].std(ddof=1))
        # where noise drowns the mean replay, replays are as much shorter along it as messages are
        beyond = float(longer[0] - longer[1:].mean())
        return Outcome(bool(strange.any()), row, off, by_chance, beyond, sd, bool(strange[3]))


def _length(update: Array) -> float:
    return max(float(np.linalg.norm(update)), TINY)
