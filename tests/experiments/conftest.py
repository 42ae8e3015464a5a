"""What experiments keep is kept in a test's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import recordings, runner


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (recordings, runner):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
