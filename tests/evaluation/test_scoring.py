"""From guess and truth to a finding: by hand, and what cannot be scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.attacks import attack_named
from overheard.errors import FixData, FixRecording
from overheard.evaluation.scoring import Case
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues, LabelValues, LocalModel, Membership
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import PublicRecords
from overheard.transcript.store import MEMBER_COLUMN
from overheard.transcript.target import LABEL, LOCAL_MODEL, Target, attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import observe

VALUES = (0.0, 1.0)


def scorer(recording: Any, target: Target, pools: Any = None, rows: bool = False) -> Any:
    view = observe(recording, SERVER, target, "0")
    recipe = recipe_of(recording)
    assert recipe is not None
    return Case(recipe, recording.truth(), target, view, 0, pools, rows=rows).scorer()


def certain(secret: Any) -> AttributeValues:
    return AttributeValues(np.where(secret[:, None] == VALUES, 1.0, 0.0), VALUES)


def test_an_attribute_by_hand(federate):
    recording = federate(rounds=2, people=40)
    secret = recording.truth()["0"]["s"]
    wrong = secret.copy()
    wrong[:10] = 1 - wrong[:10]
    score = scorer(recording, attribute("s"))
    found = score(attack_named("majority"), certain(wrong), 1.5).finding
    assert (found.value, found.n, found.seconds) == (0.75, 40, 1.5)
    assert found.majority == max(secret.mean(), 1 - secret.mean())
    assert found.lift == pytest.approx(0.75 - max(found.majority, found.imputation))
    assert found.low < 0.75 < found.high
    # sure of all and right for three in four: what it claims is not repeated
    assert found.calibration is None
    assert found.overconfident == "100% sure on average, and right for 75%"
    assert "bits_gained" not in found.details
    asked = scorer(recording, attribute("s"), rows=True)
    told = asked(attack_named("majority"), certain(secret), 0.0).finding.calibration
    assert told is not None
    assert len(told.rows) == 20
    perfect = score(attack_named("majority"), certain(secret), 0.0).finding
    shares = np.where(secret == 1, secret.mean(), 1 - secret.mean())
    assert perfect.details["bits_gained"] == pytest.approx(-np.log2(shares).mean())
    assert perfect.details["balanced_accuracy"] == 1.0
    assert perfect.details["rare_f1"] == 1.0
    assert perfect.details["calibration_error"] == 0.0


def test_a_model_by_hand(federate):
    """The optimum itself loses nothing; a model of zeros loses what it loses."""
    recording = federate(rounds=2, people=40)
    truth, recipe = recording.truth()["0"], recipe_of(recording)
    assert recipe is not None
    from overheard.evaluation.metrics import client_losses, local_optimum

    optimum = local_optimum(recipe, truth)
    score = scorer(recording, LOCAL_MODEL)
    found = score(
        attack_named("exact_linear"), LocalModel(optimum, optimum * np.nan, 0), 0.0
    ).finding
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert found.details["relative_distance"] == pytest.approx(0.0, abs=1e-12)
    zeros = LocalModel(np.zeros_like(optimum), optimum * np.nan, 0)
    found = score(attack_named("exact_linear"), zeros, 0.0).finding
    best = client_losses(recipe, optimum, truth).mean()
    worst = client_losses(recipe, np.zeros_like(optimum), truth).mean()
    assert found.value == pytest.approx(worst / best - 1)
    assert found.details["relative_distance"] == pytest.approx(1.0)


def test_what_has_no_unique_optimum_is_not_scored(federate):
    with pytest.raises(FixData, match="not unique"):
        scorer(federate({"name": "mlp", "hidden": [3]}, rounds=2), LOCAL_MODEL)
    with pytest.raises(FixData, match="5 parameters"):
        scorer(federate(rounds=2, people=3), LOCAL_MODEL)


def test_members_by_hand(federate):
    recording = federate(rounds=2, people=60, audit={"membership": 40})
    target = Target.parse("membership.s")
    pools = recording.truth("Membership", target.key)
    member = pools["0"][MEMBER_COLUMN] > 0.5
    score = scorer(recording, target, pools)
    p = np.where(member, 0.9, 0.2)
    p[np.flatnonzero(member)[0]] = 0.1
    found = score(attack_named("coin"), Membership(p, None, {}), 0.0).finding
    assert found.value == pytest.approx(1 - 1 / len(member))
    assert found.details["members_found"] == pytest.approx(1 - 1 / member.sum())
    assert found.details["strangers_accused"] == 0.0
    assert found.majority == max(member.mean(), 1 - member.mean())
    assert found.lift == pytest.approx(found.value - found.majority)
    bits = np.log2(np.where(member, p, 1 - p)) - np.log2(
        np.where(member, member.mean(), 1 - member.mean())
    )
    assert found.calibration is not None
    assert found.calibration.bits == pytest.approx(bits.mean())
    with pytest.raises(FixData, match="guesses for a pool"):
        score(attack_named("coin"), Membership(p[1:], None, {}), 0.0)


def test_pools_that_tell_nothing_apart(federate):
    recording = federate(rounds=2, people=60, audit={"membership": 40})
    target = Target.parse("membership.s")
    pools = recording.truth("Membership", target.key)
    everybody = Records({**pools["0"].columns, MEMBER_COLUMN: np.ones(len(pools["0"]))})
    with pytest.raises(FixData, match="nothing to tell apart"):
        scorer(recording, target, {"0": everybody})
    for none in (None, {}):
        with pytest.raises(FixRecording, match="who of '0'"):
            scorer(recording, target, none)


def test_labels_by_hand(federate):
    audit = {"label": True, "attributes": []}
    recording = federate(rounds=1, algorithm="fedsgd", people=30, audit=audit)
    labels = recording.truth()["0"]["y"]
    score = scorer(recording, LABEL)
    guess = LabelValues(labels + 0.5, np.full(30, 0.3), {})
    found = score(attack_named("linear_decode"), guess, 0.0).finding
    assert found.value == pytest.approx(0.5)
    assert found.details["covered"] == 1.0
    assert found.lift == pytest.approx(found.imputation - 0.5)
    tight = score(attack_named("linear_decode"), LabelValues(labels + 0.5, np.full(30, 0.2), {}), 0)
    assert tight.finding.details["covered"] == 0.0
    unsure = LabelValues(labels, np.full(30, np.nan), {})
    assert "covered" not in score(attack_named("linear_decode"), unsure, 0.0).finding.details
    with pytest.raises(FixData, match="29 labels"):
        score(attack_named("linear_decode"), LabelValues(labels[1:], np.ones(29), {}), 0.0)


@pytest.mark.parametrize(("target", "scored"), [(attribute("s"), 15), (LOCAL_MODEL, 40)])
def test_only_an_attribute_is_asked_of_the_records_that_are_known(federate, target, scored):
    """Fifteen of forty are: a model is still scored on all records of its client."""
    recording = federate(rounds=2, people=40)
    truth, recipe = recording.truth(), recipe_of(recording)
    known = PublicRecords(truth["0"].take(np.arange(15)))
    view = observe(recording, SERVER, target, "0").knowing(known)
    score = Case(recipe, truth, target, view, 0).scorer()
    guess: Any = certain(truth["0"]["s"][:15])
    if target == LOCAL_MODEL:
        guess = LocalModel(np.zeros(recipe.model.size), np.zeros(recipe.model.size), 0)
    found = score(attack_named("majority"), guess, 0.0)
    assert len(found.units) == found.finding.n == scored
