"""Standing in a stranger's folder: a sweep's workers import nothing from there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.slow

# Without a guard, as whoever calls it from a few lines writes it: no worker runs the script again.
# np.maximum stands in for what measures a cell: it comes of a package that lies around, too.
SCRIPT = """
import os
import numpy as np
from overheard.workers import in_processes
print("once")
assert "PYTHONSAFEPATH" not in os.environ
print(sorted(int(result) for result in in_processes(np.maximum, [(1, 2), (1, 3)], 2, "cell")))
assert "PYTHONSAFEPATH" not in os.environ, "the workers' environment stayed behind"
"""


def test_workers_do_not_import_what_lies_around(tmp_path: Path) -> None:
    script, here = tmp_path / "elsewhere" / "script.py", tmp_path / "here"
    for folder in (script.parent, here):
        folder.mkdir()
    script.write_text(SCRIPT)
    for name in ("random", "json", "socket", "numpy"):
        (here / f"{name}.py").write_text("open('pwned', 'a').write(__name__)\nraise SystemExit")
    done = subprocess.run(
        [sys.executable, str(script)],  # as the command, whose own folder is elsewhere
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert not (here / "pwned").exists()
    assert (done.stdout, done.returncode) == ("once\n[2, 3]\n", 0), done.stderr
