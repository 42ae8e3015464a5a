from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig, FixData
from overheard.sweep.frontier import frontier
from overheard.sweep.grid import cells, parse_sweep

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
    folder = tmp_path / "small"
    described = parse_sweep({"base": SMALL, "attacks": ["majority"]})
    (only,) = cells(described)
    (folder / "cells").mkdir(parents=True)
    (folder / "sweep.json").write_text(described.model_dump_json())
    found = {"key": only.key, "utility": 0.5, "utility_is": "accuracy"}
    finding = {"attack": "majority", "metric": "accuracy", "attribute": "s", "lift": 0.1}
    result = json.dumps(found | {"findings": [finding]})
    (folder / "cells" / f"{only.key}.json").write_text(result)
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
