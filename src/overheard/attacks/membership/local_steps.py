"""Members told from strangers when the client takes many local steps between two messages.

Mini-batches, several local epochs, or both (decoders.md section 3). The update is still a sum over
members, of gradients along the path that the model took while it trained. The path is the
straight segment between the two models heard plus the bend of replays: local trainings of the same
recipe on members drawn from what is believed so far. A replay's members are known, so what the
linear equations leave unexplained there is the noise: its shape, layer by layer
(:mod:`overheard.decoding.matrix_noise`), and, from replays kept apart, its size.

Membership enters every layer, so all equations count; they are kept as inner products of factors.
What is unknown of a record is its weight in the sum, zero for strangers. An attribute that is
unknown too is averaged over here: to the sum it is noise, and the replays show how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from overheard.attacks.membership.local_path import segment
from overheard.attacks.membership.path_sums import PathSums
from overheard.attacks.membership.pool import Candidates
from overheard.attacks.membership.replays import Replays, replays
from overheard.attacks.rehearsal import drawn
from overheard.attacks.wire import only, rounding
from overheard.decoding.matrix_noise import MatrixNoise, matrix_noise
from overheard.decoding.noisy_gram import Sweeps, noisy_gram
from overheard.errors import ChooseAnotherAttack
from overheard.programs.gradient_rows import Difference, Differences
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

SHAPING, SIZING = 4, 2
"""Replays of a round from which the noise's shape, and then its size, is estimated."""

MOST_RECORDS = 6000
"""Inner products of more records would need gigabytes."""

PASSES = 2  # over a round: the second draws its replays from what the first found
GOOD_FIT = 4.0
"""Noise variance, in units of what replays show, up to which a fit is called good."""

_SURE = 1e-3  # mean doubt about membership at which no further round is needed
_OPEN = 1e-4  # what one round says is never believed more surely than this by the next
_QUIETEST = 1e-2  # least variance, in units of the noise's shape, that rehearsals may claim
_MOST_DRIFT = 0.5  # of a member's weight, relative: at more the three points would cross zero
_MANY = 500  # records from which one rehearsal shows what evidence is worth


@dataclass(frozen=True)
class Found:
    """Who the members are: probabilities (n,).

    misfit: variance of the noise in units of what replays of the recipe show (about 1 when all is
    well), of the worst round used; settled: whether every round's solve came to rest; worth: the
    least factor on log odds that rehearsals asked for (1: evidence is taken at its word).
    """

    members: Array
    misfit: float
    settled: bool
    worth: float
    equations: int
    rounds: int

    @property
    def fit(self) -> str:
        """ "good", or "poor": the probabilities should then not be relied on."""
        return "good" if self.settled and self.misfit <= GOOD_FIT else "poor"

    def then(self, later: Found) -> Found:
        """What is known after one more round."""
        return Found(
            later.members,
            max(self.misfit, later.misfit),
            self.settled and later.settled,
            min(self.worth, later.worth),
            self.equations + later.equations,
            self.rounds + later.rounds,
        )

    @property
    def doubt(self) -> float:
        """Mean probability that a record's more likely membership is wrong."""
        return _doubt(self.members)

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Which of two passes over a round to keep. Among equals the first, whose replays owe
        nothing to the round itself."""
        return self.settled, self.sure, -self.misfit

    @property
    def sure(self) -> bool:
        """Is no further round needed?"""
        return self.fit == "good" and self.doubt < _SURE


def as_trained(recipe: Recipe, members: int) -> Recipe:
    """The recipe in epochs and batches that a client of this many records really trains on.

    Refused where its local steps are no whole number of epochs.
    """
    size = min(recipe.batch_size or members, members)
    epochs = recipe.epochs
    if recipe.steps is not None:
        epochs, rest = divmod(recipe.steps, -(-members // size))
        if rest or not epochs:
            raise ChooseAnotherAttack(
                f"the client takes {recipe.steps} mini-batch steps, not whole epochs over its "
                f"{members} records: members may leave no trace in an update"
            )
    batch = None if size == members else size
    return recipe.model_copy(update={"steps": None, "epochs": epochs, "batch_size": batch})


def decode_local_steps(
    link: Link,
    recipe: Recipe,
    pool: Candidates,
    members: int,
    shares: Array,
    rounds: int,
    rng: np.random.Generator,
) -> Found:
    """Who of the pool are the ``members`` records behind the link's updates?

    shares: (K,) of the attribute's values. The first rounds are used, one after the other, until
    little doubt is left: in them members still teach the model something.
    """
    scene = _Scene(link, recipe, pool, members, shares)
    people = pool.inputs.shape[1]
    belief = np.full(people, members / people)
    found: Found | None = None
    for number in range(min(rounds, len(link))):
        best: Found | None = None
        drawn_from = belief
        for _ in range(PASSES):
            one = scene.decode(number, belief, drawn_from, rng)
            if best is None or one.rank > best.rank:
                best = one
            if best.sure:
                break
            drawn_from = np.clip(one.members, _OPEN, 1 - _OPEN)
        assert best is not None
        found = best if found is None else found.then(best)
        if best.sure:
            break
        belief = np.clip(best.members, _OPEN, 1 - _OPEN)
    assert found is not None
    return found


@dataclass(frozen=True)
class _Rehearsal:
    """An update of known members that had no part in shaping the noise."""

    end: Wire
    path: Array
    members: Indices


@dataclass(frozen=True)
class _Chance:
    """What chance does in a round: the noise of each layer; how the path bends; ``drift``:
    standard deviation of a member's weight because nobody knows when it was used; ``left``: mean
    square of the white noise."""

    noises: list[MatrixNoise]
    bend: Array
    drift: float
    left: float
    rehearsals: list[_Rehearsal]


class _Apart:
    """How large is the noise of a rehearsal where records point?"""

    def __init__(
        self, layers: Sequence[Difference], white: Sequence[Array], members: Indices
    ) -> None:
        # per layer: projections on the pool's directions, their squared lengths, mean squares
        self.along = np.stack(
            [
                Differences((layer,)).project([block])
                for layer, block in zip(layers, white, strict=True)
            ]
        )
        self.length = np.stack([layer.lengths() for layer in layers])
        self.chi2 = np.array([float(np.mean(block**2)) for block in white])
        self.member = np.zeros(self.along.shape[1], dtype=bool)
        self.member[members] = True

    def size(self) -> Array:
        """Variance of each layer's noise: overall, or along strangers if that is more."""
        outside = ~self.member
        lengths = np.maximum(self.length[:, outside], 1e-300)
        along = np.mean(self.along[:, outside] ** 2 / lengths, axis=1)
        return np.asarray(np.maximum(self.chi2, along))

    def drift(self, size: Array) -> float:
        """Variance of a member's weight beyond what the noise explains."""
        length = (self.length / size[:, None]).sum(axis=0)
        weight = (self.along / size[:, None]).sum(axis=0) / np.maximum(length, 1e-300)
        return float(np.mean(weight[self.member] ** 2) - np.mean(weight[~self.member] ** 2))


