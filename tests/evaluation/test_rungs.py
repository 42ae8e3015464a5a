"""Adversaries who know less and less: what each is shown, what it learns, what the report says."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.partial import PartialDecode
from overheard.errors import FixConfig, GrantKnowledge
from overheard.evaluation.audit import AuditOptions
from overheard.evaluation.complete import RUNGS, audit, demographic, lowered, with_others
from overheard.report.html import render
from overheard.report.markdown import render_markdown
from overheard.report.model import ladders
from overheard.transcript.knowledge import AuxiliaryData, Labels, PublicRecords
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow

WIDE = {"name": "mlp", "hidden": [32]}
SOME = {"rounds": 1, "participation": 1.0, "clients": 5, "people": 60, "columns": 8}
NAMED = {rung.name: rung for rung in RUNGS}
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


def test_strangers_are_the_other_clients(recording):
    view = top(recording)
    assert len(view.know(AuxiliaryData).labels) == 4 * 60
    mine = set(recording.truth()["0"]["y"].tolist())
    assert mine.isdisjoint(view.know(AuxiliaryData).labels.tolist())


def test_nobody_else_nothing_to_complete_with(federate):
    alone = federate(WIDE, **(SOME | {"clients": 1}))
    with pytest.raises(GrantKnowledge, match="no other client"):
        top(alone)


def test_missing_columns_without_strangers_are_refused(recording):
    view, _ = lowered(top(recording), NAMED["registry"], REGISTER, 0)
    fewer = view.narrowed(view.kinds - {AuxiliaryData})
    with pytest.raises(GrantKnowledge, match="auxiliary data"):
        launch(PartialDecode(), fewer, 0)


def test_demographics_by_name_or_as_named():
    columns = ("age", "hours_per_week", "marital_status", "linc")
    assert demographic(columns) == ("age", "marital_status")
    assert demographic(columns, ("linc",)) == ("linc",)
    with pytest.raises(FixConfig, match="no public column 'income'"):
        demographic(columns, ("income",))


def test_the_ladder_of_an_audit_reaches_the_report(recording):
    how = AuditOptions(rounds=False, ladder=True, demographics=REGISTER)
    record = audit(recording, EAVESDROPPER, ["max_entropy"], ["0", "1"], ["s"], how)
    assert [one.rung for one in record.ladder if one.client == "0"] == [r.name for r in RUNGS]
    (ladder,) = ladders(record)
    values = {rung.rung: rung.value for rung in ladder.rungs}
    assert values["colleague"] == 1.0
    assert values["half"] > values["schema"]
    assert all(rung.certain_right <= rung.certain for rung in ladder.rungs)
    page, text = render(record), render_markdown(record)
    for rung in RUNGS:
        assert rung.words in page
        assert rung.words in text
    assert "How much must one know?" in page


def test_without_demographics_two_rungs_are_skipped(recording):
    how = AuditOptions(rounds=False, ladder=True)
    record = audit(recording, EAVESDROPPER, ["max_entropy"], ["0"], ["s"], how)
    rungs = [one.rung for one in record.ladder if one.client]
    assert rungs == ["colleague", "half", "schema"]
    assert {s.reason.split(":")[0] for s in record.skipped} >= {"as registry", "as demographics"}
