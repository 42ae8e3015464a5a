"""When was a record used? What of the order of a client's batches is decoded along with the secret.

With momentum a record of the first batches weighs several times as much as one of the last, and one
of a small last batch more than others of its time. So the stretch that a record fell into is one
more thing that is unknown of it: its *state* is a candidate and a slot. What a slot does is mostly
to multiply all that the record adds by a number; the rest of it is noise (`programs.response`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Encoded, Stretches, stretches
from overheard.programs.training import Shards

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_CANDIDATES = 2
"""Encoded a record up to which slots are decoded along: more states cost too much."""
_RARE = 0.005  # chance up to which being several times in the last batch is left out


@dataclass(frozen=True)
class Slots:
    """``weights[z, j]``: what a record in slot z adds in stretch j, in units of what it adds there
    in expectation; ``chances`` (Z,); ``resolved[j]``: the stretch is a slot of its own."""

    weights: Array
    chances: Array
    resolved: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.chances)

    def of(self, times: Stretches, data: Shards) -> Indices:
        """The slot (S, m) of every record of clients that visited them in the orders of the
        shards: its stretch, or how often it was in the last batch."""
        found = np.zeros(data.labels.shape, dtype=np.int64)
        if len(self) == 1:
            return found
        members = data.labels.shape[1]
        if self.resolved.all():
            counts = np.rint(self.chances * members).astype(np.int64)
            place = np.repeat(np.arange(len(self)), counts)
            np.put_along_axis(found, data.orders[0], np.broadcast_to(place, found.shape), axis=1)
            return found
        begin = members - round(float(times.shares[self.resolved][0]) * members)
        for order in data.orders:
            late = np.asarray(order[:, begin:])
            np.put_along_axis(found, late, np.take_along_axis(found, late, axis=1) + 1, axis=1)
        return np.minimum(found, len(self) - 1)


def slots(times: Stretches, candidates: int) -> list[Slots]:
    """What of the order may be decoded, of records with so many candidates: nothing; and the
    stretch that a record fell into (or none, where batches that are not full are dropped), or of
    several epochs how often it was in a small last batch."""
    groups = len(times.groups)
    nothing = Slots(np.ones((1, groups)), np.ones(1), np.zeros(groups, bool))
    if candidates > MOST_CANDIDATES or groups == 1:
        return [nothing]
    if times.repeats.max() == 1 and not times.epochs.any():  # one epoch
        none = [rest] if (rest := 1 - times.shares.sum()) > 1e-9 else []
        weights = np.vstack([np.diag(1 / times.shares), np.zeros((len(none), groups))])
        return [nothing, Slots(weights, np.append(times.shares, none), np.ones(groups, bool))]
    pieces = int((times.epochs == 0).sum())
    share = float(times.shares[pieces - 1])
    small = len(times.groups[pieces - 1]) == times.repeats[pieces - 1] and share < 1 / pieces
    if pieces < 2 or not small:
        return [nothing]
    epochs = round(float(times.repeats[::pieces].sum()))
    last = np.arange(groups) % pieces == pieces - 1
    count = np.arange(epochs + 1)
    chances = binom.pmf(count, epochs, share)
    kept = count[: max(2, int((chances > _RARE).sum()))]
    inside = kept[:, None] / epochs
    weights = np.where(last, inside / share, (1 - inside) / (1 - share))
    return [nothing, Slots(weights, chances[kept] / chances[kept].sum(), last)]


@dataclass(frozen=True)
class States:
    """What may be unknown of a record: which candidate it is, and in which slot it was used.

    candidate, slot: (Z,) of every state, the first the reference; slots: what of the order is
    decoded. A record that is absent has one state.
    """

    candidate: Indices
    slot: Indices
    slots: Slots

    @property
    def chances(self) -> Array:
        """Of a state, given its candidate (Z,)."""
        return np.where(self.slot < 0, 1.0, self.slots.chances[self.slot])

    def prior(self, belief: Array) -> Array:
        """Probabilities (n, Z) from those of the candidates (n, K)."""
        return np.asarray(belief[:, self.candidate] * self.chances)

    def candidates(self, probabilities: Array) -> Array:
        """Probabilities (n, K) of the candidates, summed over slots (n, Z)."""
        values = int(self.candidate.max()) + 1
        return np.asarray(probabilities @ np.eye(values)[self.candidate])

    def points(self, sizes: Array) -> Array:
        """Where the states are (Z, c), the first at zero: coefficients of a record's columns. Slots
        multiply what a record adds by ``sizes``; the columns are the first candidate's, where it
        adds anything and its size is unknown, and the others' differences to it."""
        size = np.where(self.slot < 0, 0.0, sizes[self.slot])[:, None]
        made = size * np.eye(int(self.candidate.max()) + 1)[self.candidate][:, 1:]
        if self.sized:
            made = np.hstack([size, made])
        return np.asarray(made - made[0])

    @property
    def sized(self) -> bool:
        """Is the first candidate there in any case, in a size that is unknown?"""
        return bool(self.slot[0] >= 0 and len(self.slots) > 1)

    def given(self, probabilities: Array, points: Array) -> tuple[Array, Array]:
        """Means (n, c, K) of the states' points given each candidate; and columns (n, c, c) whose
        products are what these leave of the covariance."""
        kinds = np.eye(int(self.candidate.max()) + 1)[self.candidate]
        sums = np.maximum(probabilities @ kinds, 1e-300)
        means = points.T @ ((probabilities / sums[:, self.candidate])[:, :, None] * kinds)
        apart = (points.T - means[:, :, self.candidate]) * np.sqrt(probabilities)[:, None]
        values, axes = np.linalg.eigh(apart @ np.swapaxes(apart, 1, 2))
        return means, axes * np.sqrt(np.maximum(values, 0.0))[:, None]

    def of(self, chosen: Indices, slot: Indices) -> Indices:
        """The states of candidates and slots (S, n)."""
        number = np.zeros((int(self.candidate.max()) + 1, len(self.slots)), dtype=np.int64)
        for state, (k, z) in enumerate(zip(self.candidate, self.slot, strict=True)):
            number[k, slice(None) if z < 0 else z] = state
        return np.asarray(number[chosen, slot])


def kinds_of_states(recipe: Recipe, candidates: Encoded) -> list[States]:
    """What of the order may be decoded along: nothing, or also when a record was used."""
    times = stretches(recipe, candidates.members)
    found = []
    kinds = slots(times, int(candidates.present.sum()))
    for made in kinds if recipe.private is None else kinds[:1]:
        pairs = [
            (k, z)
            for k in range(len(candidates.present))
            for z in (range(len(made)) if candidates.present[k] else (-1,))
        ]
        candidate, slot = np.array(pairs, dtype=np.int64).T
        found.append(States(candidate, slot, made))
    return found