class _Scene:
    """One client's rounds and a pool, ready to be decoded from any belief."""

    def __init__(
        self, link: Link, recipe: Recipe, pool: Candidates, members: int, shares: Array
    ) -> None:
        self.link, self.recipe, self.pool, self.shares = link, recipe, pool, shares
        mean_inputs = np.tensordot(shares, pool.inputs, 1)
        self.equations = PathSums(recipe, mean_inputs, pool.labels, members)

    def decode(
        self, number: int, belief: Array, drawn_from: Array, rng: np.random.Generator
    ) -> Found:
        """What one round says, given what was believed before it.

        drawn_from: the belief from which members are drawn for the replays. Where doubt is left,
        rehearsals are decoded too: what the same evidence was worth there, it is worth here.
        """
        sent, returned = self.link.sent[number], self.link.returned[number]
        chance = self._chance(number, drawn_from, rng)
        path = segment(self.equations.times, sent, returned) + chance.bend
        before = np.log(belief) - np.log1p(-belief)
        answer, odds, size = self._solve(number, returned, path, chance, belief)
        worth = 1.0
        members = counted(odds, self.equations.members)
        if not answer.settled or _doubt(members) >= _SURE:
            few = 1 if len(belief) >= _MANY else None
            shown = [
                (self._solve(number, one.end, one.path, chance, belief)[1], one.members)
                for one in chance.rehearsals[:few]
            ]
            worth = evidence_worth(
                [odds - before for odds, _ in shown], before, [w for _, w in shown]
            )
            members = counted(before + worth * (odds - before), self.equations.members)
        return Found(members, answer.variance, answer.settled, worth, size, 1)

    def _solve(
        self, number: int, returned: Wire, path: Array, chance: _Chance, belief: Array
    ) -> tuple[Sweeps, Array, int]:
        """The answer, its log odds of being a member (n,), and the number of equations."""
        at, sent = self.equations, self.link.sent[number]
        sums = at.sums(sent, returned, path, chance.noises, chance.left)
        # a member's own drift: three points with the moments of a normal distribution
        drift = 1 + np.sqrt(3) * chance.drift * np.array([-1.0, 0.0, 1.0])
        states = np.append(0.0, np.outer(at.weights / at.usual, drift))
        shares = np.outer(at.chances, [1 / 6, 2 / 3, 1 / 6]).ravel()
        answer = noisy_gram(sums, states, np.column_stack([1 - belief, belief[:, None] * shares]))
        inside = np.maximum(answer.probabilities[:, 1:].sum(axis=1), 1e-300)
        odds = np.log(inside) - np.log(np.maximum(answer.probabilities[:, 0], 1e-300))
        return answer, odds, sums.equations

    def _chance(self, number: int, belief: Array, rng: np.random.Generator) -> _Chance:
        """Learned from replays of the round."""
        sent, at = self.link.sent[number], self.equations
        groups = [draw_members(belief, at.members, rng) for _ in range(SHAPING + SIZING)]
        chosen = np.stack(groups)
        done = self._replays(sent, chosen, rng)
        straight = np.stack([segment(at.times, sent, end) for end in done.ends])
        bends = done.paths - straight
        bend, count = bends.mean(axis=0), len(bends)
        # a replay's own bend is not known of the client's path either
        paths = [
            line + (count * bend - own) / (count - 1)
            for line, own in zip(straight, bends, strict=True)
        ]
        residuals = [
            at.residual(sent, *one)
            for one in zip(done.ends, paths, chosen, done.weights, strict=True)
        ]
        one = rounding(only(self.link, np.array([number])))[0] / self.recipe.learning_rate
        noises = [
            matrix_noise(
                np.stack([left[layer] for left in residuals[:SHAPING]]),
                gradients.inputs[0].T @ gradients.inputs[0],
                float(np.sqrt(np.mean(rounded**2))),
            )
            for layer, (gradients, rounded) in enumerate(
                zip(at.layers(paths[0], chosen[0]), at.split(one), strict=True)
            )
        ]
        kept = [
            _Rehearsal(*parts)
            for parts in zip(done.ends[SHAPING:], paths[SHAPING:], chosen[SHAPING:], strict=True)
        ]
        apart = []
        for rehearsal, left in zip(kept, residuals[SHAPING:], strict=True):
            white = [noise.white(block) for noise, block in zip(noises, left, strict=True)]
            apart.append(_Apart(at.white(rehearsal.path, noises), white, rehearsal.members))
        size = np.maximum(np.mean([each.size() for each in apart], axis=0), _QUIETEST)
        drift = np.sqrt(max(float(np.mean([each.drift(size) for each in apart])), 0.0))
        louder = [noise.louder(float(np.sqrt(s))) for noise, s in zip(noises, size, strict=True)]
        numbers = [block.size for block in residuals[0]]
        left_over = np.mean([each.chi2 for each in apart], axis=0) / size
        return _Chance(
            louder,
            bend,
            min(float(drift), _MOST_DRIFT),
            float(np.average(left_over, weights=numbers)),
            kept,
        )

    def _replays(self, sent: Wire, chosen: Indices, rng: np.random.Generator) -> Replays:
        """Train on these records (R, m), their values drawn from the shares."""
        public = np.column_stack([self.pool.inputs[0], self.pool.labels])
        alike = np.tile(self.shares, (chosen.shape[1], 1))
        values = np.stack([drawn(alike, public[who], rng) for who in chosen])
        inputs = self.pool.inputs[values, chosen].astype(sent.dtype)
        labels = self.pool.labels[chosen].astype(sent.dtype)
        done = replays(self.recipe, self.equations.times, sent, inputs, labels, rng)
        if not np.isfinite(done.ends).all():
            raise ChooseAnotherAttack(
                f"training diverges when it is replayed at the client's learning rate "
                f"{self.recipe.learning_rate:g}; its updates cannot be read as sums over members"
            )
        # a defence's noise is on the update, after training
        noise = rng.normal(0.0, self.link.noise_sd, done.ends.shape) if self.link.noise_sd else 0.0
        return replace(done, ends=(done.ends + noise).astype(sent.dtype))


