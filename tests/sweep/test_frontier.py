from __future__ import annotations

from typing import Any

import pytest

from overheard.errors import FixConfig, FixData
from overheard.sweep.frontier import frontier


def row(**changes: Any) -> dict[str, Any]:
    return {
        "defence": "none",
        "strength": 0.0,
        "seed": 0,
        "utility": 0.8,
        "utility_is": "accuracy",
        "error": None,
        "attack": "a",
        "question": "membership",
        "attribute": None,
        "metric": "accuracy",
        "value": 0.7,
        "lift": 0.2,
        **changes,
    }


def test_members_have_a_frontier_too() -> None:
    rows = [
        row(),
        row(defence="noise", strength=1.0, lift=0.05, utility=0.7),
        row(defence="more noise", strength=2.0, lift=0.1, utility=0.6),
    ]
    points = {p.defence: p for p in frontier(rows)}
    assert points["none"].leakage == 0.2
    assert points["none"].attribute == ""
    assert points["none"].best
    assert points["noise"].best
    assert not points["more noise"].best


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row(metric="f1", question="property", lift=None)], r"about property \(f1\)"),
        ([row(error="FixConfig: diverged", metric=None)], "1 cell.s. failed, the first with Fix"),
        ([row(metric=None)], "no attack ran"),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_why(
    rows: list[dict[str, Any]], complaint: str
) -> None:
    with pytest.raises(FixConfig, match=complaint):
        frontier(rows)


def test_numbers_that_do_not_add_up_are_refused() -> None:
    """A federation that diverged; found by fuzzing."""
    rows = [row(utility=1.7e308, seed=seed) for seed in (0, 1)]
    with pytest.raises(FixData, match="none 0: numbers too large"):
        frontier(rows)
