"""Decoding a client that takes many local steps between two messages.

Mini-batches, several local epochs, or both (decoders.md section 3). Each pass places the records on
the client's path (:mod:`local_path`), makes linear equations of the updates and decodes them.
The first pass knows only the two ends of the path. Later passes replay the local training on
values drawn from the last posterior: that gives the bend of the path and, because a replay's
values are known, the true size of the noise. The pass that leaves the least noise, in these units,
is kept.

Which equations: the attribute's own columns of the first layer, the records' errors conditioned
on the public columns (:mod:`overheard.decoding.column_measurement`); or the whole update where
it is short, as in logistic regression, or where nothing is random (full batches).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.local_path import replay, segment, timetable
from overheard.attacks.wire import rounding, spread
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
from overheard.decoding.measurement import Measurement
from overheard.decoding.noisy import noisy_posterior
from overheard.decoding.ridge import ridge
from overheard.learning.dense import split
from overheard.learning.private import recipe_gradients, record_factors
from overheard.learning.recipe import Recipe
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]

PASSES, REPLAYS, ROUNDS = 3, 3, 24
"""Passes at most; replays of each round in a pass; rounds used at most."""

MOST_ROW_NUMBERS = 30_000_000
MOST_RANDOM_ROWS = 600
"""Whole updates are decoded up to so many numbers, with random batches up to so many rows."""

_PRIOR_STRENGTH = 1.0  # pseudo-records that keep the estimated share of a value off zero
_GOOD_FIT = 4.0  # noise variance, in units of what replays show, of a fit that is called good
_SPARE = 1.2  # equations per unknown from which they show the size of their own noise
_QUIETEST = 0.1  # least noise, in units of what is stated, that replays may claim
_WHOLE_SHRINK = 0.02  # as SHRINK, for whole updates: their covariance is better known
_NORMAL_MEDIAN = 0.6745  # of the absolute value of a standard normal number
_SCALED = 0.9  # updates shorter than this part of a replay's were clipped
_SETTLED = 5e-3  # mean change of a probability between passes that ends them


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
        return "good" if self.misfit <= _GOOD_FIT else "poor"


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
    (m,) numbers of records that agree in everything public. How common a value is at
    first is the prior's (None: all alike), then estimated along with the records' values.
    clipped: updates may have been scaled down; by how much, replays show.
    """
    values, people, _ = candidates.shape
    heard = spread(len(link), min(most, ROUNDS))
    scene = _Scene(link, recipe, candidates, np.broadcast_to(labels, (values, people)), heard)
    share = np.full(values, 1 / values) if prior is None else prior
    belief = np.broadcast_to(share, (people, values))
    best: Decoded | None = None
    for number in range(PASSES):
        if clipped:
            scene.unclip(belief, rng)
        rounds, scales = scene.equations(belief, rng, straight=number == 0)
        posterior, misfit = _decode(scene.measurement(rounds, scales), ties, share, scene.random)
        settled = _settled(posterior.probabilities, belief)
        belief, share = posterior.probabilities, _shares(posterior.probabilities)
        found = Decoded(posterior, misfit, number + 1)
        # the first pass has seen no replay: its misfit is in other units
        if best is None or number == 1 or misfit < best.misfit:
            best = found
        if misfit <= _GOOD_FIT and (settled or posterior.method == "ridge"):
            return found
    assert best is not None
    return _tempered(best, np.full(values, 1 / values) if prior is None else prior)


def _tempered(found: Decoded, prior: Array) -> Decoded:
    """What fits badly may not be sure of itself: evidence counts in proportion to its fit."""
    if found.misfit <= _GOOD_FIT:
        return found
    weight = _GOOD_FIT / found.misfit
    with np.errstate(divide="ignore"):
        logits = weight * np.log(np.maximum(found.posterior.probabilities, 1e-300))
    logits += (1 - weight) * np.log(prior)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    softer = replace(found.posterior, probabilities=p / p.sum(axis=1, keepdims=True))
    return replace(found, posterior=softer)


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
    scene = _Scene(link, recipe, candidates, labels, np.arange(1))
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
    exact = ridge(trusted, share)
    if exact.converged:
        return exact, spare
    posterior, raised = noisy_posterior(trusted, share)
    return averaged(posterior, ties), spare * raised


def _settled(now: Array, before: Array) -> bool:
    return float(np.abs(now - before).mean()) < _SETTLED


def _shares(probabilities: Array) -> Array:
    """How common each value is, estimated; never quite zero."""
    counts = probabilities.sum(axis=0) + _PRIOR_STRENGTH / probabilities.shape[1]
    return np.asarray(counts / counts.sum())


