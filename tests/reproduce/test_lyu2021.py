"""lyu2021's runner in small, on digits, and the tables as settings: no file is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from overheard.attacks.attribute.gradient_matching import CosMatching
from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.reproduce import lyu2021 as paper
from overheard.reproduce.catalogue import experiment_named
from overheard.reproduce.harness import STRANGER
from overheard.reproduce.rows import Reproduction, write_reproduction
from overheard.transcript.guess import AttributeValues

SHORT = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=10)
SMALL = paper.Setting(
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


def test_every_table_is_there() -> None:
    names = [f"table{i}" for i in range(2, 14)] + ["labels"]
    for name in names:
        assert experiment_named(f"lyu2021-{name}").paper == "lyu2021"


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("make", "claims"),
    [
        (lambda q: paper.methods_table("purchase100", q), 8),
        (lambda q: paper.methods_table("location30", q), 6),
        (lambda q: paper.methods_table("splice", q), 8),
        (paper.table5, 18),
        (paper.table6, 18),
        (paper.table7, 30),
        (paper.table8, 22),
        (paper.table9, 18),
        (lambda q: paper.members_table("purchase100", q), 24),
        (lambda q: paper.members_table("location30", q), 18),
        (lambda q: paper.prior_table("location30", q), 18),
        (lambda q: paper.prior_table("purchase100", q), 24),
        (paper.labels_unknown, 12),
    ],
)
def test_settings_are_distinct_and_carry_the_claims(make, claims, quick: bool) -> None:  # type: ignore[no-untyped-def]
    settings = make(quick)
    assert len({(s.panel, s.at) for s in settings}) == len(settings)
    assert all(0 < c <= 1 for s in settings for c in s.claims.values())
    if not quick:
        assert sum(bool(s.claims) for s in settings) == claims


def test_claims_stand_where_the_paper_prints_them() -> None:
    def claim(settings: list[paper.Setting], panel: str, at: str, method: str) -> float:
        (one,) = [s for s in settings if (s.panel, s.at) == (panel, at)]
        return one.claims[method]

    table3 = paper.methods_table("location30", False)
    assert claim(table3, "location30, c069", "300 records", "cos_matching") == 0.7967
    assert claim(table3, "location30, c001", "100 records", "l2_lbfgs") == 1.0
    table8 = paper.table8(False)
    assert claim(table8, "location30, c001", "300 records", "cos_matching") == 0.8667
    assert claim(table8, "splice, c049", "1000 records", "cos_matching") == 0.255
    table11 = paper.members_table("location30", False)
    assert claim(table11, "location30, c069, B=all", "300 records", "gmm") == 0.8933
    table12 = paper.prior_table("location30", False)
    assert claim(table12, "location30, c069, B=32", "50 records", "cos_matching") == 0.86


@pytest.fixture(scope="module")
def outcome() -> Reproduction:
    batch = replace(SMALL, at="B=8", batch=8, attacks={"max_entropy": MaxEntropy(rounds=2)})
    late = replace(SMALL, at="last5", phase="last5", rounds=7)
    crowd = replace(SMALL, at="3 participants", others=2)
    return paper.run_table(
        "lyu2021-small", [SMALL, batch, late, crowd], True, 1, lambda what, done, total: None
    )


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
    assert rows["last5", "max_entropy", "accuracy"].measured == 1.0
    assert rows["3 participants", "max_entropy", "accuracy"].measured == 1.0


def test_the_outcome_is_written_and_drawn(outcome: Reproduction, tmp_path: Path) -> None:
    table, picture = write_reproduction(experiment_named("lyu2021-table3"), outcome, tmp_path)
    assert json.loads(table.read_text())["paper"] == "lyu2021"
    assert picture.read_text().startswith("<?xml")


def test_membership_and_its_refusal() -> None:
    attacks = paper.members_table("location30", True)[0].attacks
    pool = replace(
        SMALL, attacks=attacks, question="membership", claims={}, rounds=3, options={"public": 50}
    )
    found, notes = paper.score(pool, 0)
    assert {o.method: o.hits.mean() for o in found}["candidate_decode"] == 1.0
    assert not notes
    found, notes = paper.score(replace(pool, batch=8, epochs=2), 0)
    assert "gmm" in {o.method for o in found}
    assert len(found) + len(notes) == 2


def test_labels_unknown() -> None:
    asked = replace(
        SMALL, attacks={"joint_decode": JointDecode()}, labels_known=False, hidden=(96,)
    )
    (found,), _ = paper.score(asked, 0)
    assert found.measures["accuracy of labels"] == 1.0
    assert found.hits.mean() == 1.0


def test_f1_of_the_rarest_value() -> None:
    guess = AttributeValues(np.eye(2)[[0, 1, 1, 0, 0]], (0.0, 1.0))
    assert paper.rare_f1(guess, np.array([0.0, 1, 0, 0, 0])) == pytest.approx(2 / 3)
    assert paper.rare_f1(guess, np.array([0.0, 0, 0, 1, 0])) == 0.0
