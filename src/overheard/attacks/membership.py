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
from overheard.attacks.attribute.measurement import dense_measurement, too_long
from overheard.attacks.by_simulation import Answer
from overheard.attacks.front import flagged
from overheard.attacks.simulated_clients import Attempt, judged, player
from overheard.attacks.stranger import prior_shares
from overheard.attacks.wire import heard, one_step, only, spread
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.ties import decode_tied, same_rows, tie_diagnostics
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.networks import network
from overheard.programs.private import update_noise
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode, encode_each
from overheard.programs.simulated import Candidates
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

MOST_UNKNOWNS = 10_000  # of a pool: its Gram matrix takes 800 MB
MOST_LEFT = 100.0
"""Mean square of what an answer leaves of an exact sum, in units of its noise, that is let pass."""
UNEXPLAINED = (
    "no choice of members of this pool explains the updates; members are missing from the pool, "
    "or model, recipe or noise are not as declared"
)
PROVEN = ("counts", "linear_solve", "enumeration")
SHORT = 0.5
"""Length of an update, in units of simulated clients', below which (or above one over which) it was
scaled, or another rule made it: fewer members would explain it, but their number is known."""
CLEAR = 0.02
"""Mean doubt about membership up to which one round suffices."""


def pool_inputs(view: View) -> tuple[Array, Array]:
    """Inputs (K, n, d) of the pool's records as the model would see them, once per value of the
    attribute where one is unknown, and labels (n,)."""
    recipe, pool = view.know(LocalTraining).recipe, view.know(CandidatePool)
    labels = recipe.target.encode_values(pool.labels)
    if AttributeDomain not in view.kinds:
        return encode(recipe.encoding, pool.records)[None], labels
    return encode_each(recipe.encoding, pool.records, view.know(AttributeDomain).settings), labels


def pool_candidates(inputs: Array, labels: Array, members: int) -> Candidates:
    """Absent, then each value: "absent" is one more candidate of every record."""
    whole = np.concatenate([np.zeros_like(inputs[:1]), inputs])
    present = np.arange(len(whole)) > 0
    return Candidates(whole, np.broadcast_to(labels, whole.shape[:2]), present, members)


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
        inputs, labels = pool_inputs(view)
        values, people, _ = inputs.shape
        count = members_reported(link, people)
        # private steps say in the recipe how much noise they add
        told = float(np.hypot(link.noise_sd, update_noise(recipe, count)))
        link = replace(link, noise_sd=told)
        if values * people > MOST_UNKNOWNS:
            raise ChooseAnotherAttack(
                f"{people} candidate records with {values} values each are more than "
                f"{MOST_UNKNOWNS} unknowns; audit a smaller pool"
            )
        shares = prior_shares(view) if AttributeDomain in view.kinds else np.ones(1)
        inside = count / people
        prior = np.tile(np.concatenate([[1 - inside], inside * shares]), (people, 1))
        groups = same_rows(np.column_stack([inputs[0], labels]))
        trained = recipe if link.gradients else as_trained(recipe, count)
        candidates = pool_candidates(inputs, labels, count)
        client = Client(link, trained, candidates, prior, groups)
        if one_step(link, trained) and _by_rows(client):
            return _one_step(view, client, self.rounds, rng)
        few = only(link, np.arange(min(self.rounds, len(link))))
        return _several_steps(view, replace(client, link=few), rng)


def _by_rows(client: Client) -> bool:
    """Are members found by their gradients, one by one?"""
    net, theta = network(client.recipe), client.link.sent[0].astype(np.float64)
    if net.factored:
        return True
    return not (net.chance or net.mixes) and not too_long(client.recipe, theta, client.candidates)


def _one_step(view: View, client: Client, rounds: int, rng: np.random.Generator) -> Membership:
    """One full-batch step a round: the equations are exact. The first round alone is tried first.

    ``misfit``: the mean square of what the answer leaves of the update, in units of the noise.
    """
    link, recipe, prior = client.link, client.recipe, client.prior

    def decoded(messages: Link, most: int) -> tuple[Posterior, float]:
        measured = dense_measurement(messages, recipe, client.candidates, most)
        found = decode_tied(measured, client.ties, prior)
        return found, measured.mean_square(found.probabilities)

    used = 1
    posterior, left = decoded(link, used)
    if posterior.method not in PROVEN and min(rounds, len(link)) > 1:
        used = min(rounds, len(link))
        posterior, left = decoded(link, used)
    flag, fits, notes = "", left <= MOST_LEFT, {}
    if posterior.method not in PROVEN or not fits:
        scene = only(link, spread(len(link), used))

        def decode(messages: Link) -> Attempt:
            again, misfit = decoded(messages, used)
            return Attempt(again.probabilities, misfit)

        play = player(scene, recipe, client.candidates, rng)
        tried = judged(play, decode, posterior.probabilities, prior)
        believed = tried.calibration.applied(posterior.probabilities)
        posterior, notes = replace(posterior, probabilities=believed), tried.calibration.notes
        flag, fits = tried.flag, tried.fits(left, MOST_LEFT)
    diagnosis: dict[str, float | int | str] = {
        "method": posterior.method,
        "fit": "good" if fits else "poor",
        "misfit": left,
        "rank": posterior.rank,
        "unknowns": posterior.unknowns,
        "chi2": posterior.chi2_per_equation,
        "rounds_used": used,
        "parameters": recipe.model.size,
        **notes,
    }
    p = posterior.probabilities
    member = np.clip(1 - p[:, 0], 0.0, 1.0)
    return membership(view, p, member, diagnosis, flag if fits else UNEXPLAINED, client.ties)


def _several_steps(view: View, client: Client, rng: np.random.Generator) -> Membership:
    """Several local steps, of any rule and any layers: the first round alone, and more if it leaves
    doubt."""
    found = _decoded(replace(client, link=only(client.link, np.arange(1))), rng)
    sure = not found.flag and _doubt(found.probabilities[:, 0]) < CLEAR
    if len(client.link) > 1 and not sure:
        found = _decoded(client, rng)
    p = found.probabilities
    member = counted(1 - p[:, 0], client.candidates.members)
    notes = {
        "method": found.method,
        **found.notes,
        "doubt": _doubt(member),
        "parameters": client.recipe.model.size,
    }
    return membership(view, p, member, notes, found.flag, client.ties)


def _decoded(client: Client, rng: np.random.Generator) -> Answer:
    found = decode_training(client, rng)
    size = lengths(client, rng) if not client.link.noise_sd else np.ones(1)
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


def membership(
    view: View,
    p: Array,
    member: Array,
    notes: Mapping[str, float | int | str],
    flag: str,
    groups: NDArray[np.intp],
) -> Membership:
    """The answer: who is a member (n,); p (n, 1 + K): a stranger, or of which value."""
    attribute = None
    if AttributeDomain in view.kinds:
        given = p[:, 1:] + 1e-12
        values = view.know(AttributeDomain).values
        attribute = AttributeValues(given / given.sum(axis=1, keepdims=True), values)
    told = flagged(flag, np.column_stack([1 - member, member]))
    return Membership(member, attribute, {**notes, **told, **tie_diagnostics(groups, p)})
