"""The commands whose code is in the repository alone: found there, and missed in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import overheard
from overheard.cli import outside
from overheard.cli.outside import repository

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NAMED = '[project]\nname = "overheard"\n'
COMMAND = """import typer
app = typer.Typer()
@app.command()
def run(words: list[str]) -> None:
    print("here:", *words)
    raise typer.Exit(len(words))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package alone, as a wheel leaves it: there is nothing beside it."""
    site = tmp_path / "site-packages"
    package = Path(overheard.__file__).parent
    shutil.copytree(package, site / "overheard", ignore=shutil.ignore_patterns("__pycache__"))
    return site


def run(site: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "overheard", *words],
        env={"PYTHONPATH": str(site), "PATH": ""},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of nothing but commands that repeat what they are told."""
    root = tmp_path / "checkout"
    for package in ("papers", "benchmarks"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
        (root / package / "command.py").write_text(COMMAND)
    (root / "pyproject.toml").write_text(NAMED)
    return root


@pytest.mark.parametrize(
    ("words", "folder"), [(("reproduce", "--help"), "papers"), (("bench", "x"), "benchmarks")]
)
def test_a_wheel_says_that_it_has_none(installed: Path, words: Any, folder: str) -> None:
    done = run(installed, installed.parent, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: overheard {words[0]} needs the folder {folder}/ of overheard's")
    assert "run it inside a checkout" in line


def test_the_current_folder_may_be_a_checkout(installed: Path, checkout: Path) -> None:
    done = run(installed, checkout, "bench", "a", "--quick", "b")
    assert done.returncode == 2  # an option that the command does not have
    assert "See `overheard bench --help`." in done.stderr
    done = run(installed, checkout, "reproduce", "a", "b", "c")
    assert (done.returncode, done.stdout) == (3, "here: a b c\n")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("pyproject.toml", content) for content in (
            b'[project]\nname = "another"', b"project = 3", b"", b"not = [toml", b"\xff\xfe",
            None)),
        ("papers/command.py", None),
        ("benchmarks/command.py", None),
    ],
)  # fmt: skip
def test_another_project_or_a_part_is_not_taken_for_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: bytes | None
) -> None:
    monkeypatch.setattr(outside, "_places", lambda: iter([checkout]))
    assert repository() == checkout
    (checkout / file).unlink()
    if content is not None:
        (checkout / file).write_bytes(content)
    assert repository() is None


def test_an_editable_install_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert repository() == ROOT
