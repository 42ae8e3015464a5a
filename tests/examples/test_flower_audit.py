from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_audit"


def test_the_example_ends_in_a_report(tmp_path: Path, loopback_only: tuple[str, ...]) -> None:
    """The one command of its README, on few people: a real federation is decoded."""
    for package in ("flwr", "ray"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'flwr[simulation]'")
    done = subprocess.run(
        [*loopback_only, sys.executable, str(EXAMPLE / "run.py"), "out", "--people", "40"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    audit = json.loads((tmp_path / "out" / "audit" / "audit.json").read_text())
    decoded = {
        row["attribute"]: row["value"] for row in audit["pooled"] if row["attack"] == "max_entropy"
    }
    assert set(decoded) == {"female", "black", "physlm"}
    assert min(decoded.values()) > 0.99
    assert [replay["outcome"] for replay in audit["replays"]] == ["fits"] * 6
    assert any("'num-examples' of 6 client(s)" in note for note in audit["notes"])
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Sent in the clear besides the models" in report
