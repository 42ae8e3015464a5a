"""Ten kills; `python -m reliability.chaos` does many times more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    out = tmp_path / "chaos.json"
    words = ["--trials", "10", "--seed", "3", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "reliability.chaos", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    kills = json.loads(out.read_text())["rows"]
    assert [row["trials"] for row in kills] == [2] * 5
    assert [row["faults"] for row in kills] == [0] * 5
    assert sum(int(row["outcome"].split()[0]) for row in kills) >= 6
