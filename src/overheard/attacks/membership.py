"""Who of a pool is among the client's records, and with which value of an attribute?

Whoever is not among them adds nothing to what the client sends, so "absent" is one more candidate
of every record of the pool (decoders.md section 1). The number of members is what the client
reported: one more equation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from overheard.attacks.baselines import prior_shares
from overheard.attacks.client import client_of
from overheard.attacks.one_step import OneStepOptions
from overheard.attacks.pipeline import decode, diagnosed, flagged, refuse_numbers
from overheard.attacks.several_steps import TrainingOptions
from overheard.decoding.ties import tie_diagnostics
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.program import Candidates
from overheard.programs.records import Records, Value
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    Link,
    Messages,
    Training,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]

MOST_UNKNOWNS = 10_000
"""Of a pool whose gradients are compared: their Gram matrix takes 800 MB."""


@dataclass(frozen=True)
class CandidateDecode:
    """Reads what the client sends as a sum over the pool in which strangers add nothing, and solves
    for who is in the sum and with which value of the attribute: exact where the messages have at
    least as many independent numbers as the pool has candidates, calibrated where not. Mini-batches
    and several local epochs are simulated to learn what chance does to the sum.

    Solves: (θ − θ′) m / rate = Σᵢ Σᵥ zᵢᵥ gᵢ(v) over the pool; zᵢ = 0 for strangers

    Settings: ``rounds``, how many of the rounds heard may be used (the first alone is tried first).
    """

    name: ClassVar[str] = "candidate_decode"
    aliases: ClassVar[dict[str, Any]] = {"linear_membership": {}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "membership"
    needs: ClassVar[Kinds] = frozenset({Messages, Training, CandidatePool})
    uses: ClassVar[Kinds] = frozenset({AttributeDomain, AttributePrior, AppliedDefence})

    rounds: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        candidates, prior = pool_candidates(view)
        client = client_of(view, candidates, prior)
        few = TrainingOptions(fewest=1, most=self.rounds)
        posterior = decode(client, rng, OneStepOptions(rounds=self.rounds), few)
        p = posterior.probabilities
        member = np.clip(1 - p[:, 0], 0.0, 1.0)
        if posterior.method == "direct_response":  # simulated, so that the number was no equation
            member = counted(member, candidates.members)
        notes = diagnosed(posterior)
        notes["doubt"] = float(np.minimum(member, 1 - member).mean())
        notes |= flagged(posterior.flag, np.column_stack([1 - member, member]))
        attribute = None
        if AttributeDomain in view.kinds:
            given = p[:, 1:] + 1e-12
            values = view.know(AttributeDomain).values
            attribute = AttributeValues(given / given.sum(axis=1, keepdims=True), values)
        return Membership(member, attribute, {**notes, **tie_diagnostics(client.ties, p)})


def pool_candidates(view: View) -> tuple[Candidates, Array]:
    """Of everybody in the pool: absent, or present with each value of the attribute where one is
    unknown; and how likely that is beforehand (n, 1 + K)."""
    known, settings = pool_of(view)
    size, shares = len(known), np.ones(1)
    if AttributeDomain in view.kinds:
        refuse_numbers(view.know(AttributeDomain))
        shares = prior_shares(view)
    count = members_reported(view, size)
    if isinstance(view.know(Messages), Link) and len(settings) * size > MOST_UNKNOWNS:
        raise ChooseAnotherAttack(
            f"{size} candidate records with {len(settings)} values each are more than "
            f"{MOST_UNKNOWNS} unknowns; audit a smaller pool"
        )
    inside = min(max(count / size, 0.5 / size), 1 - 0.5 / size)
    prior = np.tile(np.concatenate([[1 - inside], inside * shares]), (size, 1))
    return Candidates(known, (None, *settings), count), prior


def pool_of(view: View) -> tuple[Records, tuple[Mapping[str, Value], ...]]:
    """The pool's records with their labels, and what the unknown attribute may be set to."""
    pool, program = view.know(CandidatePool), view.know(Training).program
    known = Records({**pool.records.columns, program.target.column: pool.labels})
    return known, view.know(AttributeDomain).settings if AttributeDomain in view.kinds else ({},)


def members_reported(view: View, pool: int) -> int:
    """How many records the client has; refuses pools in which nothing can be told apart. A sum over
    records needs no number, a mean does."""
    messages = view.know(Messages)
    reported = np.unique(messages.weights[np.isfinite(messages.weights)])
    if not isinstance(messages, Link):
        return int(reported[-1]) if len(reported) else pool // 2
    if len(reported) != 1 or reported[0] < 1:
        raise ChooseAnotherAttack(
            "the client reported no number of records, or several; the sum over members cannot be "
            "formed from its mean"
        )
    count = int(reported[0])
    if count >= pool:
        raise FixData(
            f"the pool has {pool} records and the client reported {count}; give a pool that holds "
            "all of the client's records and others too, or ask about the attribute"
        )
    return count


def counted(probabilities: Array, members: int) -> Array:
    """Probabilities (n,) of being a member that add up to the number of members: everybody's odds
    are changed by the same factor."""
    odds = logit(np.clip(probabilities, 1e-12, 1 - 1e-12))
    ends = -odds.max() - 50.0, -odds.min() + 50.0
    shift = brentq(lambda by: float(expit(odds + by).sum()) - members, *ends)
    return np.asarray(expit(odds + shift))
