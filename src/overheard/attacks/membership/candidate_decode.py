"""Members and strangers told apart, and the members' attribute, by the same linear solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.any_training import Client, decode_training
from overheard.attacks.attribute.dense_measurement import too_long
from overheard.attacks.front import flagged
from overheard.attacks.membership.local_steps import (
    GOOD_FIT,
    MOST_RECORDS,
    as_trained,
    decode_local_steps,
    draw_members,
)
from overheard.attacks.membership.pool import (
    Candidates,
    candidates_of,
    members_reported,
    pool_products,
    pool_rows,
)
from overheard.attacks.rehearsal import (
    UNLIKE,
    Attempt,
    Rehearsal,
    drawn,
    rehearse,
    retrained,
)
from overheard.attacks.wire import heard, one_step, only, spread
from overheard.decoding.counts import decode_tied, same_rows, solve_counts, tie_diagnostics
from overheard.decoding.max_entropy import Posterior, count_unknowns
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.networks import network
from overheard.programs.private import update_noise
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates as MayBe
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    Link,
    LocalTraining,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
MOST_ROW_NUMBERS = 4_000_000
MOST_UNKNOWNS = 10_000
MOST_LEFT = 100.0
"""Mean square of what an answer leaves of an exact sum, in units of its noise, that is let pass."""
UNEXPLAINED = (
    "no choice of members of this pool explains the updates; members are missing from the pool, "
    "or model, recipe or noise are not as declared"
)
PROVEN = ("counts", "ridge", "enumeration")
FEW = 2
"""Rehearsals of an exact sum that left doubt."""
CLEAR = 0.02
"""Mean doubt about membership up to which the members' attribute is decoded."""


@dataclass(frozen=True)
class CandidateDecode:
    """Reads the client's updates as a sum over the pool in which strangers add nothing, and solves
    for who is in the sum and with which value of the attribute: exact where the update has at least
    as many independent numbers as the pool has candidates, calibrated where not. Mini-batches and
    several local epochs are replayed to learn what chance does to the sum.

    Settings: ``rounds``, how many of the rounds heard may be used (the first alone is tried first).
    """

    name: ClassVar[str] = "candidate_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, CandidatePool})
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {AttributeDomain, AttributePrior, AppliedDefence}
    )

    any_training: ClassVar[bool] = True

    rounds: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        recipe, link = view.know(LocalTraining).recipe, heard(view)
        pool = candidates_of(view)
        values, people, _ = pool.inputs.shape
        count = members_reported(link, people)
        # private steps say in the recipe how much noise they add
        told = float(np.hypot(link.noise_sd, update_noise(recipe, count)))
        link = replace(link, noise_sd=told)
        if values * people > MOST_UNKNOWNS:
            raise ChooseAnotherAttack(
                f"{people} candidate records with {values} values each are more than "
                f"{MOST_UNKNOWNS} unknowns; audit a smaller pool"
            )
        prior = _prior(view, values, count / people)
        groups = same_rows(np.column_stack([pool.inputs[0], pool.labels]))
        trained = recipe if link.gradients else as_trained(recipe, count)
        several = not one_step(link, trained)
        if not recipe.plain or not _by_rows(trained, link, pool, several):
            return _any_training(link, recipe, pool, count, prior, groups, rng)
        recipe = trained
        if several:
            play = _Play(link, recipe, pool, prior[1:] / prior[1:].sum(), count, rng)
            return _several_steps(play, groups, self.rounds)
        chosen = spread(len(link), 1)
        posterior, left = _one_step(link, recipe, pool, chosen, count, prior, groups)
        if posterior.method not in PROVEN and min(self.rounds, len(link)) > 1:
            chosen = spread(len(link), min(self.rounds, len(link)))
            posterior, left = _one_step(link, recipe, pool, chosen, count, prior, groups)
        tried = None
        if posterior.method not in PROVEN or left > MOST_LEFT:
            scene = only(link, chosen)
            every = np.arange(len(scene))

            def decode(messages: Link) -> Attempt:
                again, misfit = _one_step(messages, recipe, pool, every, count, prior, groups)
                return Attempt(again.probabilities, misfit)

            p = posterior.probabilities
            play = _Play(scene, recipe, pool, prior[1:] / prior[1:].sum(), count, rng)
            tried = rehearse(play.pairs, decode, p, np.tile(prior, (people, 1)), FEW)
            calm, _ = tried.tempered(p)
            posterior = replace(posterior, probabilities=calm, flag=tried.flag)
        return _guess(posterior, left, tried, pool, groups, (len(chosen), recipe.model.size))


