from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig
from overheard.sweep.frontier import frontier
from overheard.sweep.grid import parse_sweep
from overheard.sweep.run import sweep

pytestmark = pytest.mark.slow

SMALL = {
    "data": {"source": "randhie"},
    "model": {"name": "linear"},
    "training": {"rounds": 1, "learning_rate": 0.1},
}


def row(**changes: Any) -> dict[str, Any]:
    found = {"attack": "a", "question": "membership", "attribute": None, "metric": "accuracy"}
    cell = {"defence": "none", "strength": 0.0, "seed": 0, "error": None, "utility": 0.8}
    return cell | found | {"utility_is": "accuracy", "value": 0.7, "lift": 0.2} | changes


def test_the_command_line_tells_where_its_points_come_from(tmp_path: Path) -> None:
    base = {**SMALL, "audit": {"attributes": ["black"]}}
    described = parse_sweep({"base": base, "attacks": ["majority"], "clients": ["site 5"]})
    folder = sweep(described, tmp_path / "small")
    words = [sys.executable, "-m", "overheard", "--json", "frontier", str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    assert parse_sweep(told["sweep"]) == described
    (point,) = told["points"]
    assert point["attack"] == "majority"
    assert told["command"] == "overheard sweep small.toml --out small"


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


def test_a_setting_at_which_the_decoder_failed_is_not_recommended() -> None:
    leaky = row(lift=0.4, utility=0.5, bits_gained=0.9)
    misled = row(defence="epochs", lift=0.0, utility=0.9, bits_gained=-2.0)
    one, two = frontier([leaky, misled])
    assert (one.best, one.doubtful) == (True, False)
    assert (two.best, two.doubtful) == (False, True)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row(metric="f1", question="property", lift=None)], "holds what there is$"),
        ([row(error="FixConfig: diverged", metric=None)], "a cell failed with FixConfig: diverged"),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_why(
    rows: list[dict[str, Any]], complaint: str
) -> None:
    with pytest.raises(FixConfig, match=complaint):
        frontier(rows)
