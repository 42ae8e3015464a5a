"""Which value does an attribute have, for every record of one client?

Candidates of a record are the values of the attribute; where the labels are not known and are
classes, pairs of a value and a class. The rest is the walk of `attacks.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.baselines import imputed_prior
from overheard.attacks.client import client_of
from overheard.attacks.one_step import OneStepOptions
from overheard.attacks.order_search import dictionary
from overheard.attacks.pipeline import (
    all_known,
    answer,
    decode,
    refuse_many,
    refuse_many_values,
    sees,
)
from overheard.decoding.max_entropy import Posterior
from overheard.errors import ChooseAnotherAttack
from overheard.programs.program import Candidates
from overheard.programs.records import Records, Value
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    BatchOrder,
    Labels,
    Messages,
    PublicRecords,
    Training,
)
from overheard.transcript.view import Kinds, View


@dataclass(frozen=True)
class MaxEntropy:
    """Reads what the client sends as a linear measurement of the attribute and decodes it: exact
    where the measurement suffices, calibrated where not. Models, gradients, Newton steps, trees and
    tables are read alike; labels that are not known are decoded along, where they are classes.

    Solves: (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ), or release = Σᵢ φᵢ(sᵢ), linear in the one-hot values of s

    Told of a defence it reckons with the noise and finds the scale of clipped updates. What could
    be imputed of each record, where auxiliary records are granted, is its prior; else how common
    each value is at large. What it cannot explain or decide is flagged.

    Settings: ``rounds``, how many of the rounds heard are used (spread evenly; one is tried first);
    of models without hidden layers all are. ``seeds``: how many seeds, from 0, clients may have
    shuffled their mini-batches with are tried besides those that people like (0: none at all);
    where the batch order is granted, that counts. ``labels``: whether known labels are used; if
    not, they are decoded too.
    """

    name: ClassVar[str] = "max_entropy"
    aliases: ClassVar[dict[str, Any]] = {"linear": {}, "joint_decode": {"labels": False}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = frozenset({Messages, Training, PublicRecords, AttributeDomain})
    uses: ClassVar[Kinds] = frozenset(
        {AppliedDefence, AttributePrior, AuxiliaryData, BatchOrder, Labels}
    )

    rounds: int = 100
    seeds: int = 256
    labels: bool = True

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        program, domain = view.know(Training).program, view.know(AttributeDomain)
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
        found = decode(client, rng, OneStepOptions(rounds=self.rounds))
        if not classes:
            return answer(view, found, client.ties)
        # value-major: all classes of the first value, then of the next
        joint = found.probabilities.reshape(size, len(domain.settings), len(classes))
        made = answer(view, replace(found, probabilities=joint.sum(axis=2)), client.ties)
        return replace(made, labels=AttributeValues(joint.sum(axis=1), classes))