@dataclass(frozen=True)
class _Play:
    """A client that trains on members drawn from the pool, their values from ``shares``."""

    link: Link
    recipe: Recipe
    pool: Candidates
    shares: Array
    count: int
    rng: np.random.Generator

    def members(self, probabilities: Array) -> tuple[Link, NDArray[np.int64]]:
        """Drawn from (n, 2), stranger or member; the secret is who is a member."""
        who = draw_members(np.clip(probabilities[:, 1], 1e-9, 1 - 1e-9), self.count, self.rng)
        values = self._values(np.tile(self.shares, (self.count, 1)), who)
        secret = np.zeros(len(probabilities), dtype=np.int64)
        secret[who] = 1
        return self._trained(who, values), secret

    def pairs(self, probabilities: Array) -> tuple[Link, NDArray[np.int64]]:
        """Drawn from (n, 1 + K), stranger or which value; the secret is both."""
        inside = np.clip(1 - probabilities[:, 0], 1e-9, 1 - 1e-9)
        who = draw_members(inside, self.count, self.rng)
        weights = probabilities[who, 1:] + 1e-12
        values = self._values(weights / weights.sum(axis=1, keepdims=True), who)
        secret = np.zeros(len(probabilities), dtype=np.int64)
        secret[who] = 1 + values
        return self._trained(who, values), secret

    def _values(self, probabilities: Array, who: NDArray[np.int64]) -> NDArray[np.int64]:
        public = np.column_stack([self.pool.inputs[0], self.pool.labels])
        return drawn(probabilities, public[who], self.rng)

    def _trained(self, who: NDArray[np.int64], values: NDArray[np.int64]) -> Link:
        inputs, labels = self.pool.inputs[values, who], self.pool.labels[who]
        # private steps put their noise on while they train
        noise = 0.0 if self.recipe.private else self.link.noise_sd
        return retrained(self.link, self.recipe, inputs, labels, noise, self.rng)


def _by_rows(recipe: Recipe, link: Link, pool: Candidates, several: bool) -> bool:
    """Are members found by their gradients, one by one?"""
    net = network(recipe)
    if net.factored:
        return True
    return not (several or net.chance or net.mixes) and not too_long(
        recipe, link.sent[0].astype(np.float64), pool.inputs
    )


def _any_training(
    link: Link,
    recipe: Recipe,
    pool: Candidates,
    count: int,
    prior: Array,
    groups: NDArray[np.intp],
    rng: np.random.Generator,
) -> Membership:
    """Momentum, Adam, any layers: "absent" is one more candidate of every record of the pool."""
    values, people, width = pool.inputs.shape
    inputs = np.concatenate([np.zeros((1, people, width)), pool.inputs])
    labels = np.broadcast_to(pool.labels, (values + 1, people))
    candidates = MayBe(inputs, labels, np.arange(values + 1) > 0, count)
    priors = np.tile(prior, (people, 1))
    found = decode_training(Client(link, recipe, candidates, priors, groups), rng)
    inside = found.probabilities[:, 1:]
    attribute = None
    if pool.domain is not None:
        given = (inside + 1e-12) / (inside + 1e-12).sum(axis=1, keepdims=True)
        attribute = AttributeValues(given, pool.domain.values)
    member = np.clip(inside.sum(axis=1), 0.0, 1.0)
    return Membership(
        member,
        attribute,
        {
            "method": found.method,
            **flagged(found.flag, np.column_stack([1 - member, member])),
            **found.notes,
            "parameters": recipe.model.size,
            **tie_diagnostics(groups, found.probabilities),
        },
    )


def _one_step(
    link: Link,
    recipe: Recipe,
    pool: Candidates,
    used: NDArray[np.int64],
    count: int,
    prior: Array,
    groups: NDArray[np.intp],
) -> tuple[Posterior, float]:
    """The client takes one full-batch step a round: the equations are exact.

    And the mean square of what the answer leaves of the update, in units of the noise on the wire.
    """
    values, people, _ = pool.inputs.shape
    priors = np.tile(prior, (people, 1))
    if people * values * recipe.model.size * len(used) <= MOST_ROW_NUMBERS:
        rows = pool_rows(link, recipe, pool, used, count)
        posterior = decode_tied(rows, groups, priors)
        left = rows.rank * rows.chi2_per_equation(posterior.probabilities) + rows.spare_chi2
        return posterior, left / (rows.rank + rows.spare_rows)
    sums = pool_products(link, recipe, pool, used, count)
    first = np.unique(groups, return_index=True)[1]
    inside = (first[:, None] * values + np.arange(values)).ravel()
    found = solve_counts(
        sums.products[np.ix_(inside, inside)],
        sums.projections[inside],
        sums.energy,
        sums.equations,
        np.bincount(groups),
        priors[first],
    )
    if found.exact:
        posterior = Posterior(
            found.shares[groups],
            found.chi2_per_equation,
            len(inside),
            count_unknowns(priors),
            1,
            True,
            "counts",
        )
    else:
        posterior = decode_tied(sums.measurement(), groups, priors)
    return posterior, sums.left(posterior.probabilities[:, 1:].ravel()) / sums.equations


