"""What a record may be of which only a part is known."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.completions import LEARNED, LISTED, REALISED, imagined
from overheard.attacks.deviations import people
from overheard.evaluation.rungs import with_strangers
from overheard.transcript.knowledge import AuxiliaryData, Labels, PublicRecords, WrongCells
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from tests.attacks.attribute.test_partial import by_class


@pytest.fixture
def view(federate):
    model = {"name": "mlp", "hidden": [8]}
    recording = federate(model, clients=4, people=50, columns=6, rounds=1, participation=1.0)
    return with_strangers(recording, observe(recording, EAVESDROPPER, attribute("s"), "0"))


def test_what_is_known_is_as_it_is(view):
    may_be = imagined(view, np.random.default_rng(0))
    (way,) = may_be.ways  # labels are numbers: nobody doubts them unless told to
    assert way.inputs.shape[:3] == (2, 1, 50)
    assert np.array_equal(way.labels[0, 0], way.labels[1, 0])
    assert np.allclose(may_be.prior.sum(axis=1), 1)
    assert may_be.realised.exact
    here = np.arange(50)
    for inputs, state in zip(may_be.realised.inputs, may_be.realised.states, strict=True):
        assert np.array_equal(inputs, way.inputs[state, 0, here])


def test_missing_columns_come_from_donors_with_the_value(view):
    """A donor is an auxiliary record of that value: each completion's missing cells are one's."""
    records, others = view.know(PublicRecords).records, view.know(AuxiliaryData)
    fewer = view.knowing(PublicRecords(records.without("x4", "x5")))
    (way,) = imagined(fewer, np.random.default_rng(0)).ways
    assert way.inputs.shape[:3] == (2, LEARNED, 50)
    whole = imagined(view, np.random.default_rng(0))
    known = [
        j
        for j in range(way.inputs.shape[3])
        if np.allclose(way.inputs[0, :, :, j], whole.ways[0].inputs[0, 0, :, j])
    ]
    theirs = whole.strangers[0]
    missing = [j for j in range(theirs.shape[1]) if j not in known]
    for value in (0, 1):
        donors = theirs[others.records["s"] == value][:, missing]
        cells = way.inputs[value][..., missing].reshape(-1, len(missing))
        rows = {tuple(row) for row in np.round(donors, 9)}
        assert {tuple(row) for row in np.round(cells, 9)} <= rows


def test_wrong_cells_are_listed_with_their_values(view):
    """Every way but the first has one column of everybody's changed, to a value that others have;
    a record's own value is none."""
    may_be = imagined(view.knowing(WrongCells(0.1)), np.random.default_rng(0))
    stated, *others = may_be.ways
    records = view.know(PublicRecords).records
    columns = [c for c in records.columns if c != "s"]
    assert 6 * len(columns) <= len(others) <= LISTED + len(columns)
    assert np.allclose(may_be.prior.sum(axis=1), 1)
    for way in others:
        changed = (way.inputs != stated.inputs).any(axis=(0, 1))
        assert (changed.sum(axis=1) <= 1).all()
        assert np.array_equal(way.prior.sum(axis=1) > 0, changed.any(axis=1))
    odds = sum(way.prior.sum(axis=1) for way in others) / stated.prior.sum(axis=1)
    assert odds.mean() == pytest.approx(len(columns) / 9, rel=0.1)  # each column's are 0.1 to 0.9


def test_what_is_realised_is_nearest_to_its_candidate(view):
    may_be = imagined(view.knowing(WrongCells(0.05)), np.random.default_rng(0))
    real, here = may_be.realised, np.arange(50)
    assert real.states.shape == (REALISED, 50)
    assert not real.exact
    value, way = np.divmod(real.states, len(may_be.ways))
    listed = np.array([one.inputs[:, 0] for one in may_be.ways])
    apart = ((listed[way, value, here] - real.inputs) ** 2).sum(axis=2)
    assert (apart <= ((listed[0, value, here] - real.inputs) ** 2).sum(axis=2)).all()
    assert 0.1 < (way > 0).mean() < 0.4  # of six columns, one in twenty


def test_labels_of_classes_may_be_wrong_untold(federate):
    recording = federate({"name": "mlp", "hidden": [8]}, by_class, clients=4, people=50, rounds=1)
    view = with_strangers(recording, observe(recording, EAVESDROPPER, attribute("s"), "0"))
    told = imagined(view.knowing(WrongCells(0.0, 0.1)), np.random.default_rng(0)).ways
    silent = imagined(view, np.random.default_rng(0)).ways
    assert [way.untold for way in silent] == [False, True, True]
    assert not any(way.untold for way in told)
    wrong = [1 - ways[0].prior.sum(axis=1).mean() for ways in (told, silent)]
    assert wrong == pytest.approx([0.05, 0.005], abs=0.02)


def test_labels_may_be_missing(view):
    (way,) = imagined(view.narrowed(view.kinds - {Labels}), np.random.default_rng(0)).ways
    assert len(np.unique(way.labels[:, :, 0])) > 2


def test_sums_of_the_imagined_are_the_message_in_the_mean(view):
    """What a simulated client sends is the expected message, its secrets and deviations."""
    may_be = imagined(view.knowing(WrongCells(0.1)), np.random.default_rng(0))
    made = people(may_be, 20, np.random.default_rng(1))
    assert made.chances.sum() == pytest.approx(1)
    assert made.sums.expected.sum() == pytest.approx(70)
    assert np.allclose(made.sums.differences.sum(axis=1), 0)
    assert np.allclose(made.sums.heldout.sum(axis=1), 0)
    assert np.allclose(made.sums.clients.sum(axis=1), 70)
    assert made.secrets.shape == (4, 50)
    ways = len(may_be.ways)
    assert made.prior.shape == (50, 2 * ways)
    assert made.prior[:, ways] == pytest.approx(may_be.ways[0].prior[:, 1])
    assert np.array_equal(made.sums.asked, np.arange(50) * (2 * ways - 1) + ways - 1)


def test_whoever_is_as_stated_deviates_by_nothing(view):
    made = people(imagined(view, np.random.default_rng(0)), 0, np.random.default_rng(0))
    assert made.sums.suppressed.shape[0] == made.sums.heldout.shape[0] == 0
