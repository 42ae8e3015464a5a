"""Ten kills, hundreds of flipped bits and some full disks; `make chaos` does many times more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "reliability" / "chaos.py"), "--quick", "--seed", "3",
         "--out", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    tables = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    assert tables.keys() == {"chaos", "damage", "disks"}
    for content in tables.values():
        assert content.keys() == {"title", "command", "rows"}
        for row in content["rows"]:
            assert row.keys() == {"what", "trials", "faults", "outcome"}
    kills = tables["chaos"]["rows"]
    assert sum(row["trials"] for row in kills) == 10
    assert sum(row["faults"] for row in kills) >= 6
    assert all(" 0 trials went wrong" in row["outcome"] for row in kills)