def _several_steps(play: _Play, groups: NDArray[np.intp], rounds: int) -> Membership:
    """The model moved while the client trained: mini-batches or several local epochs."""
    link, recipe, pool, rng = play.link, play.recipe, play.pool, play.rng
    count, shares = play.count, play.shares
    people = len(pool.labels)
    if people > MOST_RECORDS:
        raise ChooseAnotherAttack(
            f"a pool of {people} records is more than {MOST_RECORDS}; audit a smaller pool"
        )
    found = decode_local_steps(link, recipe, pool, count, shares, rounds, rng)

    def decode(messages: Link) -> Attempt:
        again = decode_local_steps(messages, recipe, pool, count, shares, rounds, rng)
        return Attempt(np.column_stack([1 - again.members, again.members]), again.misfit)

    # only the first rounds are used
    scene = only(link, np.arange(min(rounds, len(link))))
    prior = np.tile([1 - count / people, count / people], (people, 1))
    answer = np.column_stack([1 - found.members, found.members])
    tried = rehearse(replace(play, link=scene).members, decode, answer, prior)
    calm, power = tried.tempered(answer)
    fits = tried.fits(found.misfit, GOOD_FIT)
    found = replace(found, members=calm[:, 1])
    sizes = np.bincount(groups)
    members = (np.bincount(groups, found.members) / sizes)[groups]
    tied = np.column_stack([1 - members, members])
    attribute = None
    values: dict[str, float | int | str] = {}
    if pool.domain is not None:
        probabilities = np.tile(shares, (people, 1))
        if fits and found.doubt < CLEAR:
            # whoever is a member is known: what is left is the question about the attribute
            inside = np.argsort(-members, kind="stable")[:count]
            ties = np.unique(groups[inside], return_inverse=True)[1]
            inputs = pool.inputs[:, inside]
            labels = np.broadcast_to(pool.labels[inside], inputs.shape[:2])
            there = MayBe(inputs, labels, np.ones(len(inputs), dtype=bool), count)
            client = Client(link, recipe, there, np.tile(shares, (count, 1)), ties)
            decoded = decode_training(client, rng)
            probabilities[inside] = decoded.probabilities
            values = {"attribute_fit": decoded.notes["fit"]}
        attribute = AttributeValues(probabilities, pool.domain.values)
    return Membership(
        members,
        attribute,
        {
            "method": "expectation_propagation",
            "fit": "good" if fits else "poor",
            "misfit": found.misfit,
            "doubt": found.doubt,
            "evidence_worth": min(found.worth, power),
            **_noted(tried),
            "equations": found.equations,
            "unknowns": people,
            "rounds_used": found.rounds,
            "parameters": recipe.model.size,
            **values,
            **flagged(tried.flag if fits else UNLIKE, tied),
            **tie_diagnostics(groups, tied),
        },
    )


def _prior(view: View, values: int, share: float) -> Array:
    """Absent, then each value: the client's share of the pool times the population's shares."""
    shares = np.full(values, 1 / values)
    if AttributePrior in view.kinds and AttributeDomain in view.kinds:
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
        if len(shares) != values:
            raise FixData(f"the attribute prior has {len(shares)} shares for {values} values")
        # a value that the prior calls impossible may still be there: the messages decide
        shares = (shares + 1e-6) / (1 + 1e-6 * values)
    return np.concatenate([[1 - share], share * shares])


def _noted(tried: Rehearsal) -> dict[str, float]:
    return {
        "rehearsed": tried.accuracy,
        "rehearsed_sureness": tried.confidence,
        "rehearsed_misfit": tried.misfit,
    }


def _guess(
    posterior: Posterior,
    left: float,
    tried: Rehearsal | None,
    pool: Candidates,
    groups: NDArray[np.intp],
    used: tuple[int, int],
) -> Membership:
    """The answer. tried: what rehearsals say of it, unless it proved itself; used: how many rounds
    and parameters."""
    p, (rounds, size) = posterior.probabilities, used
    member = np.clip(1 - p[:, 0], 0.0, 1.0)
    attribute = None
    if pool.domain is not None:
        inside = p[:, 1:] + 1e-12
        attribute = AttributeValues(inside / inside.sum(axis=1, keepdims=True), pool.domain.values)
    fits = left <= MOST_LEFT or (tried is not None and tried.fits(left, MOST_LEFT))
    flag = UNEXPLAINED if not fits else posterior.flag if tried is not None else ""
    return Membership(
        member,
        attribute,
        {
            "method": posterior.method,
            "fit": "good" if fits else "poor",
            "misfit": left,
            "rank": posterior.rank,
            "unknowns": posterior.unknowns,
            "chi2": posterior.chi2_per_equation,
            "rounds_used": rounds,
            "parameters": size,
            **({} if tried is None else _noted(tried)),
            **flagged(flag, np.column_stack([1 - member, member])),
            **tie_diagnostics(groups, p),
        },
    )
