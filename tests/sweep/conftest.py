"""Networks of one's own, as the recorders' tests have them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_file = Path(__file__).parents[1] / "federation" / "recorders" / "conftest.py"
_spec = importlib.util.spec_from_file_location("recorders_conftest", _file)
assert _spec is not None
assert _spec.loader is not None
_theirs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_theirs)


@pytest.fixture(scope="session")
def loopback_only() -> tuple[str, ...]:
    """Words to put before a command so that it sees no network but loopback; or skip."""
    if not _theirs.namespaces():
        pytest.skip("no network namespaces here, and Ray listens on every interface that it sees")
    words: tuple[str, ...] = _theirs.LOOPBACK_ONLY
    return words
