"""What a record may be of which only a part is known."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.attribute.partial_decode import LEARNED, REALISED, imagined, people
from overheard.evaluation.rungs import with_strangers
from overheard.transcript.knowledge import AuxiliaryData, Labels, PublicRecords
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER


@pytest.fixture
def view(federate):
    model = {"name": "mlp", "hidden": [8]}
    recording = federate(model, clients=4, people=50, columns=6, rounds=1, participation=1.0)
    return with_strangers(recording, observe(recording, EAVESDROPPER, attribute("s"), "0"))


def test_what_is_known_is_as_it_is(view):
    may_be = imagined(view, np.random.default_rng(0))
    assert may_be.exact
    assert may_be.inputs.shape[:3] == (2, 1, 50)
    assert np.array_equal(may_be.labels[0, 0], may_be.labels[1, 0])
    assert np.allclose(may_be.prior.sum(axis=1), 1)
    realised, labels, states = may_be.realised
    assert states.shape == labels.shape == (REALISED, 50)
    assert np.array_equal(realised, may_be.inputs[states, 0, np.arange(50)])


def test_missing_columns_come_from_donors_with_the_value(view):
    """A donor is an auxiliary record of that value: each completion's missing cells are one's."""
    records, others = view.know(PublicRecords).records, view.know(AuxiliaryData)
    fewer = view.knowing(PublicRecords(records.without("x4", "x5")))
    way = imagined(fewer, np.random.default_rng(0))
    assert not way.exact
    assert way.inputs.shape[:3] == (2, LEARNED, 50)
    whole = imagined(view, np.random.default_rng(0))
    known = [
        j
        for j in range(way.inputs.shape[3])
        if np.allclose(way.inputs[0, :, :, j], whole.inputs[0, 0, :, j])
    ]
    theirs = whole.strangers[0]
    missing = [j for j in range(theirs.shape[1]) if j not in known]
    for value in (0, 1):
        donors = theirs[others.records["s"] == value][:, missing]
        cells = way.inputs[value][..., missing].reshape(-1, len(missing))
        rows = {tuple(row) for row in np.round(donors, 9)}
        assert {tuple(row) for row in np.round(cells, 9)} <= rows


def test_labels_may_be_missing(view):
    way = imagined(view.narrowed(view.kinds - {Labels}), np.random.default_rng(0))
    assert len(np.unique(way.labels[:, :, 0])) > 2


def test_sums_of_the_imagined_are_the_message_in_the_mean(view):
    """What a simulated client sends is the expected message, its secrets and deviations."""
    fewer = view.knowing(PublicRecords(view.know(PublicRecords).records.without("x5")))
    may_be = imagined(fewer, np.random.default_rng(0))
    made = people(may_be, 20, np.random.default_rng(1))
    assert made.chances.sum() == pytest.approx(1)
    assert made.sums.expected.sum() == pytest.approx(70)
    assert np.allclose(made.sums.differences.sum(axis=1), 0)
    assert np.allclose(made.sums.heldout.sum(axis=1), 0)
    assert np.allclose(made.sums.clients.sum(axis=1), 70)
    assert made.secrets.shape == (4, 50)
    assert made.prior.shape == (50, 2)


def test_whoever_is_as_stated_deviates_by_nothing(view):
    made = people(imagined(view, np.random.default_rng(0)), 0, np.random.default_rng(0))
    assert made.sums.suppressed.shape[0] == made.sums.heldout.shape[0] == 0
