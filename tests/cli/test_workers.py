"""An audit on several workers is the audit on one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ATTACKS = ["--attack", "majority", "--attack", "max_entropy", "--attack", "exact_linear"]


def without_seconds(file: Path) -> str:
    return re.sub(r'"seconds": [^,\n}]+', "", file.read_text())


def test_two_workers_write_what_one_writes(workplace: Any, monkeypatch: Any) -> None:
    """And what they found is not looked for again: the parent has only to put it together."""
    one = workplace.overheard("audit", "run", "--out", "one", *ATTACKS)
    assert one.returncode == 0, one.stderr

    from overheard.evaluation import audit

    def twice(*given: Any, **more: Any) -> Any:
        raise AssertionError("what the workers did is done again")

    monkeypatch.setattr(audit, "_outcome", twice)
    two = workplace.overheard("audit", "run", "--out", "two", *ATTACKS, "--workers", "2")
    assert two.returncode == 0, two.stderr
    files = [workplace.path / name / "audit.json" for name in ("one", "two")]
    assert without_seconds(files[0]) == without_seconds(files[1])
    assert len(json.loads(files[1].read_text())["replays"]) == 3
    assert {p.name for p in files[1].parent.iterdir()} == {"audit.json", "report.html"}
