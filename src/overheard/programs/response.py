"""What a client's records do to the model that it returns, to first order, whatever its training.

A client returns F(s, omega): s its records, omega the order of its batches and whatever else is
random. To a listener who knows every candidate of a record, F is close to

    F  =  centre + sum_i J_i(s_i) - E[J_i] + noise

(docs/decoders.md section 8). Everything here is read off *simulated clients*: the client's own
training, from the model that was sent, on records drawn from what is believed.

* **Direct response.** The update rule works entry by entry, so that the returned model's
  derivative by the gradient of step t is a vector R_t, by one backward pass of autograd through
  the rule along a simulated path. A record used at step t adds R_t / |batch| times its gradient.
* **Average before multiplying.** When a record is used nobody knows. An epoch is cut into a few
  stretches; J_i sums, over stretches, the stretch's share of R times the record's gradient at the
  stretch's mean model. Averages of sampled products would keep the noise of the samples.
* **Order as noise columns.** A record's contribution varies with the stretch that it fell into,
  with the client's own path and with the masks that dropout draws.
  These deviations, centred over records too (each batch takes so many, whoever they are), are
  columns of the noise's covariance; what simulated clients show beyond that is its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.programs.networks import Network, network
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import (
    MEMORY,
    Encoded,
    Simulated,
    Stretches,
    simulate,
    stretches,
)
from overheard.programs.slots import Slots, States

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

ORDER_COLUMNS = 4
"""Columns of order noise a record: more stretches are mixed at random into so many."""
EQUATIONS = 24
"""Coordinates a candidate that are used, those that say most: more add little and cost much."""
FEWEST_EQUATIONS = 3000
NUMBERS = 8e6
"""Of the columns of one candidate of all records: more coordinates were tried of 5,210 records, and
say no more."""

_LEAST = 0.1  # of a coordinate's variance that stays its own where simulated clients give the rest
_UNEVEN = 0.5  # part of the order noise that is also taken as independent between coordinates
_TRUSTED = 0.7  # of what simulated clients show beyond the order's columns
_COUNTED = 0.3  # sd of the number of records that a slot takes, which is known


@dataclass(frozen=True)
class Setting:
    """What a client does, what its records may be, what of the order is decoded, what is believed
    so far (n, K); told: sd of the noise that is put on its update after training."""

    recipe: Recipe
    candidates: Encoded
    states: States
    belief: Array
    told: float = 0.0


@dataclass(frozen=True)
class Linearised:
    """One round at a belief, on the coordinates that say most.

    columns: (n c, R), record-major, and points: (Z, c), their coefficients in every state; order:
    noise columns; variance: (R,) of the rest; floor: (R,) of the rest, where simulated clients say
    the noise; left: (S, R), what is left of simulated clients; heard: (R,), what the first states
    leave of the model that was returned. chosen: (S, n), simulated clients' states. counts, sizes:
    (C, n c) and (C,), what records add up to.
    """

    columns: NDArray[np.float32]
    order: NDArray[np.float32]
    variance: Array
    floor: Array
    left: Array
    heard: Array
    chosen: Indices
    points: Array
    counts: Array
    sizes: Array


def linearise(
    at: Setting, messages: tuple[Wire, Wire, Array], chosen: Indices, rng: np.random.Generator
) -> Linearised:
    """One round's messages (sent, returned, and the sd of their rounding and noise, each (P,))
    as a linear measurement of which candidate each record is. chosen: (S, n), candidates of the
    simulated clients."""
    sent, returned, noise = messages
    candidates, states = at.candidates, at.states
    times = stretches(at.recipe, candidates.members)
    done = simulate(at.recipe, sent, candidates, chosen, rng)
    assert done.data is not None
    slot = np.zeros_like(chosen)
    np.put_along_axis(slot, candidates.rows(chosen), states.slots.of(times, done.data), axis=1)
    truth = states.of(chosen, slot)
    parts = Parts(network(at.recipe), done, times, candidates, at.belief, states)
    which = telling(parts, done.ends.astype(np.float64).var(axis=0) + noise**2, rng)
    columns, order, first, points = parts.made(which, rng)
    if len(order) > len(which):  # as many columns as coordinates say the same
        values, axes = linalg.eigh((order.T @ order).astype(np.float64), driver="evd")
        order = (axes * np.sqrt(np.maximum(values, 0.0))).T.astype(np.float32)
    begin = sent[which].astype(np.float64) + first
    told = weights(points, truth) @ columns
    left, heard = done.ends[:, which] - begin - told, returned[which] - begin
    if at.told:
        left = left + rng.normal(0.0, at.told, left.shape)
    own = np.einsum("cr,cr->r", order, order).astype(np.float64)
    excess = np.maximum(left.var(axis=0, ddof=1) - own, 0.0)
    variance = noise[which] ** 2 + _UNEVEN * own + _TRUSTED * excess
    floor = noise[which] ** 2 + _LEAST * (own + excess)
    counts = _counts(states, points, candidates)
    return Linearised(columns, order, variance, floor, left, heard, truth, points, *counts)


def _counts(states: States, points: Array, candidates: Encoded) -> tuple[Array, Array]:
    """What all records' sizes add up to is known, whoever they are and whenever they were used:
    rows over the unknowns (C, n c), and numbers (C,)."""
    n, free = candidates.inputs.shape[1], points.shape[1]
    if candidates.present[0] and not states.sized:
        return np.zeros((0, n * free)), np.zeros(0)
    first = states.chances @ (points[:, 0] * (states.candidate == 0))  # mean, less the first state
    row = np.ones(free) if states.slot[0] < 0 else np.eye(free)[0]
    total = candidates.members if states.slot[0] < 0 else n * first
    return np.tile(row, n)[None] / _COUNTED, np.array([total / _COUNTED])


def weights(points: Array, chosen: Indices) -> NDArray[np.float32]:
    """Coefficients (S, n c) of all columns under states (S, n)."""
    return points.astype(np.float32)[chosen].reshape(len(chosen), -1)


class Parts:
    """Gradients of every record in every state, stretch by stretch, times the response."""

    def __init__(
        self,
        net: Network,
        done: Simulated,
        times: Stretches,
        candidates: Encoded,
        belief: Array,
        states: States | None = None,
    ) -> None:
        self.net, self.done, self.times = net, done, times
        self.candidates, self.belief = candidates, belief
        if states is None:
            each = np.arange(len(candidates.present))
            none = Slots(np.ones((1, len(times.groups))), np.ones(1), np.zeros(1, bool))
            states = States(each, np.where(candidates.present, 0, -1), none)
        self.states = states
        self.masks: np.random.Generator | None = None
        private = done.private
        self.clip = None if private is None else private.clip

    def gradients(
        self, j: int, which: Indices, records: Indices, client: int | None = None
    ) -> Callable[[int], NDArray[np.float32]]:
        """Of candidate k: what the records add in stretch j in expectation, on the mean path or on
        that of one simulated client."""

        theta = self.done.path[j] if client is None else self.done.paths[client, j]
        scale = (self.done.response[j][which] / self.candidates.members).astype(np.float32)
        theta, chance = theta.astype(np.float64), None if client is None else self.masks
        some = max(1, int(MEMORY / 64 / theta.size))  # records whose whole gradients are held

        def of(k: int) -> NDArray[np.float32]:
            made = np.zeros((len(records), len(which)), np.float32)
            inputs, labels = self.candidates.inputs[k], self.candidates.labels[k]
            for begin in range(0, len(records) if self.candidates.present[k] else 0, some):
                part = records[begin : begin + some]
                rows = self.net.rows(theta, inputs[part].astype(np.float64), labels[part], chance)
                rows = rows if self.clip is None else rows.clipped(self.clip)
                made[begin : begin + some] = rows.columns(which).astype(np.float32) * scale
            return made

        return of

    def power(self, which: Indices, records: Indices) -> Array:
        """Sum of squares (R,) of candidates' differences to the first."""
        values = len(self.candidates.present)
        made = np.zeros((len(records), values - 1, len(which)), np.float32)
        for j in range(len(self.times.groups)):
            of = self.gradients(j, which, records)
            first = of(0)
            for k in range(1, values):
                made[:, k - 1] += of(k) - first
        return np.asarray(np.einsum("nkr,nkr->r", made, made), dtype=np.float64)

    def made(
        self, which: Indices, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], Array, Array]:
        """Columns (n c, R), columns of order noise, the first states' sum, and the states' points
        (Z, c)."""
        records = np.arange(self.candidates.inputs.shape[1])
        n, values, states = len(records), len(self.candidates.present), self.states
        columns = np.zeros((n, values, len(which)), np.float32)
        noisy = len(self.times.groups) > 1
        means = np.zeros((len(self.times.groups) if noisy else 0, n, len(which)), np.float32)
        for j in range(len(self.times.groups)):
            of = self.gradients(j, which, records)
            for k in range(values):
                added = of(k)
                columns[:, k] += added
                if noisy:
                    means[j] += self.belief[:, k, None].astype(np.float32) * added
        sizes = self._sizes(means)
        order = self._order(means, sizes, which, rng) if noisy else columns[:0, 0]
        first = 1.0 if states.slot[0] < 0 else sizes[states.slot[0]]
        base = first * columns[:, 0].sum(axis=0, dtype=np.float64)
        columns[:, 1:] -= columns[:, :1]
        made = columns if states.sized else columns[:, 1:]
        return made.reshape(-1, len(which)), order, base, states.points(sizes)

    def _sizes(self, means: NDArray[np.float32]) -> Array:
        """By what each slot multiplies what a record adds in expectation, on the whole."""
        slots = self.states.slots
        if len(slots) == 1:
            return np.ones(1)
        total = means.sum(axis=0)
        shares = np.einsum("qnr,nr->q", means, total, dtype=np.float64, optimize=True)
        return np.asarray(slots.weights @ (shares / shares.sum()))

    def _order(
        self, means: NDArray[np.float32], sizes: Array, which: Indices, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """What chance does to each record's contribution, as columns that are mixed at random.

        means: (Q, n, R), what a record adds in all in expectation, stretch by stretch.
        """
        member = self.belief @ self.candidates.present
        root = np.sqrt(np.maximum(member, 1e-12)).astype(np.float32)[:, None]
        kinds = self._late(means, sizes, member)
        if self.done.private is not None:  # steps that take every record with the same probability
            epochs = np.unique(self.times.epochs, return_index=True)[1]
            passes = float(self.times.repeats[epochs].sum())
            drawn = np.sqrt(max(1 - passes / self.times.steps, 0.0) / passes)
            kinds = [np.float32(drawn) * means.sum(axis=0, keepdims=True)]
        # whoever takes part bends the path, and masks are drawn record by record
        if not self.candidates.present.all() or self.net.chance:
            kinds.append(self._bent(means, which, rng))
        if not kinds:
            return means[:0, 0]
        every = np.concatenate([kind / root for kind in kinds])
        if len(every) > ORDER_COLUMNS:
            signs = rng.choice(
                np.array([-1, 1], np.float32), size=(ORDER_COLUMNS, *every.shape[:2])
            )
            every = np.einsum("cqn,qnr->cnr", signs, every, optimize=True) / np.sqrt(
                np.float32(ORDER_COLUMNS)
            )
        return every.reshape(-1, every.shape[-1])

    def _late(
        self, means: NDArray[np.float32], sizes: Array, member: Array
    ) -> list[NDArray[np.float32]]:
        """Deviations by the stretch that a record falls into, of those that are no slots; and by
        its slot, beyond the size that this gives to what the record adds.

        Given that it falls into stretch j it adds means[j] / shares[j]; in a group of e epochs that
        happens independently e times, each adding 1 / e of it.
        """
        times = self.times
        part = (member / member.sum()).astype(np.float32)[:, None]
        kinds = []
        for number in np.unique(times.epochs):
            inside = np.flatnonzero((times.epochs == number) & ~self.states.slots.resolved)
            if len(inside) < 2:
                continue
            shares = times.shares[inside].astype(np.float32)
            given = means[inside] / shares[:, None, None]
            shares = shares / shares.sum()
            away = given - np.tensordot(shares, given, 1)
            away *= np.sqrt(shares / times.repeats[inside])[:, None, None].astype(np.float32)
            kinds.append(away)
        if len(slots := self.states.slots) > 1:
            away = np.tensordot(slots.weights.astype(np.float32), means, 1)
            away -= sizes.astype(np.float32)[:, None, None] * means.sum(axis=0)
            kinds.append(away * np.sqrt(slots.chances).astype(np.float32)[:, None, None])
        # each stretch takes so many members, whoever they are
        return [away - part * away.sum(axis=1, keepdims=True) for away in kinds]

    def _bent(
        self, means: NDArray[np.float32], which: Indices, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Deviations because a client's path is its own, and what is left out of its network: of
        two simulated clients, as far as one record meets them (in stretch j with so much chance,
        and then so much more)."""
        self.masks = rng if self.net.chance else None
        records = np.arange(means.shape[1])
        away = np.zeros((len(self.done.paths), *means.shape[1:]), np.float32)
        for j, share in enumerate(self.times.shares):
            size = 1 / np.sqrt(share * self.times.repeats[j] * len(away))
            for client, made in enumerate(away):
                of = self.gradients(j, which, records, client)
                there = -means[j]
                for k in np.flatnonzero(self.candidates.present):
                    there += self.belief[:, k, None].astype(np.float32) * of(int(k))
                made += rng.choice([-size, size], size=(len(records), 1)).astype(np.float32) * there
        return away


def coordinates(candidates: Encoded, times: Stretches) -> int:
    """How many coordinates of the model are used at most: as many as say more than they cost.

    In memory: columns of every candidate, what each stretch adds (with its deviations, whole and
    mixed) and the order's columns.
    """
    values, n, _ = candidates.inputs.shape
    wanted = max(FEWEST_EQUATIONS, EQUATIONS * n * (values - 1))
    each = 4 * n * (2 * values + 3 * len(times.groups) + 2 * ORDER_COLUMNS)
    return int(min(wanted, NUMBERS / n, MEMORY / each))


def telling(parts: Parts, spread: Array, rng: np.random.Generator) -> Indices:
    """The coordinates in which candidates differ most, in units of what else moves them."""
    some = np.sort(rng.permutation(parts.candidates.inputs.shape[1])[:64])
    power = parts.power(np.arange(len(spread)), some) / spread
    live = np.flatnonzero(power > 0)
    most = coordinates(parts.candidates, parts.times)
    if len(live) > most:
        live = np.sort(live[np.argsort(-power[live], kind="stable")[:most]])
    return live
