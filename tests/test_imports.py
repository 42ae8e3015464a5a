"""Imports go one way: the contracts in pyproject.toml hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from patience import ended

pytest.importorskip("importlinter", reason="needs overheard[dev]")


def test_the_contracts_are_kept() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = ended(command, Path(__file__).parents[1])
    assert done.returncode == 0, done.stdout
