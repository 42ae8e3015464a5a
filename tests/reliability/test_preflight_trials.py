"""Preflight against the audit: what is counted, and one federation anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reliability import preflight as trials

pytestmark = pytest.mark.slow


def row(**changes: Any) -> dict[str, Any]:
    said = {"attribute secret": "ok", "membership": "not known"}
    client = {
        "audit": {"attribute secret": "no sign", "membership": "exposed"},
        "own records": dict(said),
        "whole config": dict(said),
    }
    found = {**trials.drawn(0, 0), "number": 0, "clients": {"a": client | changes.pop("a", {})}}
    return found | {"audit": {"attribute secret": "no sign"}} | changes


def faults(*found: dict[str, Any]) -> int:
    return sum(line["faults"] for line in trials.summary(found))


def test_a_fault_is_what_is_exposed_and_was_called_ok() -> None:
    assert faults(row()) == 0
    exposed = {"attribute secret": "exposed", "membership": "exposed"}
    assert faults(row(a={"audit": exposed})) == 2  # asked in two ways
    assert faults(row(a={"own records": {"attribute secret": "ok"}})) == 1  # never asked
    assert faults(row(audit={"attribute secret": "exposed"})) == 2  # of everybody together
    assert faults(row(a={"own records": {"refused": "no"}})) == 0


def test_a_federation_is_tried_and_not_tried_again(tmp_path: Path, monkeypatch: Any) -> None:
    asked = ["--trials", "1", "--seed", "7", "--out", str(tmp_path / "preflight.json")]
    monkeypatch.setattr("sys.argv", ["preflight.py", *asked])
    assert trials.main() == 0
    first = (tmp_path / "preflight" / "federations.json").read_text()
    (kept,) = json.loads(first).values()
    assert set(kept["clients"]["site 0"]) == {"audit", *trials.MODES}
    assert kept["command"].startswith("python -m reliability.preflight --trials 1 ")
    monkeypatch.setattr(trials, "tried", lambda *given: pytest.fail("it was there"))
    assert trials.main() == 0
    assert (tmp_path / "preflight" / "federations.json").read_text() == first
