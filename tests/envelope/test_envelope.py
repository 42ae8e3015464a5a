"""A third of the envelope, and that what leaves it is noticed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.envelope.cases import CASES
from tests.envelope.measure import KEPT, Row, kept, left, measured, outside

pytestmark = pytest.mark.slow

RECORDED = kept()
QUICK = [name for name, case in CASES.items() if case.quick]


def test_every_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES), f"python -m tests.envelope record, see {KEPT}"
    assert {case.family for case in CASES.values()} >= {
        *("linear", "logistic", "network", "any training", "orders", "members", "sums"),
        *("several columns", "partial knowledge", "ladder", "trees", "newton", "statistics"),
        *("detect", "local models", "labels", "defended", "misdeclared", "null"),
    }
    for name, case in CASES.items():
        assert all(len(rows) == case.seeds for rows in RECORDED[name]["answers"].values())


@pytest.mark.parametrize("name", QUICK)
def test_it_is_within_the_envelope(name: str) -> None:
    case = CASES[name]
    if case.family == "trees":
        pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    assert left(RECORDED[name], measured(case)) == {}


def rows(score: float = 0.9, confidence: float = 0.9, wrong: int = 0, *marks: str) -> list[Row]:
    one = {"n": 40, "score": score, "confidence": confidence, "certain_wrong": wrong}
    return [{**one, "marks": list(marks)} for _ in range(5)]


def errors(score: float, spread: float = 0.0, larger: bool = False) -> list[Row]:
    return [{"n": 10, "marks": [], "larger": larger, "score": score + k * spread} for k in (-1, 1)]


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        (rows(), rows(0.85), "score 0.85"),
        (rows(), rows(confidence=0.96), "0.060 from accuracy"),
        (rows(), rows(confidence=0.83), "0.070 from accuracy"),
        (rows(confidence=0.99), rows(confidence=1.0, score=0.87), "0.130 from accuracy"),
        (rows(), rows(wrong=1), "certain and wrong"),
        (rows(), rows(0.9, 0.9, 0, "flag"), "flag in 5 of 5 seeds, must not come"),
        (rows(0.9, 0.9, 0, "flag"), rows(), "flag in 0 of 5 seeds, must come"),
        (rows(), [{"marks": ["refused"]}] * 5, "refused in 5 of 5 seeds, must not come"),
        ([{"marks": ["warned"]}] * 3, [{"marks": []}] * 3, "warned in 0 of 3 seeds, must come"),
        ([{"marks": []}] * 3, [{"marks": ["exposed"]}] * 3, "exposed in 3 of 3 seeds"),
        (errors(0.1), errors(0.11), "score -0.11, was -0.1"),
        (errors(0.8, larger=True), errors(0.7, larger=True), "score 0.7, was 0.8"),
    ],
)
def test_what_is_worse_is_outside(then: list[Row], now: list[Row], why: str) -> None:
    (named, *_) = [one for one in outside(then, now) if why in one]
    assert named
    assert outside(then, then) == []


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (rows(), rows(0.87)),
        (rows(), rows(0.99, 0.99)),
        (rows(confidence=0.98), rows(confidence=0.99)),
        (rows(0.9, 0.9, 0, "flag"), rows(0.9, 1.0, 4, "flag")),
        ([*rows()[:4], *rows(0.9, 0.9, 0, "flag")[:1]], rows()),
        ([*rows(0.5)[:1], {"marks": ["refused"]}], rows(0.5)[:2]),
        (errors(0.1, 0.05), errors(0.15, 0.05)),
        (errors(1e-9), errors(1e-6)),
        (errors(0.1), errors(0.0)),
    ],
)
def test_what_is_as_good_or_better_is_inside(then: list[Row], now: list[Row]) -> None:
    assert outside(then, now) == []


def test_other_messages_and_other_answers_are_outside() -> None:
    then = RECORDED["linear"]
    now: dict[str, Any] = copy.deepcopy(then)
    now["messages"][0][2] += 1e-3
    now["answers"].pop("majority")
    assert left(then, now).keys() == {"messages", "majority"}
