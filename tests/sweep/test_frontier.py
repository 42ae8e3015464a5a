from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig
from overheard.report.advice import Mean
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
    assert told["recommended"] is None
    assert (folder / "frontier.html").read_text().startswith("<!doctype html>")


def test_members_have_a_frontier_too() -> None:
    rows = [
        row(),
        row(defence="noise", strength=1.0, lift=0.05, utility=0.7),
        row(defence="more noise", strength=2.0, lift=0.1, utility=0.6),
    ]
    points = {p.defence: p for p in frontier(rows)}
    assert points["none"].leakage == Mean(0.2)
    assert points["none"].attribute == ""
    assert points["none"].best
    assert points["noise"].best
    assert not points["more noise"].best


def test_a_setting_at_which_the_decoder_failed_is_not_recommended() -> None:
    leaky = row(lift=0.4, utility=0.5, bits=0.9)
    misled = row(defence="epochs", lift=0.0, utility=0.9, bits=-2.0)
    one, two = frontier([leaky, misled])
    assert (one.best, one.doubtful) == (True, False)
    assert (two.best, two.doubtful) == (False, True)


def test_one_setting_is_recommended_or_none() -> None:
    """As good as the best as far as seeds tell, then the smallest epsilon; never one that leaks,
    is worth no more than the majority baseline, or needs no change."""

    def rows(name: str, lift: float, worth: float, epsilon: float | None, **more: Any) -> list[Any]:
        return [
            row(defence=name, seed=s, lift=lift, utility=worth + s / 50, epsilon=epsilon,
                utility_majority=0.6, people_known=0, level="no sign", **more)
            for s in (0, 1, 2)
        ]  # fmt: skip

    leaky = rows("none", 0.3, 0.9, None) + rows("exposed", 0.01, 0.9, 3.0)
    leaky = [r | {"level": "exposed"} for r in leaky]
    loose, tight = rows("loose", 0.0, 0.80, 4510.0), rows("tight", 0.0, 0.79, 12.0)
    useless, known = rows("useless", 0.0, 0.5, 1.0), rows("known", 0.0, 0.85, 1.0)
    known = [r | {"people_known": 2} for r in known]

    def chosen(*groups: list[Any]) -> list[str]:
        return [p.name for p in frontier([r for g in groups for r in g]) if p.chosen]

    assert chosen(leaky, loose, tight, useless, known) == ["tight"]
    assert chosen(leaky, useless, known) == []
    assert chosen(rows("none", 0.0, 0.9, None), tight) == []
    (point,) = (p for p in frontier(leaky + tight) if p.name == "tight")
    assert point.utility.low < 0.79 < point.utility.high
    assert frontier([row()])[0].utility == Mean(0.8)  # one seed has no interval


@pytest.mark.parametrize("other", [{"threat": "secure-server"}, {"audited": 5}])
def test_other_listeners_or_clients_are_not_mixed(other: dict[str, Any]) -> None:
    plain = row(threat="eavesdropper", audited=3)
    with pytest.raises(FixConfig, match=r"audited under different .* no figure compares"):
        frontier([plain, plain | {"defence": "noise"} | other])


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
