"""lyu2021's runner in small, on digits, and the tables as settings: no file is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.papers.lyu2021 import CosMatching
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.transcript.guess import AttributeValues
from papers.common.catalogue import experiment_named
from papers.common.harness import STRANGER
from papers.common.rows import Experiment, Reproduction, Row, write_reproduction
from papers.lyu2021 import settings as tables
from papers.lyu2021.rows import over_repetitions, run_table
from papers.lyu2021.run import EXPERIMENTS
from papers.lyu2021.scoring import (
    Measured,
    balanced_accuracy,
    exactly,
    has_twin,
    rarest,
    score,
    skewed,
)
from papers.lyu2021.settings import Setting

pytestmark = pytest.mark.slow

SHORT = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=10)
SMALL = Setting(
    "digits, c043",
    "40 records",
    "digits",
    "c043",
    40,
    {"cos_matching": SHORT, "max_entropy": MaxEntropy(rounds=1)},
    {"cos_matching": 0.9},
    {"public": 100},
    hidden=(64,),
    rounds=2,
)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_settings_are_distinct_and_carry_the_claims(experiment: Experiment) -> None:
    (make,) = experiment.run.args  # type: ignore[attr-defined]
    for settings in (make(True), make(False)):
        assert settings
        assert len({(s.panel, s.at) for s in settings}) == len(settings)
        assert all(0 < c <= 1 for s in settings for c in s.claims.values())
    assert experiment.name == "lyu2021-pipeline" or any(s.claims for s in settings)


def test_claims_stand_where_the_paper_prints_them() -> None:
    def claim(settings: list[Setting], panel: str, at: str, method: str) -> float:
        (one,) = [s for s in settings if (s.panel, s.at) == (panel, at)]
        return one.claims[method]

    table3 = tables.methods_table("location30", False)
    assert claim(table3, "location30, c069", "300 records", "cos_matching") == 0.7967
    assert claim(table3, "location30, c001", "100 records", "l2_lbfgs") == 1.0
    table8 = tables.sizes_table(False)
    assert claim(table8, "location30, c001", "300 records", "cos_matching") == 0.8667
    assert claim(table8, "splice, c049", "1000 records", "cos_matching") == 0.255
    table11 = tables.members_table("location30", False)
    assert claim(table11, "location30, c069, B=all", "300 records", "gmm") == 0.8933
    table12 = tables.prior_table("location30", False)
    assert claim(table12, "location30, c069, B=32", "50 records", "cos_matching") == 0.86


@pytest.fixture(scope="module")
def outcome() -> Reproduction:
    batch = replace(SMALL, at="B=8", batch=8, attacks={"max_entropy": MaxEntropy(rounds=2)})
    late = replace(SMALL, at="last5", phase="last5", rounds=7)
    crowd = replace(SMALL, at="3 participants", others=2)
    made = run_table([SMALL, batch, late, crowd], 1, lambda what, done, total: None)
    return replace(made, name="lyu2021-small")


def test_rows_hold_claim_majority_stranger_seconds_and_interval(outcome: Reproduction) -> None:
    rows = {(r.client, r.method, r.measure): r for r in outcome.rows}
    ours = rows["40 records", "max_entropy", "accuracy"]
    assert ours.measured == 1.0
    assert ours.low is not None
    assert ours.low < 1.0
    assert ours.majority is not None
    assert ours.seconds is not None
    assert rows["40 records", "cos_matching", "accuracy"].claimed == 0.9
    assert rows["40 records", STRANGER, "accuracy"].measured > 0.4
    assert rows["40 records", "max_entropy", "F1 of the rarest value"].measured == 1.0
    assert rows["40 records", "max_entropy", "times faster than cos_matching"].measured > 0
    assert all(r.low is not None and r.high is not None for r in outcome.rows)
    assert rows["last5", "max_entropy", "accuracy"].measured == 1.0
    assert rows["3 participants", "max_entropy", "accuracy"].measured == 1.0


def test_the_outcome_is_written_and_drawn(outcome: Reproduction, tmp_path: Path) -> None:
    table, picture = write_reproduction(experiment_named("lyu2021-table3"), outcome, tmp_path)
    assert json.loads(table.read_text())["name"] == "lyu2021-small"
    assert picture.read_text().startswith("<?xml")


def test_membership_and_its_refusal() -> None:
    attacks = tables.members_table("location30", True)[0].attacks
    pool = replace(SMALL, attacks=attacks, pooled=True, claims={}, rounds=3, options={"public": 50})
    found, notes = score(pool, 0)
    assert {o.method: o.hits.mean() for o in found}["candidate_decode"] == 1.0
    assert not notes
    found, notes = score(replace(pool, batch=8, epochs=2), 0)
    assert "gmm" in {o.method for o in found}
    assert len(found) + len(notes) == 2


def test_labels_and_prior_unknown() -> None:
    attacks = {"joint_decode": MaxEntropy(labels=False), "cos_matching": SHORT}
    asked = replace(SMALL, attacks=attacks, labels_known=False, prior_known=False, hidden=(96,))
    (found, search), notes = score(asked, 0)
    assert not notes
    assert 0 <= search.measures["accuracy of labels"].value <= 1
    assert found.measures["accuracy of labels"].value == 1.0
    assert found.hits.mean() == 1.0


def test_f1_and_balanced_accuracy() -> None:
    secret = np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    chosen = np.eye(2)[[0, 1, 1, 0, 0]]
    found = skewed(AttributeValues(chosen, (0.0, 1.0)), secret)
    assert found["F1 of the rarest value"].value == pytest.approx(2 / 3)
    assert found["balanced accuracy"].value == pytest.approx((3 / 4 + 1) / 2)
    assert balanced_accuracy(np.array([0, 2, 0, 0, 2]), np.array([0, 2, 0, 1, 1])) == pytest.approx(
        7 / 12
    )
    assert rarest(np.array([0, 2, 0])) == 2


def test_the_wider_interval_is_kept() -> None:
    row = Row("s", "c", "m", "accuracy", 0.9, 0.85, 0.95)
    wide = over_repetitions([Measured(0.9, 0.5, 0.92)], row)
    assert (wide.low, wide.high) == (0.5, 0.95)
    beyond = over_repetitions([Measured(1.0, 0.98, 1.0)], replace(row, low=0.97, high=1.04))
    assert (beyond.low, beyond.high) == (0.97, 1.0)
    counted = over_repetitions([exactly(3.0), exactly(0.0)], replace(row, low=-2.0, high=5.0))
    assert (counted.low, counted.high) == (0.0, 3.0)


def test_records_with_a_twin_are_found() -> None:
    ready = plan(parse_config(SMALL.config(0)))
    inside = ready.clients["victim"]
    twice = inside.take(np.array([0, 1, 2, 1, 3]))
    assert has_twin(ready.recipe, twice, "c043", 0.0).tolist() == [False, True, False, True, False]
