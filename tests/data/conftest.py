"""Fixtures of the data tests: sources that may be missing, and a machine that has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.data import SOURCES


@pytest.fixture
def need() -> Callable[[str], None]:
    """Skip a test whose real files are not here, and say how to get them."""

    def check(source: str) -> None:
        if SOURCES[source].find() is None:
            pytest.skip(f"{source} is not here: {SOURCES[source].remedy}")

    return check


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data folder and an empty cache; the cache's path."""
    monkeypatch.delenv("OVERHEARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "overheard"
