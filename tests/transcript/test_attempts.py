"""Every attack in ``attempts/`` gets the error that it must get, soon and in little memory."""

from __future__ import annotations

import resource
import shutil
import time
import tomllib
from pathlib import Path

import pytest
from scripts import load

from overheard.errors import OverheardError

pytestmark = pytest.mark.slow

attempting = load(Path(__file__).with_name("attempting.py"))
FILES = sorted(Path(__file__).with_name("attempts").glob("*.toml"))
ATTEMPTS = {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in FILES}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "run"
    attempting.sound(path)
    return path


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, outcome = ATTEMPTS[name], ""
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    shutil.copytree(made, tmp_path / "run")
    for step in said.get("step", []):
        attempting.change(step, tmp_path)
    try:
        attempting.READERS[said["reader"]](tmp_path)
    except OverheardError as error:
        outcome = f"{type(error).__name__}: {error}"
    assert outcome == "" if said.get("right", False) else said["error"] in outcome
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
