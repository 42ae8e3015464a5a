"""When was a record used? What of the order of a client's batches is decoded along with the secret.

A record of a small last batch weighs several times as much as others, and a record that is used
late meets another model. Where records are few, the stretch that a record fell into is one more
thing that is unknown of it: a candidate is then a value *and* a slot. Where they are many only the
small last batch is told apart, and the rest of the order is noise (`programs.response`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates, Stretches, stretches
from overheard.programs.training import Shards

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_CANDIDATES = 2
"""Candidates a record up to which slots are decoded along: more states cost too much."""
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

    @property
    def exclusive(self) -> bool:
        """Does each slot take a number of records that is known? Of several epochs it does not."""
        return len(self) > 1 and not (self.weights[0] * self.weights[1]).any()

    def of(self, times: Stretches, data: Shards) -> Indices:
        """The slot (S, m) of every record of clients that visited them in the orders of the
        shards: how often each was in the last batch."""
        found = np.zeros(data.labels.shape, dtype=np.int64)
        if len(self) == 1:
            return found
        members = data.labels.shape[1]
        begin = members - round(float(times.shares[self.resolved][0]) * members)
        for order in data.orders:
            late = np.asarray(order[:, begin:])
            np.put_along_axis(found, late, np.take_along_axis(found, late, axis=1) + 1, axis=1)
        return np.minimum(found, len(self) - 1)


def slots(times: Stretches, candidates: int) -> list[Slots]:
    """What of the order may be decoded, of records with so many candidates: nothing; and how often
    a record was in a small last batch."""
    groups = len(times.groups)
    nothing = Slots(np.ones((1, groups)), np.ones(1), np.zeros(groups, bool))
    pieces = int((times.epochs == 0).sum())
    share = float(times.shares[pieces - 1])
    small = len(times.groups[pieces - 1]) == times.repeats[pieces - 1] and share < 1 / pieces
    if pieces < 2 or not small or candidates > MOST_CANDIDATES:
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

    def given(self, probabilities: Array) -> tuple[Array, Array]:
        """Means (n, Z - 1, K) of the states' indicators (all but the first) given each candidate;
        and columns (n, Z - 1, Z) whose products are what these leave of the covariance (n, Z)."""
        kinds = np.eye(int(self.candidate.max()) + 1)[self.candidate]
        sums = np.maximum(probabilities @ kinds, 1e-300)
        each = (probabilities / sums[:, self.candidate])[:, :, None] * kinds
        apart = np.eye(len(self.slot)) - each[:, :, self.candidate]
        return each[:, 1:], (apart * np.sqrt(probabilities)[:, None])[:, 1:]

    def of(self, chosen: Indices, slot: Indices) -> Indices:
        """The states of candidates and slots (S, n)."""
        number = np.zeros((int(self.candidate.max()) + 1, len(self.slots)), dtype=np.int64)
        for state, (k, z) in enumerate(zip(self.candidate, self.slot, strict=True)):
            number[k, slice(None) if z < 0 else z] = state
        return np.asarray(number[chosen, slot])


def kinds_of_states(recipe: Recipe, candidates: Candidates) -> list[States]:
    """What of the order may be decoded along: nothing, or also a small last batch."""
    times = stretches(recipe, candidates.members)
    found = []
    for made in slots(times, int(candidates.present.sum())):
        pairs = [
            (k, z)
            for k in range(len(candidates.present))
            for z in (range(len(made)) if candidates.present[k] else (-1,))
        ]
        candidate, slot = np.array(pairs, dtype=np.int64).T
        found.append(States(candidate, slot, made))
    return found