class _Scene:
    """One client's rounds, ready to be written as equations for any belief."""

    def __init__(
        self,
        link: Link,
        recipe: Recipe,
        candidates: Array,
        labels: Array,
        heard: NDArray[np.int64],
    ) -> None:
        values, people, _ = candidates.shape
        self.people, self.recipe, self.times = (
            people,
            recipe,
            timetable(people, recipe.batch_size, recipe.epochs),
        )
        self.used = usage(people, recipe.batch_size, recipe.epochs)
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
        unknowns = people * (values - 1)
        numbers = unknowns * max(self.sent.size, 2 * recipe.model.size * self.times.shares.size)
        self.whole = numbers <= MOST_ROW_NUMBERS and (
            not self.random or recipe.model.size <= MOST_RANDOM_ROWS
        )
        equations = recipe.dense.sizes[1] * int(self.varies.sum()) * len(heard)
        self.blind = self.whole or equations < _SPARE * unknowns

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
        self, belief: Array, rng: np.random.Generator, straight: bool
    ) -> tuple[list[Equations], list[float]]:
        """The rounds' equations, and how much larger than stated their noise is.

        The latter from replays, whose values and ends are known. On a straight path only where
        the equations themselves could not show it.
        """
        rounds, scales = [], []
        one_hot = np.eye(belief.shape[1])
        for sent, returned, noise in zip(self.sent, self.returned, self.noise, strict=True):
            shown = []
            if straight:
                path = segment(self.times, sent, returned)
                if self.blind:
                    chosen = self._draw(belief, 1, rng)
                    _, ends = self._replay(sent, chosen, rng)
                    again = segment(self.times, sent, ends[0])
                    one = self._maker(again, belief, noise)(self._total(sent, ends[0], again))
                    shown.append(one.chi2(one_hot[chosen[0]]))
                make = self._maker(path, belief, noise)
            else:
                chosen = self._draw(belief, REPLAYS, rng)
                path, ends = self._replay(sent, chosen, rng)
                make = self._maker(path, belief, noise)
                for end, values in zip(ends, chosen, strict=True):
                    shown.append(make(self._total(sent, end, path)).chi2(one_hot[values]))
            rounds.append(make(self._total(sent, returned, path)))
            scales.append(max(float(np.sqrt(np.mean(shown))), _QUIETEST) if shown else 1.0)
        return rounds, scales

    def measurement(self, rounds: list[Equations], scales: list[float]) -> Measurement:
        """All rounds together."""
        return (stacked if self.whole else pooled)(rounds, scales)

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
        path, ends = found
        return path, (ends + rng.normal(0.0, self.added, ends.shape)).astype(ends.dtype)

    def _total(self, sent: Wire, returned: Wire, path: Array) -> Array:
        """Sum of the gradients of all local steps."""
        recipe, start = self.recipe, sent.astype(np.float64)
        total = (start - returned.astype(np.float64)) / recipe.learning_rate
        if recipe.algorithm == "fedprox":
            middle = np.einsum("gq,gqp->p", self.times.shares, path)
            total = total - recipe.proximal * self.times.steps * (middle - start)
        return total

    def _maker(self, path: Array, belief: Array, noise: Array) -> Callable[[Array], Equations]:
        """What turns a sum of gradients along this path into equations."""
        recipe, shares = self.recipe, self.times.shares
        if self.whole:
            gradients = self._nodes(path, lambda *at: recipe_gradients(recipe, *at))
            moments = order_moments(gradients, shares, self.used, belief, _WHOLE_SHRINK)
            return lambda total: whole_equations(moments, total, noise)
        theta = path.astype(self.inputs.dtype)
        errors = self._nodes(theta, lambda *at: record_factors(recipe, *at)[0][1])
        moments = order_moments(errors, shares, self.used, belief)
        layer = split(recipe.dense, noise)[0][0]
        columns = Columns(
            moments, self.public, self.direct, belief, float(np.sqrt(np.mean(layer**2)))
        )

        def make(total: Array) -> Equations:
            weight, bias = split(recipe.dense, total)[0]
            public = [weight[:, ~self.varies], *(() if bias is None else (bias,))]
            return columns.equations(
                np.asarray(weight[:, self.varies], dtype=np.float64),
                np.column_stack(public).astype(np.float64),
            )

        return make

    def _nodes(self, path: Wire, what: Callable[[Wire, Wire, Wire], Wire]) -> Array:
        """Something of every record under every candidate (G, Q, K, m, ...) along the path."""
        found = [what(path, x, y) for x, y in zip(self.inputs, self.labels, strict=True)]
        return np.stack(found, axis=2).astype(np.float64)
