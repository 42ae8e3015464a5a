"""What fewer rounds tell, and adversaries who know less and less of the clients."""

from __future__ import annotations

import numpy as np
import pytest
from federations import recipe_in

from overheard.attacks import attack_named
from overheard.errors import FixConfig, GrantKnowledge
from overheard.evaluation import ladder
from overheard.evaluation.audit import audit
from overheard.evaluation.ladder import RUNGS, demographic, lowered, messages, with_others
from overheard.evaluation.parts import AuditOptions
from overheard.evaluation.scoring import Case
from overheard.report import words
from overheard.report.html import render, render_markdown
from overheard.report.model import ladders
from overheard.transcript.knowledge import AuxiliaryData, Labels, PublicRecords
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow

ROUNDS = AuditOptions(rounds=True)


def test_each_line_is_what_the_attack_learns_from_so_many_rounds(federate):
    """Twin: cut the view by hand, launch, score."""
    recording = federate(participation=1.0, rounds=12)
    names = ["max_entropy", "exact_linear", "majority"]
    record = audit(recording, SERVER, names, options=ROUNDS)
    lines = record.curves
    recipe = recipe_in(recording)
    models = [line for line in lines if line.question == "local_model"]
    # one round is refused, and too few for its parameters are flagged
    assert [line.rounds for line in models] == [10, 12]
    losses = [line.value for line in models]
    assert losses[-1] == min(losses)
    secrets = [line for line in lines if line.question == "attribute"]
    assert [line.rounds for line in secrets] == [1, 2, 5, 10, 12]
    assert {line.attack for line in secrets} == {"max_entropy"}
    client = secrets[0].client
    view = observe(recording, SERVER, attribute("s"), client)
    attack = attack_named("max_entropy")
    for line in secrets[:-1]:
        guess = launch(attack, view.knowing(messages(view).first(line.rounds)), 0)
        scorer = Case(recipe, recording.truth(), attribute("s"), view, 0).scorer()
        found = scorer(attack, guess, 0.0).finding
        assert (line.value, line.low, line.high) == (found.value, found.low, found.high)
    # of the clients, the one of which the verdict speaks
    (answer,) = (secret for secret in record.secrets if secret.attribute == "s")
    worst = record.strongest(answer)
    assert worst is not None
    assert client == worst.client
    assert secrets[-1].value == worst.value


def test_slow_attacks_and_those_that_do_not_listen_are_left_out(federate, monkeypatch):
    recording = federate(participation=1.0, rounds=3)
    assert audit(recording, SERVER, ["model_based_last_returned"], options=ROUNDS).curves
    assert not audit(recording, SERVER, ["majority"], options=ROUNDS).curves
    monkeypatch.setattr(ladder, "is_slow", lambda attack: True)
    assert not audit(recording, SERVER, ["model_based_last_returned"], options=ROUNDS).curves


def test_sums_are_listened_to_round_by_round_as_well(federate):
    recording = federate({"name": "mlp", "hidden": [8]}, rounds=3, participation=1.0, people=20)
    lines = audit(recording, SECURE_SERVER, ["sum_decode"], targets=["s"], options=ROUNDS).curves
    assert [line.rounds for line in lines] == [1, 2, 3]
    assert lines[-1].value >= lines[0].value - 0.1


WIDE = {"name": "mlp", "hidden": [32]}
SOME = {"rounds": 1, "participation": 1.0, "clients": 5, "people": 60, "columns": 8}
REGISTER = ("x0", "x1", "x2", "x3")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    from tests.conftest import recorded

    return recorded(tmp_path_factory.mktemp("rungs") / "run", WIDE, **SOME)


def top(recording):
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    return with_others(recording, view)


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda rung: rung.name)
def test_a_rung_shows_no_more_than_it_says(recording, rung):
    whole = top(recording)
    view, known = lowered(whole, rung, REGISTER, 0)
    records, stated = view.know(PublicRecords).records, whole.know(PublicRecords).records
    assert (Labels in view.kinds) == rung.labels
    assert len(known) == round(rung.records * len(stated))
    columns = {"all": set(stated.columns), "demographics": set(REGISTER), "none": {"record"}}
    assert set(records.columns) == columns[rung.columns]
    if rung.columns != "none":
        assert all(np.array_equal(records[n], stated[n][known]) for n in records.columns)


def test_people_alike_are_the_other_clients(recording):
    view = top(recording)
    assert len(view.know(AuxiliaryData).labels) == 4 * 60
    mine = set(recording.truth()["0"]["y"].tolist())
    assert mine.isdisjoint(view.know(AuxiliaryData).labels.tolist())


def test_nobody_else_nothing_to_complete_with(federate):
    alone = federate(WIDE, **(SOME | {"clients": 1}))
    with pytest.raises(GrantKnowledge, match="no other client"):
        top(alone)


def test_demographics_by_name_or_as_named():
    columns = ("age", "hours_per_week", "marital_status", "linc")
    assert demographic(columns) == ("age", "marital_status")
    assert demographic(columns, ("linc",)) == ("linc",)
    with pytest.raises(FixConfig, match="no public column 'income'"):
        demographic(columns, ("income",))


def test_labels_are_asked_about_on_the_first_rung_alone(federate):
    audit_ = {"attributes": [], "label": True}
    recording = federate({"name": "logistic"}, audit=audit_, **(SOME | {"people": 20}))
    record = audit(recording, SERVER, ["max_entropy"], ["0"], options=AuditOptions(ladder="brief"))
    doing = {one.doing for one in record.skipped if "of labels" in one.reason}
    assert doing == {"as half", "as schema"}


def test_the_ladder_of_an_audit_reaches_the_report(recording):
    how = AuditOptions(ladder=True, demographics=REGISTER)
    record = audit(recording, EAVESDROPPER, ["max_entropy"], ["0", "1"], ["s"], how)
    assert [one.rung for one in record.ladder if one.client == "0"] == [r.name for r in RUNGS]
    ((whole, _),) = ladders(record).values()
    values = {rung.rung: rung.value for rung in whole}
    assert values["colleague"] == 1.0
    assert values["half"] > values["schema"]
    page, text = render(record), render_markdown(record)
    for rung in RUNGS:
        assert words.rung(rung.name) in page
        assert words.rung(rung.name) in text
    assert "How much must one know?" in page


def test_without_demographics_two_rungs_are_skipped(recording):
    how = AuditOptions(ladder=True)
    record = audit(recording, EAVESDROPPER, ["max_entropy"], ["0"], ["s"], how)
    rungs = [one.rung for one in record.ladder if one.client]
    assert rungs == ["colleague", "half", "schema"]
    assert {s.reason.split(":")[0] for s in record.skipped} >= {"as registry", "as demographics"}
