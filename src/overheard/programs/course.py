"""What does a client return whose training has nothing random in it, and what do its records do?

The batches are known: full ones, or those of an order that is known. Clients whose records are
drawn from a belief are trained in the same way, and the returned model is differentiated by what
each record is, step by step along their paths (docs/decoders.md sections 8 and 8.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs.networks import Network, network
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import MOST_STRETCHES, Encoded, responses
from overheard.programs.training import Trace, local_training

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Single = NDArray[np.float32]
Indices = NDArray[np.int64]
Batches = Sequence[Indices]
"""The records of every local step."""

_AT_ONCE = 1 << 24  # numbers of the inputs of clients that are trained together


def batches_of(recipe: Recipe, records: int, order: Indices | None = None) -> Batches:
    """The batches of a client with so many records, visited in this order (epochs, records)."""
    if recipe.batch_size is None:
        return [np.arange(records)] * recipe.epochs
    assert order is not None
    each = int(recipe.batches(np.array([records]))[0])
    cuts = [slice(b * recipe.batch_size, (b + 1) * recipe.batch_size) for b in range(each)]
    return [epoch[cut] for epoch in order for cut in cuts]


@dataclass(frozen=True)
class Part:
    """Steps on the same records: their mean model (P,), and what a unit of gradient of one of the
    records does to the returned model (P,)."""

    records: Indices
    theta: Single
    scale: Single


class Course:
    """Local training from the model that was sent, visiting the records in a known order (epochs,
    n), or all at once."""

    def __init__(
        self, recipe: Recipe, sent: Wire, candidates: Encoded, order: Indices | None = None
    ) -> None:
        self.recipe, self.sent, self.candidates, self.order = recipe, sent, candidates, order
        self.batches = batches_of(recipe, candidates.inputs.shape[1], order)
        self.net: Network = network(recipe)

    def ends(self, chosen: Indices, trace: Trace | None = None) -> Wire:
        """What clients return (S, P) whose records are these candidates (S, n): the client itself,
        bit for bit where its library adds in the same order."""
        together = max(1, _AT_ONCE // self.candidates.inputs[0].size)
        made = []
        for first in range(0, len(chosen), together):
            rng = np.random.default_rng(0)  # nothing is drawn
            some = chosen[first : first + together]
            data = self.candidates.shards(some, self.sent.dtype)
            if self.order is not None:
                shape = len(data), self.order.shape[1]
                data = replace(data, orders=tuple(np.broadcast_to(o, shape) for o in self.order))
            made.append(local_training(self.recipe, self.sent, data, rng, trace=trace))
        return np.concatenate(made)

    def parts(self, chosen: Indices) -> list[Part]:
        """The parts of the training in which records act, on average over these clients (S, n):
        where Adam's steps are near-signs, one client's slopes say little of another's."""
        full, share = self.recipe.full_batch, 1 / len(chosen)
        path, response = np.zeros((2, len(self.batches), self.sent.size), np.float32)
        for one in chosen:
            slopes: list[Wire] = []

            def watch(step: int, theta: Wire, slope: Wire, slopes: list[Wire] = slopes) -> None:
                path[step] += theta[0] * share
                slopes.append(slope.copy())

            self.ends(one[None], watch)
            response += responses(self.recipe, self.sent, np.stack(slopes)) * share
        made = []
        pieces = MOST_STRETCHES if full else len(path)
        for group in np.array_split(np.arange(len(path)), min(pieces, len(path))):
            records = self.batches[int(group[0])]
            size = self.candidates.members if full else len(records)
            made.append(Part(records, path[group].mean(axis=0), response[group].sum(axis=0) / size))
        return made

    def columns(
        self, parts: Sequence[Part], which: Indices, records: Indices | None = None
    ) -> Single:
        """What each candidate of each record adds beyond the first: (n, K - 1, len(which)); of some
        records only, where these are named (the others are 0)."""
        c = self.candidates
        values, n, _ = c.inputs.shape
        made = np.zeros((n, values - 1, len(which)), np.float32)
        wanted = np.ones(n, dtype=bool) if records is None else np.isin(np.arange(n), records)
        for part in parts:
            used = part.records[wanted[part.records]]
            if not len(used):
                continue
            scale = part.scale[which]
            first = self._rows(part, 0, used, which)
            for k in range(1, values):
                made[used, k - 1] += (self._rows(part, k, used, which) - first) * scale
        return made

    def _rows(self, part: Part, k: int, used: Indices, which: Indices) -> Single:
        c = self.candidates
        if not c.present[k]:
            return np.zeros((len(used), len(which)), np.float32)
        x = c.inputs[k][used].astype(np.float32)
        rows = self.net.rows(part.theta, x, c.labels[k][used].astype(np.float32))
        return np.asarray(rows.columns(which), dtype=np.float32)


class Mixing(Course):
    """Records that change each other's outputs (batch normalisation) have no gradient of their own:
    each other candidate is put in a record's place, and that client is trained."""

    def parts(self, chosen: Indices) -> list[Part]:
        return [Part(one, self.sent, np.ones(1, np.float32)) for one in chosen]

    def columns(
        self, parts: Sequence[Part], which: Indices, records: Indices | None = None
    ) -> Single:
        values, n, _ = self.candidates.inputs.shape
        made = np.zeros((n, values, len(which)))
        for part in parts:
            now = part.records
            end = self.ends(now[None])[0, which].astype(np.float64)
            for i in range(n) if records is None else records:
                others = np.flatnonzero(np.arange(values) != now[i])
                swapped = np.where(np.arange(n) == i, others[:, None], now)
                made[i, others] += (self.ends(swapped)[:, which] - end) / len(parts)
        return np.asarray(made[:, 1:] - made[:, :1], dtype=np.float32)


def course_of(recipe: Recipe, sent: Wire, candidates: Encoded, order: Indices | None) -> Course:
    """The course of a client that was sent this model."""
    return (Mixing if network(recipe).mixes else Course)(recipe, sent, candidates, order)
