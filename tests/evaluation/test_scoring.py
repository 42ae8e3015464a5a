"""From guess and truth to a finding: by hand, and what cannot be scored."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from federations import recipe_in
from hypothesis import given
from hypothesis import strategies as st

from overheard.attacks import attack_named
from overheard.attacks.baselines import LastReturned
from overheard.errors import FixData, FixRecording
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.scoring import Case, Posterior, calibration
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues, LabelValues, LocalModel, Membership
from overheard.transcript.knowledge import PublicRecords
from overheard.transcript.store import MEMBER_COLUMN
from overheard.transcript.target import LABEL, LOCAL_MODEL, Target, attribute
from overheard.transcript.threat import EAVESDROPPER, SERVER
from overheard.transcript.view import launch, observe

VALUES = (0.0, 1.0)


def scorer(recording: Any, target: Target, pools: Any = None) -> Any:
    view = observe(recording, SERVER, target, "0")
    recipe = recipe_in(recording)
    return Case(recipe, recording.truth(), target, view, 0, pools).scorer()


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
    perfect = score(attack_named("majority"), certain(secret), 0.0).finding
    shares = np.where(secret == 1, secret.mean(), 1 - secret.mean())
    assert perfect.calibration.bits == pytest.approx(-np.log2(shares).mean())
    assert perfect.details["balanced_accuracy"] == 1.0
    assert perfect.details["rare_f1"] == 1.0
    assert perfect.details["calibration_error"] == 0.0


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
    assert found.details["others_accused"] == 0.0
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
    truth, recipe = recording.truth(), recipe_in(recording)
    known = PublicRecords(truth["0"].take(np.arange(15)))
    view = observe(recording, SERVER, target, "0").knowing(known)
    score = Case(recipe, truth, target, view, 0).scorer()
    guess: Any = certain(truth["0"]["s"][:15])
    if target == LOCAL_MODEL:
        guess = LocalModel(np.zeros(recipe.model.size), np.zeros(recipe.model.size), 0)
    found = score(attack_named("majority"), guess, 0.0)
    assert len(found.units) == found.finding.n == scored


# --- how sure the adversary is: every record in one bin, with the shares of its records


def posterior(rng, records=500):
    confidence = rng.uniform(0.5, 1.0, records)
    hits = (rng.random(records) < confidence).astype(float)
    return Posterior(confidence, hits, np.log2(confidence) + 1)


def test_bins_hold_every_record_once(rng):
    found = posterior(rng)
    bins = calibration(found, bins=True).bins
    assert sum(b.n for b in bins) == 500
    for b in bins:
        inside = (found.confidence >= b.least) & (found.confidence < b.most)
        assert b.n == inside.sum()
        assert b.right == pytest.approx(found.hits[inside].mean())
        assert b.least <= b.confidence < b.most
        assert b.low <= b.right <= b.high


# --- scores against slow, obvious twins


@given(seed=st.integers(0, 1000), m=st.integers(1, 40), k=st.integers(2, 4))
def test_attribute_scores_match_a_loop(seed, m, k):
    rng = np.random.default_rng(seed)
    values = tuple(float(v) for v in range(k))
    p = rng.dirichlet(np.ones(k), m)
    truth = rng.integers(0, k, m).astype(float)
    guess = AttributeValues(p, values)
    hits = [float(max(range(k), key=lambda j: p[i, j]) == truth[i]) for i in range(m)]
    assert metrics.attribute_hits(guess, truth).tolist() == hits
    bits = [
        np.log2(max(p[i, int(truth[i])], 1e-6)) - np.log2(np.mean(truth == truth[i]))
        for i in range(m)
    ]
    assert metrics.attribute_bits(guess, truth) == pytest.approx(bits)
    recalls = [np.mean([hits[i] for i in range(m) if truth[i] == v]) for v in set(truth)]
    assert metrics.balanced_accuracy(guess, truth) == pytest.approx(np.mean(recalls))
    assert majority_share(truth, values) == max(np.mean(truth == v) for v in values)


@pytest.mark.parametrize("name", ["linear", "logistic", "mlp"])
def test_local_optimum_is_one(federate, name):
    """No small step away from it lowers the client's loss."""
    model = {"name": name, "hidden": [5]} if name == "mlp" else {"name": name}
    recording = federate(model, rounds=1)
    recipe, records = recipe_in(recording), recording.truth()["0"]
    start = 0.3 * np.random.default_rng(0).normal(size=recipe.model.size)
    optimum = metrics.local_optimum(recipe, records, start)
    best = metrics.client_losses(recipe, optimum, records).mean()
    for seed in range(20):
        step = 1e-3 * np.random.default_rng(seed).normal(size=len(optimum))
        assert metrics.client_losses(recipe, optimum + step, records).mean() >= best - 1e-9
    guess = LocalModel(optimum, optimum, 0)
    assert metrics.excess_losses(recipe, guess, optimum, records).mean() == 0.0


@pytest.mark.parametrize("classes", [2, 3])
def test_an_optimum_at_infinity_is_compared_under_a_penalty(federate, classes):
    """Separable records: the loss of ever longer models goes to zero, and no loss is a multiple of
    that. Records that no line separates are compared as they always were."""

    def separable(dataset):
        x = dataset.records["x0"]
        label = np.digitize(x, np.quantile(x, np.arange(1, classes) / classes)).astype(float)
        columns = {**dataset.records.columns, "y": label}
        if classes == 3:  # a line through the middle class too
            columns["x1"] = x**2
        return dataclasses.replace(
            dataset, records=Records(columns), task="classification", sensitive=("s",)
        )

    recording = federate({"name": "logistic"}, change=separable, rounds=3)
    recipe, records = recipe_in(recording), recording.truth()["0"]
    optimum, penalty = metrics.comparable_optimum(recipe, records)
    assert penalty == 1 / len(records)
    zero = np.zeros(recipe.model.size)
    found = metrics.excess_losses(recipe, LocalModel(zero, zero, 0), optimum, records, penalty)
    assert 0 < found.mean() < 100
    best = metrics.excess_losses(recipe, LocalModel(optimum, zero, 0), optimum, records, penalty)
    assert best.mean() == 0
    rng = np.random.default_rng(0)
    for _ in range(5):
        near = LocalModel(optimum + 0.1 * rng.normal(size=len(zero)), zero, 0)
        assert metrics.excess_losses(recipe, near, optimum, records, penalty).mean() > 0
    # scored as such, and said
    view = observe(recording, EAVESDROPPER, LOCAL_MODEL, "0")
    scorer = Case(recipe, recording.truth(), LOCAL_MODEL, view, 0).scorer()
    finding = scorer(LastReturned(), launch(LastReturned(), view, 0), 0.0).finding
    assert finding.value < 100
    assert "infinity" in finding.details["optimum"]
