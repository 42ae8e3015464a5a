"""Members and strangers told apart, and the members' attribute, by the same linear solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from overheard.attacks.any_training import Client, decode_training, lengths
from overheard.attacks.attribute.dense_measurement import too_long
from overheard.attacks.by_simulation import Answer
from overheard.attacks.front import flagged
from overheard.attacks.membership.pool import (
    Candidates,
    candidates_of,
    members_reported,
    pool_products,
    pool_rows,
)
from overheard.attacks.rehearsal import Attempt, Rehearsal, rehearse, retrained
from overheard.attacks.wire import heard, one_step, only, spread
from overheard.decoding.counts import decode_tied, same_rows, solve_counts, tie_diagnostics
from overheard.decoding.max_entropy import Posterior, count_unknowns
from overheard.decoding.posterior import POOR_FIT
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.networks import network
from overheard.programs.private import update_noise
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates as MayBe
from overheard.programs.simulated import drawn
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
MOST_ROW_NUMBERS = 4_000_000  # of gradients written out as rows, which cost little
MOST_UNKNOWNS = 10_000  # of a pool: its Gram matrix takes 800 MB
MOST_LEFT = 100.0
"""Mean square of what an answer leaves of an exact sum, in units of its noise, that is let pass."""
UNEXPLAINED = (
    "no choice of members of this pool explains the updates; members are missing from the pool, "
    "or model, recipe or noise are not as declared"
)
PROVEN = ("counts", "linear_solve", "enumeration")
FEW = 2
"""Rehearsals of an exact sum that left doubt."""
SHORT = 0.5
"""Length of an update, in units of simulated clients', below which (or above one over which) it was
scaled, or another rule made it: fewer members would explain it, but their number is known."""
CLEAR = 0.02
"""Mean doubt about membership up to which one round suffices."""


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
        if not one_step(link, trained) or not _by_rows(trained, link, pool):
            few = only(link, np.arange(min(self.rounds, len(link))))
            return _Several(few, trained, pool, count, prior, groups).guess(rng)
        recipe = trained
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


def _by_rows(recipe: Recipe, link: Link, pool: Candidates) -> bool:
    """Are members found by their gradients, one by one?"""
    net = network(recipe)
    if net.factored:
        return True
    return not (net.chance or net.mixes) and not too_long(
        recipe, link.sent[0].astype(np.float64), pool.inputs
    )


@dataclass(frozen=True)
class _Several:
    """A client that takes several local steps, of any rule and any layers."""

    link: Link
    recipe: Recipe
    pool: Candidates
    count: int
    prior: Array
    groups: NDArray[np.intp]

    def guess(self, rng: np.random.Generator) -> Membership:
        """The first round alone, and more if it leaves doubt."""
        first = replace(self, link=only(self.link, np.arange(1)))
        found = first._answer(rng)
        sure = not found.flag and _doubt(found.probabilities[:, 0]) < CLEAR
        if len(self.link) > 1 and not sure:
            found = self._answer(rng)
        p = found.probabilities
        member = counted(1 - p[:, 0], self.count)
        attribute = None
        if self.pool.domain is not None:
            given = (p[:, 1:] + 1e-12) / (p[:, 1:] + 1e-12).sum(axis=1, keepdims=True)
            attribute = AttributeValues(given, self.pool.domain.values)
        both = np.column_stack([1 - member, member])
        return Membership(
            member,
            attribute,
            {
                "method": found.method,
                **flagged(found.flag, both),
                **found.notes,
                "doubt": _doubt(member),
                "parameters": self.recipe.model.size,
                **tie_diagnostics(self.groups, both),
            },
        )

    def _answer(self, rng: np.random.Generator) -> Answer:
        """Absent, then each value: "absent" is one more candidate of every record."""
        inputs = np.concatenate([np.zeros_like(self.pool.inputs[:1]), self.pool.inputs])
        labels = np.broadcast_to(self.pool.labels, inputs.shape[:2])
        may = MayBe(inputs, labels, np.arange(len(inputs)) > 0, self.count)
        priors = np.tile(self.prior, (len(self.pool.labels), 1))
        client = Client(self.link, self.recipe, may, priors, self.groups)
        found = decode_training(client, rng)
        size = lengths(client, rng) if not self.link.noise_sd else np.ones(1)
        strange = size.min() < SHORT or size.max() > 1 / SHORT or "noise_found" in found.notes
        if not found.flag and strange:
            return replace(found, flag=POOR_FIT, notes={**found.notes, "fit": "poor"})
        return found


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


def draw_members(belief: Array, members: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many members as the client reported, at random as believed."""
    keys = logit(belief) + rng.logistic(size=len(belief))
    return np.asarray(np.argsort(-keys, kind="stable")[:members], dtype=np.int64)


def counted(probabilities: Array, members: int) -> Array:
    """Probabilities (n,) of being a member that add up to the number of members: everybody's odds
    are changed by the same factor."""
    odds = logit(np.clip(probabilities, 1e-12, 1 - 1e-12))
    low, high = -odds.max() - 50.0, -odds.min() + 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if expit(odds + middle).sum() > members else (middle, high)
    return np.asarray(expit(odds + (low + high) / 2))


def _doubt(members: Array) -> float:
    """Mean probability that a record's more likely membership is wrong."""
    return float(np.minimum(members, 1 - members).mean())


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