def draw_members(belief: Array, members: int, rng: np.random.Generator) -> Indices:
    """As many members as the client reported, at random as believed."""
    keys = np.log(belief) - np.log1p(-belief) + rng.logistic(size=len(belief))
    return np.asarray(np.argsort(-keys, kind="stable")[:members], dtype=np.int64)


def evidence_worth(evidence: Sequence[Array], before: Array, members: Sequence[Indices]) -> float:
    """The factor between 0 and 1 on log odds that makes the truth of rehearsals likeliest.

    evidence: changes of log odds (n,) in each rehearsal; before: log odds (n,) until then; members:
    of each rehearsal.
    """
    factors = np.linspace(0.0, 1.0, 101)
    score = np.zeros(len(factors))
    for change, who in zip(evidence, members, strict=True):
        sign = np.full(len(change), -1.0)
        sign[who] = 1.0
        odds = before + factors[:, None] * change
        score += log_expit(sign * odds).sum(axis=1)
    return float(factors[score.argmax()])


def counted(odds: Array, members: int) -> Array:
    """Probabilities (n,) of being a member that add up to the number of members.

    odds: log odds (n,). The solve knows how much weight there is in all, not how many carry it;
    everybody's odds are changed by the same factor.
    """
    low, high = -odds.max() - 50.0, -odds.min() + 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if expit(odds + middle).sum() > members else (middle, high)
    return np.asarray(expit(odds + (low + high) / 2))


def _doubt(members: Array) -> float:
    """Mean probability that a record's more likely membership is wrong."""
    return float(np.minimum(members, 1 - members).mean())
