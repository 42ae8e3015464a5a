"""Who of a pool is among the client's records, and with which value of an attribute?

One full-batch step sends ``(theta - theta') m / lr = sum over members of g_i(s_i)``. A stranger
adds nothing, so "absent" is one more candidate of every record of the pool, with gradient zero
(decoders.md section 1). The number of members m is what the client reported: one more equation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from overheard.attacks.any_training import Client, decode_training, lengths
from overheard.attacks.attribute.measurement import too_long
from overheard.attacks.by_simulation import Answer
from overheard.attacks.front import flagged
from overheard.attacks.rehearsal import Attempt, rehearse, retrained
from overheard.attacks.stranger import prior_shares
from overheard.attacks.wire import (
    heard,
    one_step,
    only,
    rate_of,
    refuse_several_steps,
    rounding,
    spread,
)
from overheard.decoding.counts import decode_tied, same_rows, solve_counts, tie_diagnostics
from overheard.decoding.max_entropy import Posterior, count_unknowns
from overheard.decoding.measurement import Measurement, from_differences, from_gram
from overheard.decoding.posterior import POOR_FIT
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import add_products
from overheard.programs.networks import network
from overheard.programs.private import client_rows, update_noise
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
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

_COUNT_SD = 0.01  # how exactly the number of members is known, in records
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
class Candidates:
    """Inputs (K, n, d) of the pool's records under each value, labels (n,), and the domain."""

    inputs: Array
    labels: Array
    domain: AttributeDomain | None


def candidates_of(view: View) -> Candidates:
    """The pool as the model would see it, once per value of the attribute where one is unknown."""
    recipe, pool = view.know(LocalTraining).recipe, view.know(CandidatePool)
    labels = recipe.target.encode_values(pool.labels)
    if AttributeDomain not in view.kinds:
        return Candidates(encode(recipe.encoding, pool.records)[None], labels, None)
    domain = view.know(AttributeDomain)
    inputs = [encode(recipe.encoding, pool.records, setting) for setting in domain.settings]
    return Candidates(np.stack(inputs), labels, domain)


def members_reported(link: Link, pool: int) -> int:
    """How many records the client trained on; refuses pools in which nothing can be told apart."""
    reported = np.unique(link.weights[np.isfinite(link.weights)])
    if len(reported) != 1 or reported[0] < 1:
        raise ChooseAnotherAttack(
            "the client reported no number of records, or several; the sum over members cannot be "
            "formed from its mean"
        )
    count = int(reported[0])
    if count > pool:
        raise FixData(
            f"the pool has {pool} records but the client reported {count}: some members are not in "
            "it; give a pool that holds all of the client's records"
        )
    if count == pool:
        raise FixData(
            f"the pool has {pool} records, as many as the client reported: all are members; add "
            "strangers, or ask about the attribute"
        )
    return count


@dataclass(frozen=True)
class PoolSum:
    """Whitened equations about n K indicators "record i is a member with value k"."""

    products: Array
    projections: Array
    energy: float
    equations: int
    values: int

    def left(self, indicators: Array) -> float:
        """Square of what indicators (n K,) leave unexplained, in units of the noise."""
        explained = float(indicators @ (self.products @ indicators))
        return max(self.energy - 2 * float(self.projections @ indicators) + explained, 0.0)

    def measurement(self) -> Measurement:
        """The same as a measurement with candidates absent, value 1, ..., value K."""
        return from_gram(self.products, self.projections, 1.0, candidates=self.values + 1)


def _sums(link: Link, recipe: Recipe, used: NDArray[np.int64], count: int) -> tuple[Array, Array]:
    """Sums of gradients over the members in the rounds used, and their standard deviations."""
    refuse_several_steps(link, recipe)
    rate, heard = rate_of(link, recipe), only(link, used)
    return heard.updates() * count / rate, rounding(heard) * count / rate


