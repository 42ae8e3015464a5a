"""Scores of who has a property, the ranked list, and what cannot be told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import digit_images, simulated

from overheard.attacks.property import MatchedFilter
from overheard.errors import FixData, FixRecording
from overheard.evaluation.audit import audit
from overheard.evaluation.detection import remarks
from overheard.evaluation.scoring import ALL_CLIENTS, Case, Scorer
from overheard.programs.records import Records
from overheard.questions.property import f1_interval
from overheard.report import headline
from overheard.report.html import render
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import RoundSum
from overheard.transcript.knowledge import Sums
from overheard.transcript.store import POSITIVE_COLUMN, Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER
from overheard.transcript.view import View

POISONING = client_property("poisoning")
CLIENTS = tuple("abcdefgh")
OPTIONS = {"clients": 10, "records": 60, "auxiliary": 60}
ATTACK = MatchedFilter(every=20)


def property_scorer(answers: dict[str, Records], view: View) -> Scorer:
    recipe: Any = None  # of no use to who is asked about clients
    return Case(recipe, {}, POISONING, view, 0, answers).scorer()


def flags(text: str) -> np.ndarray:
    return np.array([c == "1" for c in text])


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recording]:
    def make(**training: Any) -> Recording:
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        usual = {"rounds": 30, "learning_rate": 0.001, "participation": 0.5, **training}
        asked = {"kind": "inversion", "positives": 2}
        return digit_images(path, property_=asked, options=OPTIONS, **usual)

    return make


# --- scores -----------------------------------------------------------------------------------


def test_the_interval_does_not_collapse_on_a_perfect_guess() -> None:
    rng = np.random.default_rng(0)
    truth = flags("1" * 5 + "0" * 45)
    low, high = f1_interval(truth, truth, rng)
    assert high == 1.0
    assert 0.6 < low < 0.9
    more = flags("1" * 50 + "0" * 450)
    assert f1_interval(more, more, rng)[0] > low
    nobody = flags("0" * 50)
    assert f1_interval(nobody, nobody, rng) == (0.0, 1.0)  # nothing to tell a good guess by
    assert f1_interval(nobody, truth, rng)[0] == 0.0


def observed(rounds: int = 12, clients: tuple[str, ...] = CLIENTS) -> Sums:
    rng = np.random.default_rng(4)
    nothing = np.zeros(3, np.float32)

    def one(number: int) -> RoundSum:
        took_part = np.sort(rng.choice(len(clients), 4, replace=False))
        return RoundSum(number, nothing, rng.normal(size=3), took_part)

    return Sums.of_rounds(clients, map(one, range(rounds)))


def scored(
    chosen: str, positive: str, probabilities: np.ndarray | None = None, **diagnostics: str
) -> Any:
    sums = observed()
    view = View("", POISONING, "secure-server", {Sums: sums})
    truth = {
        c: Records({POSITIVE_COLUMN: np.array([float(p)])})
        for c, p in zip(CLIENTS, flags(positive), strict=True)
    }
    p = flags(chosen).astype(float) if probabilities is None else probabilities
    guess = ClientProperty(p, flags(chosen), CLIENTS, diagnostics)
    return property_scorer(truth, view)(ATTACK, guess, 1.5).finding


def test_a_finding_says_what_is_right_and_what_is_not() -> None:
    found = scored("11100000", "11010000")
    assert found.metric == "f1"
    assert found.value == pytest.approx(2 / 3)
    assert found.client == ALL_CLIENTS
    assert found.n == 8
    assert found.majority == pytest.approx(2 * 3 / (8 + 3))  # accusing everybody
    assert found.lift == pytest.approx(found.value - found.majority)
    assert found.low <= found.value <= found.high
    details = found.details
    assert (details["found"], details["positives"], details["false_alarms"]) == (2, 3, 1)
    assert details["precision"] == pytest.approx(2 / 3)
    assert details["recall"] == pytest.approx(2 / 3)
    assert details["brier"] == pytest.approx(2 / 8)
    half = scored("00000000", "11010000", np.full(8, 0.5))
    assert half.details["brier"] == pytest.approx(0.25)
    assert "precision" not in half.details


def test_where_nobody_or_everybody_has_it_no_guess_beats_a_constant_one() -> None:
    for positive in ("00000000", "11111111"):
        for chosen in ("00000000", "11111111", "10000000"):
            found = scored(chosen, positive)
            assert found.majority == 1.0
            assert found.lift <= 0
    assert scored("11000000", "00000000").details["false_alarms"] == 2
    assert "recall" not in scored("11000000", "00000000").details


def test_an_answer_that_flags_itself_accuses_nobody() -> None:
    found = scored("11100000", "11010000", flag="too small to tell: words")
    assert found.value == pytest.approx(2 / 3)
    assert found.p_value is None
    assert found.suspects == ()
    assert "false_alarms" not in found.details


def test_guesses_about_others_are_refused() -> None:
    view = View("", POISONING, "secure-server", {Sums: observed()})
    truth = {c: Records({POSITIVE_COLUMN: np.zeros(1)}) for c in CLIENTS}
    score = property_scorer(truth, view)
    with pytest.raises(FixData, match="2 guesses for 8 clients"):
        score(ATTACK, ClientProperty(np.zeros(2), (False, False), ("a", "b")), 0.0)
    with pytest.raises(FixRecording, match="does not say whether 'h' has the property"):
        property_scorer({c: truth[c] for c in "abcdefg"}, view)


# --- what cannot be told ----------------------------------------------------------------------


def test_clients_that_never_or_always_take_part_are_remarked() -> None:
    sums = observed()
    matrix = sums.participation.copy()
    matrix[:, 0], matrix[:, 1], matrix[:, 3] = 0, 1, matrix[:, 2]
    said = remarks(replace(sums, participation=matrix))
    assert "never took part" in said["a"]
    assert "every round" in said["b"]
    assert said["d"] == "took part in the same rounds as c"
    assert set(said) == {"a", "b", "d"}


# --- the audit --------------------------------------------------------------------------------


def test_an_audit_asks_a_property_once_of_everybody(record: Callable[..., Recording]) -> None:
    recording = record()
    made = audit(recording, SECURE_SERVER, [ATTACK])
    (found,) = made.findings
    assert found.value == 1.0
    assert found.client == ALL_CLIENTS
    (pooled,) = made.pooled
    assert (pooled.value, pooled.low, pooled.high) == (found.value, found.low, found.high)
    assert pooled.clients == 10
    (sentence,) = headline(made)
    assert made.level == "exposed"
    for told in ("poisons", "2 of 2 found", "0 false alarms", f"F1 1.00 ({found.low:.2f}", "0.33"):
        assert told in sentence


def test_who_does_not_hear_sums_is_told_so(record: Callable[..., Recording]) -> None:
    recording = record(rounds=3)
    made = audit(recording, EAVESDROPPER, [ATTACK])
    assert not made.findings
    (skip,) = made.skipped
    assert skip.client == ALL_CLIENTS
    assert "audit as 'secure-server'" in skip.reason


# --- the ranked list --------------------------------------------------------------------------


def test_the_accused_come_first_and_no_truth_is_needed(record: Callable[..., Recording]) -> None:
    recording = record()
    truth = recording.truth("Property", POISONING.key)
    (found,) = audit(recording, SECURE_SERVER, [ATTACK]).findings
    listed = found.suspects
    assert {s.client for s in listed[:2]} == {c for c, r in truth.items() if r[POSITIVE_COLUMN][0]}
    assert [s.accused for s in listed] == [True] * 2 + [False] * 8
    assert sorted(s.client for s in listed) == sorted(recording.clients)
    assert sum(s.rounds for s in listed) == 30 * 5
    assert listed[0].client in render(audit(recording, SECURE_SERVER, [ATTACK]))
    shutil.rmtree(recording.path / "truth")
    made = audit(recording, SECURE_SERVER, [ATTACK], targets=["property.poisoning"])
    (blind,) = made.findings
    assert blind.suspects == listed
    assert (made.level, blind.level, blind.low, blind.high) == (*["not measured"] * 2, 0, 1)
    assert "truth/ does not say which clients have it" in blind.why


def test_single_updates_are_summed_first(record: Callable[..., Recording]) -> None:
    content = record().about["config"]
    recording = simulated(record().path.parent / "plain", {**content, "defence": []})
    (found,) = audit(recording, SECURE_SERVER, [ATTACK]).findings
    assert found.value == 1.0
