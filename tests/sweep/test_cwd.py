"""Standing in a stranger's folder: a sweep's workers import nothing from there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from overheard.sweep import run
run.measure = lambda cell, *rest: {"key": cell}
import os
assert "PYTHONSAFEPATH" not in os.environ
print(sorted(result["key"] for result in run.local_cells(2)(["a", "b"])))
assert "PYTHONSAFEPATH" not in os.environ, "the workers' environment stayed behind"
"""


def test_workers_do_not_import_what_lies_around(tmp_path: Path) -> None:
    for name in ("random", "json", "socket", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('pwned', 'a').write(__name__)\nraise SystemExit")
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],  # as the command does, whose own folder is elsewhere
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not (tmp_path / "pwned").exists()
    assert (done.stdout, done.returncode) == ("['a', 'b']\n", 0), done.stderr
