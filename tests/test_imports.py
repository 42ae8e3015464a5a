"""Imports go one way: the contracts in pyproject.toml hold."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="needs overheard[dev]")
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def test_the_contracts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(str(ROOT / "pyproject.toml"), cache_dir=None, no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
