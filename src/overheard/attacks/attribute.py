"""Which value does an attribute have, for every record; and whose records are these at all?

Candidates of a record are the values of the attribute; where the labels are not known and are
classes, pairs of a value and a class. Of a pool in which not everybody is a member, "absent" is one
more candidate of every record, because non-members add nothing to what the client sends
(decoders.md section 1); the number of members is what the client reported: one more equation. The
rest is the walk of `attacks.pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from overheard.attacks.baselines import imputed_prior, prior_shares
from overheard.attacks.client import client_of, record_count
from overheard.attacks.one_step import OneStepOptions
from overheard.attacks.order_search import dictionary
from overheard.attacks.pipeline import (
    all_known,
    answer,
    decode,
    diagnosed,
    flagged,
    refuse_many,
    refuse_many_values,
    refuse_numbers,
    sees,
)
from overheard.attacks.several_steps import TrainingOptions
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.ties import tie_diagnostics
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.program import Candidates
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    BatchOrder,
    CandidatePool,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
MOST_UNKNOWNS = 10_000
"""Of a pool whose gradients are compared: their Gram matrix takes 800 MB."""


@dataclass(frozen=True)
class MaxEntropy:
    """Reads what the client sends as a linear measurement of the attribute and decodes it: exact
    where the measurement suffices, calibrated where not. Models, gradients, Newton steps, trees and
    tables are read alike; labels that are not known are decoded along, where they are classes.

    Solves: (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ), or release = Σᵢ φᵢ(sᵢ), linear in the one-hot values of s

    Told of a defence it reckons with the noise and finds the scale of clipped updates. What could
    be imputed of each record, where auxiliary records are granted, is its prior; else how common
    each value is at large. What it cannot explain or decide is flagged.

    Settings: ``rounds``, how many of the observed rounds are used (spread evenly; one is tried
    first); of models without hidden layers all are. ``seeds``: how many seeds, from 0, clients may
    have shuffled their mini-batches with are tried besides those that people like (0: none at all);
    where the batch order is granted, that counts. ``labels``: whether known labels are used; if
    not, they are decoded too.
    """

    name: ClassVar[str] = "max_entropy"
    aliases: ClassVar[dict[str, Any]] = {"linear": {}, "joint_decode": {"labels": False}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, PublicRecords, AttributeDomain})
    uses: ClassVar[Kinds] = frozenset(
        {AppliedDefence, AttributePrior, AuxiliaryData, BatchOrder, Labels}
    )

    rounds: int = 100
    seeds: int = 256
    labels: bool = True

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        program, domain = view.know(ClientProgram).program, view.know(AttributeDomain)
        known = dict(view.know(PublicRecords).records.columns)
        size, label = len(view.know(PublicRecords).records), program.target.column
        all_known(view.know(Messages), size)
        refuse_many_values(domain)
        prior, settings = imputed_prior(view), domain.settings
        classes: tuple[Value, ...] = ()
        if not sees(program, domain.columns):
            # what was known before is the answer
            unknowns, everybody = prior[:, 1:].size, np.arange(size)
            before = Posterior(prior, 0.0, 0, unknowns, 0, True, "prior")
            unseen = {"not_an_input": f"the model does not see {domain.column!r}"}
            return answer(view, before, everybody, unseen)
        if self.labels and Labels in view.kinds:
            known[label] = view.know(Labels).values
        elif label in program.columns() and label not in domain.columns:
            classes = program.target.classes
            if not classes:
                raise ChooseAnotherAttack(
                    f"the labels {label!r} are not known, and labels that are numbers cannot be "
                    "listed as candidates; works for classes"
                )
            refuse_many(
                size * (len(settings) * len(classes) - 1),
                "audit a smaller client or grant the labels",
            )
            settings = tuple({**value, label: each} for value in settings for each in classes)
            prior = np.repeat(prior, len(classes), axis=1) / len(classes)
        order = view.know(BatchOrder) if BatchOrder in view.kinds else None
        if order is None and self.seeds:
            order = dictionary(self.seeds)
        candidates = Candidates(Records(known), settings, size, domain.spread)
        client = client_of(view, candidates, prior, order)
        result = decode(client, rng, OneStepOptions(rounds=self.rounds))
        if not classes:
            return answer(view, result, client.ties)
        # value-major: all classes of the first value, then of the next
        joint = result.probabilities.reshape(size, len(domain.settings), len(classes))
        made = answer(view, replace(result, probabilities=joint.sum(axis=2)), client.ties)
        return replace(made, labels=AttributeValues(joint.sum(axis=1), classes))


@dataclass(frozen=True)
class CandidateDecode:
    """Reads what the client sends as a sum over the pool in which non-members add nothing, and
    solves for who is in the sum and with which value of the attribute: exact where the messages
    have at least as many independent numbers as the pool has candidates, calibrated where not.
    Mini-batches and several local epochs are simulated to learn what chance does to the sum.

    Solves: (θ − θ′) m / rate = Σᵢ Σᵥ zᵢᵥ gᵢ(v) over the pool; zᵢ = 0 for non-members

    Settings: ``rounds``, how many of the observed rounds may be used (the first alone is tried
        first).
    """

    name: ClassVar[str] = "candidate_decode"
    aliases: ClassVar[dict[str, Any]] = {"linear_membership": {}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "membership"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, CandidatePool})
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
    unknown; and its prior probability (n, 1 + K)."""
    known, settings = pool_of(view)
    size, shares = len(known), np.ones(1)
    if AttributeDomain in view.kinds:
        refuse_numbers(view.know(AttributeDomain))
        shares = prior_shares(view)
    count = members_reported(view, size)
    if isinstance(view.know(ClientProgram).program, Recipe):
        refuse_many(len(settings) * size, "audit a smaller pool", MOST_UNKNOWNS)
    inside = min(max(count / size, 0.5 / size), 1 - 0.5 / size)
    prior = np.tile(np.concatenate([[1 - inside], inside * shares]), (size, 1))
    return Candidates(known, (None, *settings), count), prior


def pool_of(view: View) -> tuple[Records, tuple[Mapping[str, Value], ...]]:
    """The pool's records with their labels, and what the unknown attribute may be set to."""
    pool, program = view.know(CandidatePool), view.know(ClientProgram).program
    known = Records({**pool.records.columns, program.target.column: pool.labels})
    return known, view.know(AttributeDomain).settings if AttributeDomain in view.kinds else ({},)


def members_reported(view: View, pool: int) -> int:
    """How many records the client has; refuses pools in which nothing can be told apart. A sum over
    records needs no number, a mean does."""
    messages = view.know(Messages)
    if not isinstance(view.know(ClientProgram).program, Recipe):
        reported = messages.weights[np.isfinite(messages.weights)]
        return int(reported.max(initial=0)) or pool // 2
    count = record_count(messages, "the sum that a mean stands for")
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
