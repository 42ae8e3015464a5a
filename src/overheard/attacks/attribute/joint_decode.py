"""Attribute and label at once: the candidates of a record are pairs of a value and a class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.attribute.measurement import dense_measurement
from overheard.attacks.front import (
    all_known,
    answer,
    candidate_inputs,
    refuse_many,
    refuse_unseen,
)
from overheard.attacks.simulated_clients import UNLIKE, Attempt, judged, player
from overheard.attacks.stranger import beforehand
from overheard.attacks.wire import only, refuse_several_steps, spread
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.ties import decode_tied, linear_solve, same_rows
from overheard.errors import ChooseAnotherAttack
from overheard.programs.simulated import Candidates
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

PROVEN = ("counts", "linear_solve", "enumeration")
GOOD_FIT = 4.0
"""Mean square of what an answer leaves, in units of the noise, that is called good."""


@dataclass(frozen=True)
class JointDecode:
    """Decodes the attribute without knowing the labels: every pair of a value and a class is a
    candidate, and the update is as linear in these as in the values alone. Returns the classes too.

    Settings: ``rounds``, how many of the rounds heard are used (spread evenly).
    """

    name: ClassVar[str] = "joint_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributePrior, AuxiliaryData})

    rounds: int = 1

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        domain, people = view.know(AttributeDomain), len(view.know(PublicRecords).records)
        classes = recipe.target.classes
        if not classes:
            raise ChooseAnotherAttack(
                "labels are numbers here, so they cannot be listed as candidates; works for classes"
            )
        refuse_several_steps(link, recipe)
        all_known(link, people)
        refuse_unseen(view)
        values, many = len(domain.values), len(classes)
        remedy = "audit a smaller client or grant the labels"
        refuse_many(people * (values * many - 1), remedy)
        inputs = candidate_inputs(view)
        # value-major: all classes of the first value, then of the next
        labels = np.tile(np.arange(many, dtype=np.float64), values)
        candidates = Candidates(
            np.repeat(inputs, many, axis=0),
            np.repeat(labels[:, None], people, axis=1),
            np.ones(values * many, dtype=bool),
            people,
        )
        ties = same_rows(inputs[0])
        priors = np.repeat(beforehand(view), many, axis=1) / many

        def decoded(messages: Link) -> Posterior:
            # inner products are made in a moment and mostly suffice; the answer says whether so
            heard = (messages, recipe, candidates, self.rounds)
            solved = linear_solve(dense_measurement(*heard, products_only=True), ties, priors)
            return solved or decode_tied(dense_measurement(*heard), ties, priors)

        def decode(messages: Link) -> Attempt:
            again = decoded(messages)
            return Attempt(again.probabilities, again.chi2_per_equation)

        posterior = decoded(link)
        flag, noted = posterior.flag, {}
        if posterior.method not in PROVEN:
            play = player(only(link, spread(len(link), self.rounds)), recipe, candidates, rng)
            tried = judged(play, decode, posterior.probabilities, priors)
            believed = tried.calibration.applied(posterior.probabilities)
            posterior, noted = replace(posterior, probabilities=believed), tried.calibration.notes
            # what the solver doubts of itself, and what it leaves, is held against simulated ones
            flag = tried.flag
            if not tried.fits(posterior.chi2_per_equation, GOOD_FIT):
                flag = UNLIKE
        joint = posterior.probabilities.reshape(people, values, many)
        told = replace(posterior, probabilities=joint.sum(axis=2), flag=flag)
        return replace(
            answer(view, told, ties, noted), labels=AttributeValues(joint.sum(axis=1), classes)
        )
