"""Starting is quick: nothing heavy is imported until something needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.slow

HEAVY = frozenset({"torch", "sklearn", "pandas", "scipy"})


def heavy_after(statement: str) -> frozenset[str]:
    """Which heavy packages a new interpreter holds after the statement."""
    script = f"{statement}\nimport sys\nprint('loaded:', *sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    loaded = result.stdout.splitlines()[-1]
    assert loaded.startswith("loaded:")
    return HEAVY & set(loaded.split())


@pytest.mark.parametrize("package", ["overheard", "overheard.errors", "overheard.cli"])
def test_import_is_light(package: str) -> None:
    assert heavy_after(f"import {package}") == set()


def test_help_is_light() -> None:
    script = (
        "import sys\n"
        "from overheard.cli import main\n"
        "sys.argv = ['overheard', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code"
    )
    assert heavy_after(script) == set()


def test_transcript_needs_no_torch() -> None:
    """A recording can be read and shared where no learning framework is installed."""
    script = (
        "import importlib, pkgutil, overheard.transcript as t\n"
        "for m in pkgutil.walk_packages(t.__path__, t.__name__ + '.'):\n"
        "    importlib.import_module(m.name)"
    )
    assert "torch" not in heavy_after(script)


def test_the_check_can_fail() -> None:
    assert heavy_after("import sklearn") >= {"sklearn"}


def test_every_public_name_is_there_and_completed() -> None:
    import overheard

    for name in overheard.__all__:
        assert getattr(overheard, name).__doc__
        assert name in dir(overheard)