def pool_rows(
    link: Link, recipe: Recipe, pool: Candidates, used: NDArray[np.int64], count: int
) -> Measurement:
    """The measurement from gradients that are built: for few parameters."""
    sums, noise = _sums(link, recipe, used, count)
    rows = [
        np.stack(
            [client_rows(recipe, theta, x, pool.labels).explicit() for x in pool.inputs], axis=1
        )
        for theta in link.sent[used].astype(np.float64)
    ]
    present = np.ones((*rows[0].shape[:2], 1))
    return from_differences(
        np.concatenate([*rows, present], axis=2),
        np.append(sums.ravel(), count),
        np.append(noise.ravel(), _COUNT_SD),
    )


def pool_products(
    link: Link, recipe: Recipe, pool: Candidates, used: NDArray[np.int64], count: int
) -> PoolSum:
    """The same from inner products: gradients of dense layers are never built."""
    sums, noise = _sums(link, recipe, used, count)
    values, people = pool.inputs.shape[:2]
    products = np.full((people, values, people, values), _COUNT_SD**-2)
    projections = np.full((people, values), count * _COUNT_SD**-2)
    energy = count**2 * _COUNT_SD**-2
    for theta, total, sd in zip(link.sent[used].astype(np.float64), sums, noise, strict=True):
        precision = 1 / np.mean(sd**2)
        energy += precision * float(total @ total)
        rows = [client_rows(recipe, theta, x, pool.labels) for x in pool.inputs]
        blocks, gradients = rows[0].blocks(total), [one.since() for one in rows]
        for a, one in enumerate(gradients):
            projections[:, a] += precision * one.project(blocks)
        add_products(gradients, float(precision), products)
    n = people * values
    return PoolSum(products.reshape(n, n), projections.ravel(), energy, sums.size + 1, values)


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
        shares, inside = np.ones(1) if pool.domain is None else prior_shares(view), count / people
        prior = np.concatenate([[1 - inside], inside * shares])
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
        flag, fits = "", left <= MOST_LEFT
        notes: dict[str, float | int | str] = {}
        if posterior.method not in PROVEN or not fits:
            scene = only(link, chosen)
            every = np.arange(len(scene))

            def decode(messages: Link) -> Attempt:
                again, misfit = _one_step(messages, recipe, pool, every, count, prior, groups)
                return Attempt(again.probabilities, misfit)

            p = posterior.probabilities
            play = _Play(scene, recipe, pool, prior[1:] / prior[1:].sum(), count, rng)
            tried = rehearse(play.pairs, decode, p, np.tile(prior, (people, 1)), FEW)
            calm, _ = tried.tempered(p)
            posterior = replace(posterior, probabilities=calm)
            flag, fits = tried.flag, tried.fits(left, MOST_LEFT)
            notes = {
                "rehearsed": tried.accuracy,
                "rehearsed_sureness": tried.confidence,
                "rehearsed_misfit": tried.misfit,
            }
        diagnosis: dict[str, float | int | str] = {
            "method": posterior.method,
            "fit": "good" if fits else "poor",
            "misfit": left,
            "rank": posterior.rank,
            "unknowns": posterior.unknowns,
            "chi2": posterior.chi2_per_equation,
            "rounds_used": len(chosen),
            "parameters": recipe.model.size,
            **notes,
        }
        p = posterior.probabilities
        member = np.clip(1 - p[:, 0], 0.0, 1.0)
        flag = flag if fits else UNEXPLAINED
        return membership(p, member, pool.domain, diagnosis, flag, groups)


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
        notes = {
            "method": found.method,
            **found.notes,
            "doubt": _doubt(member),
            "parameters": self.recipe.model.size,
        }
        return membership(p, member, self.pool.domain, notes, found.flag, self.groups)

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


def membership(
    p: Array,
    member: Array,
    domain: AttributeDomain | None,
    notes: Mapping[str, float | int | str],
    flag: str,
    groups: NDArray[np.intp],
) -> Membership:
    """The answer: who is a member (n,); p (n, 1 + K): a stranger, or of which value."""
    attribute = None
    if domain is not None:
        given = p[:, 1:] + 1e-12
        attribute = AttributeValues(given / given.sum(axis=1, keepdims=True), domain.values)
    told = flagged(flag, np.column_stack([1 - member, member]))
    return Membership(member, attribute, {**notes, **told, **tie_diagnostics(groups, p)})
