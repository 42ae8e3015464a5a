"""The same people in several federations: what do the recordings tell together?

Each federation's messages are a linear measurement of its own people. Who knows which people are
the same writes all measurements down for the union of the people, a person adding nothing where
they are not, and solves them as one: equations add up, unknowns do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.max_entropy import measure, takes_several_steps
from overheard.attacks.front import answer, candidate_inputs, labels_of, refuse_unseen
from overheard.attacks.stranger import beforehand
from overheard.attacks.wire import heard
from overheard.decoding.counts import decode_tied, same_rows
from overheard.decoding.measurement import Measurement, stack
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import AttributeDomain, LocalTraining
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Heard:
    """One client of one federation, and an id for each of its records that means the same person
    in every federation."""

    view: View
    people: NDArray[Any]


def decode_together(clients: Sequence[Heard], rounds: int = 100) -> list[AttributeValues]:
    """Each client's values, decoded from what all of them sent.

    All ask for the same attribute, and each takes one full-batch step a round or fits linear least
    squares. Of a person in several federations the prior is the surest of what is known beforehand.
    """
    values = {client.view.know(AttributeDomain).values for client in clients}
    if len(values) != 1:
        raise FixData(f"the federations ask for {len(values)} different sets of values; give one")
    for client in clients:
        _check(client)
    everybody, places = np.unique(
        np.concatenate([client.people for client in clients]), return_inverse=True
    )
    own = np.split(places, np.cumsum([len(c.people) for c in clients])[:-1])
    prior = np.full((len(everybody), len(*values)), np.nan)
    profile, measured = [], []
    for client, rows in zip(clients, own, strict=True):
        told = beforehand(client.view)
        surer = ~(prior[rows].max(axis=1) >= told.max(axis=1))
        prior[rows[surer]] = told[surer]
        public = np.column_stack([candidate_inputs(client.view)[0], labels_of(client.view)])
        table = np.full((len(everybody), public.shape[1] + 1), -1.0)
        table[rows] = np.column_stack([public, np.ones(len(rows))])
        profile.append(table)
        measured.append(_placed(measure(client.view, rounds)[0], rows, len(everybody)))
    ties = same_rows(np.column_stack([*profile, prior]))
    posterior = decode_tied(stack(measured), ties, prior)
    notes = {"federations": len(clients), "people": len(everybody)}
    mine = [replace(posterior, probabilities=posterior.probabilities[rows]) for rows in own]
    return [
        answer(client.view, one, ties[rows], notes)
        for client, one, rows in zip(clients, mine, own, strict=True)
    ]


def _check(client: Heard) -> None:
    view = client.view
    refuse_unseen(view)
    recipe = view.know(LocalTraining).recipe
    if takes_several_steps(heard(view), recipe) or view.know(AttributeDomain).spread:
        raise ChooseAnotherAttack(
            "reads one full-batch step a round of an attribute with few values"
        )
    known = len(labels_of(view))
    if len(client.people) != known or len(np.unique(client.people)) != known:
        raise FixData(
            f"{len(client.people)} ids for {known} records of {view.client!r}; give each its own"
        )


def _placed(measurement: Measurement, rows: NDArray[np.intp], people: int) -> Measurement:
    """The measurement for all people: those of other federations add nothing."""
    features = np.zeros((people, *measurement.features.shape[1:]))
    features[rows] = measurement.features
    return replace(measurement, features=features)
