"""What was recorded and decoded before comes out the same."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("pinned_cases", Path(__file__).with_name("cases.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
cases: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)

KEPT = json.loads(cases.PINNED.read_text())
CLOSE = 1e-6
"""Relative, of every number: what other processors' arithmetic does is a thousand times smaller."""


def test_every_case_is_pinned() -> None:
    assert list(KEPT) == list(cases.CASES)


@pytest.mark.parametrize("name", cases.CASES)
def test_it_comes_out_the_same(name: str, tmp_path: Path) -> None:
    found = cases.measured(cases.CASES[name], tmp_path / "run")
    before = KEPT[name]
    assert found.keys() == before.keys()
    assert found.pop("messages") == before["messages"], "other bytes on the wire"
    for attack, now in found.items():
        then = before[attack]
        if "refused" in then or "refused" in now:
            assert now == then, attack
            continue
        assert now["flag"] == then["flag"], attack
        assert now["value"] == pytest.approx(then["value"], rel=CLOSE, abs=CLOSE), attack
        assert now["guess"] == pytest.approx(then["guess"], rel=CLOSE, abs=CLOSE), attack
