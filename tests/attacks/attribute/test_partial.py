"""Less knowledge: records, columns or labels unknown, records alike, very many records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import digits, view_of
from generated import by_class

from overheard import Recording, audit, launch, threat_named
from overheard.attacks import one_step
from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.partial import PartialDecode, PartialOptions, imagined
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.evaluation.ladder import with_others
from overheard.evaluation.metrics import attribute_hits
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

WIDE = {"name": "mlp", "hidden": [48]}
ONE = {"rounds": 1, "participation": 1.0, "clients": 1}


def look(recording, threat=EAVESDROPPER):
    return view_of(recording, threat=threat), recording.truth()["0"]


def test_known_records_decoded_against_the_unknown_rest(federate):
    recording = federate(WIDE, people=80, columns=12, audit={"coverage": 0.9}, **ONE)
    view, truth = look(recording)
    guess = launch(PartialDecode(), view, 0)
    assert guess.diagnostics["unknown"] == 8
    hits = attribute_hits(guess, truth["s"][:72])
    assert hits.mean() >= 0.82  # 0.85 or 0.86, as processors round; the commonest value: 0.6
    with pytest.raises(FixData, match="72 records are known but the client reported 80"):
        launch(MaxEntropy(), view, 0)


@pytest.mark.parametrize(
    ("attack", "known", "error", "why"),
    [
        (PartialDecode(), lambda link: replace(link, weights=np.array([20.0])),
         FixData, "30 records are known but the client reported 20"),
        (MaxEntropy(), lambda link: AttributeDomain("s", tuple(map(float, range(33)))),
         ChooseAnotherAttack, "33 values"),
        (MaxEntropy(labels=False), lambda link: link, ChooseAnotherAttack, "works for classes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(federate, attack, known, error, why):
    view, _ = look(federate(WIDE, people=30, **ONE))
    with pytest.raises(error, match=why):
        launch(attack, view.knowing(known(view.know(Messages))), 0)


def test_labels_need_not_be_known(federate):
    recording = federate(WIDE, by_class, people=60, columns=8, **ONE)
    view, truth = look(recording, EAVESDROPPER.without(Labels))
    assert Labels not in view.kinds
    guess = launch(MaxEntropy(labels=False), view, 0)
    assert np.array_equal(guess.choice(), truth["s"])
    assert np.array_equal(guess.labels.choice(), truth["y"])
    found = audit(recording, EAVESDROPPER, ["joint_decode"], targets=["s"]).findings[0]
    assert found.details["label_accuracy"] == 1.0


def doubled(dataset):
    """Everybody's first ten records once more: same public columns and label, other attribute."""
    columns = {n: v.copy() for n, v in dataset.records.columns.items()}
    for name in columns:
        if name != "s":
            columns[name][10:20] = columns[name][:10]
    columns["s"][:20] = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    return replace(dataset, records=Records(columns))


def test_ties_are_counted_not_guessed(federate):
    view, truth = look(federate(WIDE, doubled, people=60, columns=8, **ONE))
    guess = launch(MaxEntropy(), view, 0)
    assert guess.diagnostics["tied_records"] == 20
    assert guess.diagnostics["undecidable"] == 8
    p = guess.probabilities[:, 1]
    expected = np.repeat([(truth["s"][:10] + truth["s"][10:20]) / 2], 2, axis=0).ravel()
    assert np.allclose(p[:20], expected, atol=1e-4)
    assert np.allclose(p[20:], truth["s"][20:], atol=1e-4)


def test_very_many_records_take_the_first_layer_alone(federate, monkeypatch):
    recording = federate({"name": "mlp", "hidden": [64, 8]}, doubled, people=150, columns=20, **ONE)
    view, truth = look(recording)
    exact = launch(MaxEntropy(), view, 0)
    monkeypatch.setattr(one_step, "UNKNOWNS", 100)
    guess = launch(MaxEntropy(), view, 0)
    assert guess.diagnostics["method"] == "conjugate_gradients"
    assert guess.diagnostics["tied_records"] == 20
    assert np.allclose(guess.probabilities, exact.probabilities, atol=1e-3)
    assert np.array_equal(guess.choice()[20:], truth["s"][20:])


@pytest.mark.parametrize("values", [(), (0.0,), (0.0, 0.0)])
def test_one_value_is_nothing_to_infer(values):
    with pytest.raises(FixData, match="at least two different"):
        AttributeDomain("s", values)


def test_updates_that_no_pairs_explain_are_flagged(federate: Any) -> None:
    recording = federate({"name": "logistic"}, people=40, columns=6, rounds=2, participation=1.0)
    view = view_of(recording)
    link = view.know(Messages)
    strange = replace(link, returned=(link.sent + 3 * link.updates()).astype(np.float32))
    guess = launch(MaxEntropy(labels=False), view.knowing(strange), 0)
    assert "flag" in guess.diagnostics


@pytest.fixture
def view(federate):
    model = {"name": "mlp", "hidden": [8]}
    recording = federate(model, clients=4, people=50, columns=6, rounds=1, participation=1.0)
    return with_others(recording, view_of(recording))


def test_missing_columns_come_from_donors_with_the_value(view):
    """A donor is an auxiliary record of that value: each completion's missing cells are one's."""
    others, recipe = view.know(AuxiliaryData), view.know(ClientProgram).recipe
    records = view.know(PublicRecords).records.without("x4", "x5")
    way = imagined(view.knowing(PublicRecords(records)), 0, np.random.default_rng(0))
    assert not way.exact
    completed = way.inputs[: way.ends[0]].reshape(2, PartialOptions().completions, len(records), -1)
    missing = recipe.encoding.inputs_of(["x4", "x5"])
    for value, cells in enumerate(completed[..., missing]):
        donors = encode(recipe.encoding, others.records)[others.records["s"] == value][:, missing]
        rows = {tuple(row) for row in np.round(donors, 9)}
        assert {tuple(row) for row in np.round(cells.reshape(-1, 2), 9)} <= rows


def recorded(path: Path, training: dict[str, Any], defence: list[dict[str, Any]]) -> Recording:
    dropped = {"name": "drop_column", "columns": ["c043"]}
    return digits(
        path / "run", victim=40, participants=3, defence=[dropped, *defence], rounds=1,
        weighting="equal", **training,
    )  # fmt: skip


@pytest.mark.parametrize("training", [{}, {"epochs": 2, "batch_size": 16}])
def test_the_decoder_answers_what_was_known_before(
    training: dict[str, Any], tmp_path: Path
) -> None:
    run = recorded(tmp_path, training, [])
    record = audit(run, threat_named("server"), clients=["victim"], targets=["c043"])
    found = {f.attack: f for f in record.findings}
    ours = found["max_entropy"]
    assert "does not see 'c043'" in str(ours.details["not_an_input"])
    assert ours.details["rank"] == 0
    # records of other people are known, and what they tell without listening is no exposure
    assert ours.value == pytest.approx(ours.imputation)
    assert ours.flag == ""  # what it says is right, and little
    why = {s.attack: s.reason for s in record.skipped}
    if not training:
        assert "nothing to decode" in why["partial_decode"]


def test_nor_is_it_in_a_sum(tmp_path: Path) -> None:
    run = recorded(tmp_path, {}, [{"name": "secure_sum"}])
    record = audit(run, threat_named("secure-server"), ["sum_decode"], ["victim"], ["c043"])
    assert record.findings == ()
    assert "nothing to decode" in record.skipped[0].reason
