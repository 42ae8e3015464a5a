"""What `make quick` runs is there, and no part of the package is without a test in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def chosen() -> list[Path]:
    """The paths in the command that make would give."""
    words = ["make", "--dry-run", "--always-make", "--assume-old=.venv/.installed", "quick"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = [line for line in shown.splitlines() if "-m pytest" in line]
    return [ROOT / word for word in command.split() if word.startswith("tests/")]


def test_every_part_has_a_quick_test() -> None:
    paths = chosen()
    assert all(path.exists() for path in paths)
    assert len(set(paths)) == len(paths)
    inside = {path.relative_to(ROOT / "tests").parts[0] for path in paths}
    packages = {path.parent.name for path in (ROOT / "src" / "overheard").glob("*/__init__.py")}
    assert packages <= inside, f"add a quick test of {sorted(packages - inside)} to the Makefile"
