"""A file of results says by which command, at which commit and when it was measured."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest

from experiments import origin as module
from experiments.origin import origin


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one committed module, which the code believes to be in."""
    (tmp_path / "code.py").write_text("one = 1\n")
    who = ("-c", "user.name=a", "-c", "user.email=b@c")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "code.py"))
    return tmp_path


def test_the_commit_is_that_of_the_code(checkout: Path) -> None:
    words = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True).stdout
    today = datetime.date.today().isoformat()
    assert origin("how") == {"command": "how", "commit": head[:12], "date": today}
    (checkout / "results.json").write_text("{}")
    assert origin("how")["commit"] == head[:12]
    (checkout / "code.py").write_text("one = 2\n")
    assert origin("how")["commit"] == f"{head[:12]}+"


def test_without_a_checkout_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "code.py"))
    assert origin("how")["commit"] == ""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert origin("how")["commit"] == ""
