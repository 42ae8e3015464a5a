"""Decoding a client that takes many local steps between two messages.

Mini-batches, several local epochs, or both (decoders.md section 3). Each pass places the records on
the client's path (:mod:`local_path`), makes linear equations of the updates and decodes them. The
local training is replayed on values drawn from what is believed so far: that gives the bend of the
path and, because a replay's values are known, the true size of the noise. The pass that leaves the
least noise, in these units, is kept.

Which equations: the whole update, which says the same however an input is coded. Where that is too
long, and in further rounds where they are many, the attribute's own columns of the first layer, the
records' errors conditioned on the public columns (:mod:`overheard.decoding.column_measurement`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.local_path import quadratic_path, replay, segment, timetable
from overheard.attacks.wire import only, rounding, spread
from overheard.decoding.column_measurement import (
    Columns,
    Equations,
    order_moments,
    pooled,
    stacked,
    usage,
    whole_equations,
)
from overheard.decoding.counts import averaged, decode_tied
from overheard.decoding.ladder import believable
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import Measurement, stack
from overheard.decoding.noisy import few_equations, learned_share, noisy_posterior, tilted
from overheard.programs.dense import split, weighted_gradient
from overheard.programs.private import recipe_gradients, record_factors
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]

PASSES, REPLAYS, ROUNDS = 2, 4, 24
"""Passes at most; replays of each round in a pass; rounds used at most."""

MOST_ROW_NUMBERS = 30_000_000
MOST_RANDOM_ROWS = 3000
"""Whole updates are decoded up to so many numbers, with random batches up to so many rows."""

GOOD_FIT = 4.0
"""Noise variance, in units of what replays show, of a fit that is called good."""

_OPERATIONS = 1e10  # that whole updates of a pass may cost where batches are random
_QUIETEST = 0.1  # least noise, in units of what is stated, that replays may claim
_WHOLE_SHRINK = 0.02  # as SHRINK, for whole updates: their covariance is better known
_NORMAL_MEDIAN = 0.6745  # of the absolute value of a standard normal number
_SCALED = 0.9  # updates shorter than this part of a replay's were clipped
_SETTLED = 5e-3  # mean change of a probability between passes that ends them
_COLLAPSED = 4.0  # times the misfit before at which a later pass is not believed
_OPEN = 0.15  # share of the prior in what replays are drawn from: wrong beliefs confirm themselves


@dataclass(frozen=True)
class Decoded:
    """The best pass. ``misfit``: noise variance in units of what replays of the recipe show (about
    1 when all is well).
    """

    posterior: Posterior
    misfit: float
    passes: int

    @property
    def fit(self) -> str:
        """ "good", or "poor": the probabilities should then not be relied on."""
        return "good" if self.misfit <= GOOD_FIT else "poor"


def takes_several_steps(link: Link, recipe: Recipe) -> bool:
    """Does the client move its model more than once between two messages?

    Linear least squares with full batches has its own exact solution, whatever the epochs.
    """
    one_solve = recipe.full_batch and (recipe.epochs == 1 or recipe.linear_least_squares)
    return link.payload == "model" and not one_solve


def decode_local_steps(
    link: Link,
    recipe: Recipe,
    candidates: Array,
    labels: Array,
    ties: NDArray[np.intp],
    most: int,
    rng: np.random.Generator,
    prior: Array | None = None,
    clipped: bool = False,
) -> Decoded:
    """Probabilities of each record's candidates from updates of many local steps.

    candidates: (K, m, d) inputs of the m records under each of K values; labels: (m,); ties:
    (m,) numbers of records that agree in everything public. How common a value is among
    them is learned from the updates, starting from the prior (None: all alike).
    clipped: updates may have been scaled down; by how much, replays show.
    """
    values, people, _ = candidates.shape
    scene = _Scene(link, recipe, candidates, np.broadcast_to(labels, (values, people)), most)
    share = np.full(values, 1 / values) if prior is None else prior
    belief = np.broadcast_to(share, (people, values))
    best: Decoded | None = None
    for number in range(PASSES):
        if clipped:
            scene.unclip(belief, rng)
        rounds, scales = scene.equations(belief, rng)
        posterior, misfit = _decode(scene.measurement(rounds, scales), ties, share, scene.random)
        settled = _settled(posterior.probabilities, belief)
        belief = (1 - _OPEN) * posterior.probabilities + _OPEN * share
        found = Decoded(posterior, misfit, number + 1)
        # a pass whose replays are drawn from the prior does not know the path as well: what it
        # states as noise is larger, and its misfit smaller for that
        if best is None or misfit < _COLLAPSED * best.misfit:
            best = found
        if misfit <= GOOD_FIT and settled:
            return found
    assert best is not None
    return best


def unexplained(
    link: Link,
    recipe: Recipe,
    candidates: Array,
    labels: Array,
    belief: Array,
    rng: np.random.Generator,
) -> float:
    """Standard deviation, on a coordinate, of what replays of the recipe leave of the first update.

    By the median over coordinates, so that the few that the secret moves most do not count.
    """
    values, people, _ = candidates.shape
    labels = np.broadcast_to(labels, (values, people))
    scene = _Scene(only(link, np.arange(1)), recipe, candidates, labels, 1)
    sent, returned = scene.sent[0], scene.returned[0]
    _, ends = scene._replay(sent, scene._draw(belief, REPLAYS, rng), rng)
    left = returned.astype(np.float64) - ends.mean(axis=0)
    return float(np.median(np.abs(left)) / _NORMAL_MEDIAN)


def _decode(
    measurement: Measurement, ties: NDArray[np.intp], share: Array, random: bool
) -> tuple[Posterior, float]:
    """The posterior, and the variance of the noise in units of what replays show."""
    spare = max(measurement.misfit, 1.0) if measurement.spare_rows else 1.0
    if not random:
        posterior = decode_tied(measurement, ties, share)
        return posterior, spare * max(posterior.chi2_per_equation, 1.0)
    trusted = believable(measurement)
    share = learned_share(trusted, share)
    solve = tilted if few_equations(trusted) else noisy_posterior
    posterior, raised = solve(trusted, share)
    return averaged(posterior, ties), spare * raised


def _settled(now: Array, before: Array) -> bool:
    return float(np.abs(now - before).mean()) < _SETTLED


class _Scene:
    """One client's rounds, ready to be written as equations for any belief."""

    def __init__(
        self,
        link: Link,
        recipe: Recipe,
        candidates: Array,
        labels: Array,
        most: int,
    ) -> None:
        values, people, _ = candidates.shape
        self.people, self.recipe, self.times = (
            people,
            recipe,
            timetable(people, recipe.batch_size, recipe.epochs),
        )
        self.used = usage(people, recipe.batch_size, recipe.epochs)
        unknowns, size, nodes = people * (values - 1), recipe.model.size, self.times.shares.size
        most = min(most, ROUNDS, len(link))
        heard = spread(len(link), most)
        together = most if size * unknowns * (2 * nodes + most) <= MOST_ROW_NUMBERS else 0
        if self.random:
            cost = size**2 * (size / 3 + people * nodes + unknowns)
            fits = size <= MOST_RANDOM_ROWS and size * people * nodes <= MOST_ROW_NUMBERS
            together = int(np.clip(_OPERATIONS / cost, min(most, 2), most)) if fits else 0
        self.whole = np.zeros(len(heard), dtype=bool)
        self.whole[spread(len(heard), together) if together else []] = True
        self.sent, self.returned = link.sent[heard], link.returned[heard]
        self.heard = self.returned
        self.rounding = self.noise = rounding(link)[heard] / recipe.learning_rate
        self.added = link.noise_sd
        precision = link.returned.dtype
        self.inputs, self.labels = candidates.astype(precision), labels.astype(precision)
        self.varies = np.ptp(candidates, axis=0).max(axis=0) > 0
        self.direct = candidates[:, :, self.varies]
        public = candidates[0][:, ~self.varies]
        self.public = np.column_stack([public, np.ones(people)]) if recipe.dense.bias else public

    def unclip(self, belief: Array, rng: np.random.Generator) -> None:
        """Take the scale out of every update, judged by replays of what is believed."""
        returned, noise = [], []
        for sent, heard, stated in zip(self.sent, self.heard, self.rounding, strict=True):
            _, ends = self._replay(sent, self._draw(belief, REPLAYS, rng), rng)
            start = sent.astype(np.float64)
            update, typical = start - heard.astype(np.float64), start - ends.mean(axis=0)
            square = float(typical @ typical)
            scale = float(update @ typical) / square if square else 1.0
            scale = scale if 0 < scale < _SCALED else 1.0
            returned.append((start - update / scale).astype(heard.dtype))
            noise.append(stated / scale)
        self.returned, self.noise = np.stack(returned), np.stack(noise)

    def equations(
        self, belief: Array, rng: np.random.Generator
    ) -> tuple[list[Equations], list[float]]:
        """The rounds' equations, and how much larger than stated their noise is.

        The latter from replays, whose values and ends are known, each on a path that owes nothing
        to its own bend: as little is known of the client's.
        """
        rounds, scales = [], []
        one_hot = np.eye(belief.shape[1])
        straight = self._straight(belief)
        messages = zip(self.whole, self.sent, self.returned, self.noise, strict=True)
        for whole, sent, returned, noise in messages:
            chosen = self._draw(belief, REPLAYS, rng)
            paths, ends = self._replay(sent, chosen, rng)
            bend = paths - np.stack([straight(sent, end) for end in ends])
            path = straight(sent, returned) + bend.mean(axis=0)
            make = self._maker(path, belief, noise, whole)
            rounds.append(make(self._total(sent, returned, path)))
            ways = [
                straight(sent, end) + (bend.sum(axis=0) - own) / (len(bend) - 1)
                for end, own in zip(ends, bend, strict=True)
            ]
            totals = [self._total(sent, *one) for one in zip(ends, ways, strict=True)]
            if whole:
                expected = [self._expected(*one) for one in zip(ways, chosen, strict=True)]
                loud = rounds[-1].loudness(np.stack(totals) - np.stack(expected))
            else:
                tries = [make(total) for total in totals]
                shown = [t.chi2(one_hot[v]) for t, v in zip(tries, chosen, strict=True)]
                loud = float(np.mean(shown))
            scales.append(max(float(np.sqrt(loud)), _QUIETEST))
        return rounds, scales

    def _straight(self, belief: Array) -> Callable[[Wire, Wire], Array]:
        """The path between two models (G, Q, P), but for what the replays add."""
        if not self.recipe.linear_least_squares:
            return lambda sent, end: segment(self.times, sent, end)
        inputs = np.moveaxis(self.inputs, 0, 1).astype(np.float64)
        if self.recipe.dense.bias:
            inputs = np.concatenate([inputs, np.ones((*inputs.shape[:2], 1))], axis=2)
        hessian = 2 * np.einsum("mk,mki,mkj->ij", belief, inputs, inputs) / self.people
        hessian += self.recipe.proximal * np.eye(len(hessian))
        rate = self.recipe.learning_rate
        return lambda sent, end: quadratic_path(self.times, sent, end, hessian, rate)

    def _expected(self, path: Array, values: NDArray[np.int64]) -> Array:
        """Sum of all gradients along a path, of records with these values (m,)."""
        everybody = np.arange(self.people)
        inputs, labels = self.inputs[values, everybody], self.labels[values, everybody]
        nodes, shares = path.reshape(-1, path.shape[-1]), self.times.shares.ravel()
        inputs, labels = inputs.astype(np.float64), labels.astype(np.float64)
        pairs = record_factors(self.recipe, nodes, inputs, labels)
        each = np.full((len(nodes), self.people), self.used.mean * self.used.epochs)
        return np.asarray(shares @ weighted_gradient(self.recipe.dense, pairs, each))

    def measurement(self, rounds: list[Equations], scales: list[float]) -> Measurement:
        """All rounds together: whole updates, and columns of the others."""
        parts = []
        for join, chosen in ((stacked, self.whole), (pooled, ~self.whole)):
            if chosen.any():
                which = np.flatnonzero(chosen)
                parts.append(join([rounds[i] for i in which], [scales[i] for i in which]))
        return parts[0] if len(parts) == 1 else stack(parts)

    @property
    def random(self) -> bool:
        """Does chance decide when a record is used?"""
        return bool(self.used.mean * self.people > 1)

    def _draw(self, belief: Array, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        draws = rng.random((count, len(belief), 1))
        above = (draws > belief.cumsum(axis=1)).sum(axis=2)
        return np.asarray(np.minimum(above, belief.shape[1] - 1), dtype=np.int64)

    def _replay(
        self, sent: Wire, chosen: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Array, Wire]:
        found = replay(self.recipe, self.times, sent, self.inputs, self.labels, chosen, rng)
        if not self.added:
            return found
        paths, ends = found
        return paths, (ends + rng.normal(0.0, self.added, ends.shape)).astype(ends.dtype)

    def _total(self, sent: Wire, returned: Wire, path: Array) -> Array:
        """Sum of the gradients of all local steps."""
        recipe, start = self.recipe, sent.astype(np.float64)
        total = (start - returned.astype(np.float64)) / recipe.learning_rate
        if recipe.algorithm == "fedprox":
            middle = np.einsum("gq,gqp->p", self.times.shares, path)
            total = total - recipe.proximal * self.times.steps * (middle - start)
        return total

    def _maker(
        self, path: Array, belief: Array, noise: Array, whole: bool
    ) -> Callable[[Array], Equations]:
        """What turns a sum of gradients along this path into equations."""
        recipe, shares = self.recipe, self.times.shares
        if whole:
            gradients = self._nodes(path, lambda *at: recipe_gradients(recipe, *at))
            moments = order_moments(gradients, shares, self.used, belief, _WHOLE_SHRINK)
            return lambda total: whole_equations(moments, total, noise)
        theta = path.astype(self.inputs.dtype)
        errors = self._nodes(theta, lambda *at: record_factors(recipe, *at)[0][1])
        moments = order_moments(errors, shares, self.used, belief)
        layer = split(recipe.dense, noise)[0][0]
        # measured from its mean, which the bias allows, an input says the same however it is coded
        middle = np.einsum("mk,kmj->j", belief, self.direct) / self.people * recipe.dense.bias
        columns = Columns(
            moments, self.public, self.direct - middle, belief, float(np.sqrt(np.mean(layer**2)))
        )

        def make(total: Array) -> Equations:
            weight, bias = (
                None if part is None else part.astype(np.float64)
                for part in split(recipe.dense, total)[0]
            )
            assert weight is not None
            direct, public = weight[:, self.varies], weight[:, ~self.varies]
            if bias is None:
                return columns.equations(direct, public)
            public = np.column_stack([public, bias])
            return columns.equations(direct - bias[:, None] * middle, public)

        return make

    def _nodes(self, path: Wire, what: Callable[[Wire, Wire, Wire], Wire]) -> Array:
        """Something of every record under every candidate (G, Q, K, m, ...) along the path."""
        found = [what(path, x, y) for x, y in zip(self.inputs, self.labels, strict=True)]
        return np.stack(found, axis=2).astype(np.float64)
