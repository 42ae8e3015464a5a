"""The prior of every decoder: imputed probabilities where they are granted."""

from __future__ import annotations

import numpy as np
import pytest
from federations import view_of

from overheard.attacks import baselines
from overheard.attacks.baselines import imputed_prior
from overheard.errors import FixData
from overheard.programs.records import Records
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Labels,
    PublicRecords,
)
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View


@pytest.fixture
def granted(federate):
    """A client whose model tells little, and records of two other clients, with their values."""
    recording = federate(
        {"name": "mlp", "hidden": [1]}, clients=3, people=80, rounds=1, learning_rate=0.1
    )
    truth, name = recording.truth(), recording.clients[0]
    view = view_of(recording, client=name, threat=EAVESDROPPER.without(AuxiliaryData))
    others = [truth[c] for c in recording.clients[1:]]
    columns = {c: np.concatenate([o[c] for o in others]) for c in others[0].columns}
    labels = columns.pop("y")
    return view, view.knowing(AuxiliaryData(Records(columns), labels)), truth[name]["s"]


def right(p: np.ndarray, view: View, truth: np.ndarray) -> float:
    return float(np.mean(np.array(view.know(AttributeDomain).values)[p.argmax(axis=1)] == truth))


def test_without_records_of_others_it_is_how_common_values_are(granted) -> None:
    view, _, truth = granted
    given = view.knowing(AttributePrior((0.25, 0.75)))
    assert np.allclose(imputed_prior(given), [[0.25, 0.75]] * len(truth), atol=1e-5)
    with pytest.raises(FixData, match="3 shares for 2 values"):
        imputed_prior(view.knowing(AttributePrior((0.2, 0.3, 0.5))))


def test_records_of_others_tell_and_never_everything(granted) -> None:
    _, view, truth = granted
    p = imputed_prior(view)
    assert np.allclose(p.sum(axis=1), 1)
    assert p.min() > 1e-4
    assert right(p, view, truth) > max(np.mean(truth == v) for v in np.unique(truth)) + 0.05


def test_labels_count_where_they_are_known(granted) -> None:
    _, view, _ = granted
    labels = view.know(Labels).values
    turned = view.knowing(Labels(labels[::-1].copy()))
    assert not np.allclose(imputed_prior(view), imputed_prior(turned))


def test_records_alike_are_imputed_alike(granted) -> None:
    _, view, _ = granted
    rows = np.array([0, 1, 0])
    records = view.know(PublicRecords).records.take(rows)
    p = imputed_prior(view.knowing(PublicRecords(records), Labels(view.know(Labels).values[rows])))
    assert np.allclose(p[0], p[2])


def test_what_was_learned_is_learned_once(granted, monkeypatch) -> None:
    """By all attacks that know the same records."""
    _, view, _ = granted
    made, fit = [], baselines._imputation
    monkeypatch.setattr(baselines, "_imputation", lambda *known: made.append(1) or fit(*known))
    view.know(AuxiliaryData).derived.clear()
    first = imputed_prior(view)
    assert np.array_equal(first, imputed_prior(view.narrowed(view.kinds)))
    assert len(made) == 1
