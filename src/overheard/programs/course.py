"""What does a client return whose training has nothing random in it, and what do its records do?

The batches are known: full ones, or those of an order that is known. Records may be partly each of
their candidates, so that a belief can be replayed as well as an answer, and the returned model is
differentiated by what each record is, step by step (docs/decoders.md sections 8 and 8.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.programs.networks import Network, network
from overheard.programs.recipe import Adam, Recipe
from overheard.programs.rules import adam, rule_of
from overheard.programs.simulated import MOST_STRETCHES, Candidates, responses

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Single = NDArray[np.float32]
Indices = NDArray[np.int64]
Batches = Sequence[Indices]
"""The records of every local step."""
_VISIBLE = 10.0  # standard deviations of rounding by which a step of Adam must fall short of a sign


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


def one_adam_step(recipe: Recipe) -> bool:
    """Does the client take one full-batch step of Adam?"""
    once = recipe.full_batch and recipe.epochs == 1 and recipe.clip_norm is None
    return once and isinstance(recipe.optimiser, Adam) and recipe.private is None


def rounded(recipe: Recipe, returned: Wire) -> Array:
    """Standard deviation (P,) of rounding after one step of Adam: of the sum, and of the step."""
    place = np.spacing(np.abs(returned)).astype(np.float64) / np.sqrt(12)
    return np.asarray(np.hypot(place, recipe.learning_rate * float(np.finfo(returned.dtype).eps)))


def shown_gradient(recipe: Recipe, sent: Wire, returned: Wire) -> tuple[Array, Array] | None:
    """Of one full-batch step of Adam: the gradient (P,) that it took, and the returned model's
    slope by it (P,): 0 where rounding hides all but the sign. None of other training.

    The step is ``-rate g / (|g| + eps)``, so that r = |step| / rate gives |g| = eps r / (1 - r).
    """
    chosen, rate = recipe.optimiser, recipe.learning_rate
    if not one_adam_step(recipe) or not isinstance(chosen, Adam):
        return None
    start = sent.astype(np.float64)
    direction = (start - returned) / rate
    if chosen.decoupled:
        direction = direction - chosen.weight_decay * start
    # in single precision the largest step is not quite the rate
    one = np.ones(1, sent.dtype)
    rule = adam(chosen.betas, eps=0.0)
    left = float(rule.update(one, rule.init(one), one)[0][0]) - np.abs(direction)
    hidden = left < _VISIBLE * rounded(recipe, returned) / rate
    left = np.where(hidden, 1.0, left)
    gradient = np.where(hidden, 0.0, chosen.eps * direction / left)
    if not chosen.decoupled:
        gradient = gradient - chosen.weight_decay * start
    return gradient, np.where(hidden, 0.0, -rate * left**2 / chosen.eps)


class Course:
    """Local training from the model that was sent, on known batches."""

    def __init__(
        self, recipe: Recipe, sent: Wire, candidates: Candidates, batches: Batches
    ) -> None:
        self.recipe, self.sent, self.candidates, self.batches = recipe, sent, candidates, batches
        self.net: Network = network(recipe)

    @property
    def straight(self) -> bool:
        """Is what was heard a straight line of the records, but for rounding?"""
        return one_adam_step(self.recipe)

    def doubt(self, returned: Wire) -> Array:
        """Of a straight line: the standard deviation (P,) of rounding."""
        return rounded(self.recipe, returned)

    def _batch(self, weights: Array, which: Indices) -> tuple[Wire, Wire, Wire]:
        """Inputs (1, b, d), labels and weights (1, b) of a step on these records."""
        c, dtype = self.candidates, self.sent.dtype
        some = weights[which]
        if c.present.all() and (some.max(axis=1) == 1).all():
            chosen = some.argmax(axis=1)
            share = np.full(len(which), 1 / len(which))
            x, y = c.inputs[chosen, which], c.labels[chosen, which]
        else:
            inside = np.flatnonzero(c.present)
            members = len(which) if c.present.all() else c.members
            share = some.T[inside].ravel() / members
            x = c.inputs[inside][:, which].reshape(-1, c.inputs.shape[2])
            y = c.labels[inside][:, which].ravel()
        return x[None].astype(dtype), y[None].astype(dtype), share[None].astype(dtype)

    def run(
        self, weights: Array, path: list[Wire] | None = None, slopes: list[Array] | None = None
    ) -> Wire:
        """The returned model (P,) for weights (n, K) of every record's candidates.

        Weights of zero and one are the client itself, bit for bit where its library adds in the
        same order. ``path`` and ``slopes``: where to note every step's model and gradient.
        """
        theta, rule = np.array(self.sent[None]), rule_of(self.recipe)
        gradient, state = self.net.gradient(theta, np.random.default_rng(0)), rule.init(theta)
        for which in self.batches:
            slope = gradient(*self._batch(weights, which))
            if path is not None:
                path.append(theta[0].copy())
            if slopes is not None:
                slopes.append(slope.astype(np.float64))
            step, state = rule.update(slope, state, theta)
            theta += step
        return np.asarray(theta[0])

    def linearised(self, weights: Array, returned: Wire) -> tuple[Wire, list[Part]]:
        """The returned model, and the parts of the training in which records act."""
        path: list[Wire] = []
        slopes: list[Array] = []
        end = self.run(weights, path, slopes)
        shown = shown_gradient(self.recipe, self.sent, returned)
        if shown is not None:  # far from a straight line at any belief, and not at what was heard
            gradient, slope = shown
            scale = (slope / self.candidates.members).astype(np.float32)
            part = Part(self.batches[0], path[0].astype(np.float32), scale)
            return returned - slope * (gradient - slopes[0][0]), [part]
        response = responses(self.recipe, self.sent, np.stack(slopes))
        full = self.recipe.full_batch
        pieces = MOST_STRETCHES if full else len(path)
        made = []
        for group in np.array_split(np.arange(len(path)), min(pieces, len(path))):
            records = self.batches[int(group[0])]
            share = 1 / (self.candidates.members if full else len(records))
            scale = (response[group].sum(axis=0) * share).astype(np.float32)
            middle = np.mean([path[t] for t in group], axis=0).astype(np.float32)
            made.append(Part(records, middle, np.broadcast_to(scale, middle.shape)))
        return end, made

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
    """The same of a module whose records change each other's outputs (batch normalisation): a
    record has no gradient of its own, so its other candidates are put in its place one by one.
    Records that are partly each of their candidates mislead here: a belief is what is likeliest."""

    def linearised(self, weights: Array, returned: Wire) -> tuple[Wire, list[Part]]:
        choice = weights.argmax(axis=1)
        end = self.run(np.eye(weights.shape[1])[choice])
        return end, [Part(choice, end.astype(np.float32), np.ones(1, np.float32))]

    def columns(
        self, parts: Sequence[Part], which: Indices, records: Indices | None = None
    ) -> Single:
        choice, values = parts[0].records, len(self.candidates.present)
        now = np.eye(values)[choice]
        end = self.run(now)[which].astype(np.float64)
        made = np.zeros((len(choice), values, len(which)))
        for i in range(len(choice)) if records is None else records:
            for k in np.flatnonzero(np.arange(values) != choice[i]):
                other = now.copy()
                other[i] = np.eye(values)[k]
                made[i, k] = self.run(other)[which] - end
        return np.asarray(made[:, 1:] - made[:, :1], dtype=np.float32)


def course_of(recipe: Recipe, sent: Wire, candidates: Candidates, batches: Batches) -> Course:
    """The course of a client with these batches."""
    kind = Mixing if network(recipe).mixes else Course
    return kind(recipe, sent, candidates, batches)
