"""Every attack in ``attempts/`` gets the error that it must get, soon and in little memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from scripts import load

pytestmark = pytest.mark.slow

attempting = load(Path(__file__).with_name("attempting.py"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "run"
    attempting.sound(path)
    return path


@pytest.mark.parametrize("name", attempting.names())
def test_attempt(name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    outcome = attempting.attempt(name, tmp_path, made)
    assert attempting.judged(name, outcome) == ""
    assert "\n" not in outcome
    assert len(outcome) < 2000
    assert time.process_time() - begin < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
    assert not (tmp_path / "pwned").exists()


def test_the_sound_recording_is_read(tmp_path: Path) -> None:
    """Else every attempt on it could be refused for another reason."""
    attempting.sound(tmp_path / "run")
    attempting.READERS["recording"](tmp_path)
    attempting.READERS["verify"](tmp_path)
