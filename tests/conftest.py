"""What every test shares: repeatable random streams and a property-test profile."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from patience import ended

# Before anything imports numpy: more threads than cores only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Modules are compiled once, and not by each of the processes that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import numpy as np
import pytest
from federations import generated_people, recorded
from generated import write_csv
from hypothesis import HealthCheck, settings

from overheard import Recording, terminal
from overheard.cli import main

sys.dont_write_bytecode = False  # of this process: what pytest makes of the tests' modules


FIRST = ("test_flower", "test_flare", "test_recipes.py", "test_demo.py")
"""Tests and files that take longest. FLARE's jobs run while Flower's apps do."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes begins first, or one worker would wait for the other at the end.

    What compares times is left out unless it is named: ``-m "not slow"`` stands in for the
    ``-m "not timing"`` of pyproject.toml, and a busy machine must not fail a test.
    """
    if "timing" not in config.option.markexpr:
        timed = [item for item in items if item.get_closest_marker("timing")]
        config.hook.pytest_deselected(items=timed)
        items[:] = [item for item in items if item not in timed]
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: min(places.get(n, len(FIRST)) for n in (item.name, item.path.name)))


# No deadline, because the workers of pytest-xdist share the cores and a slow machine is not a
# bug. The same examples every time, because a red run must be repeatable by whoever reads it.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# To hunt for new examples: pytest --hypothesis-profile=search
settings.register_profile(
    "search", settings.get_profile("repeatable"), derandomize=False, max_examples=2000
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """What a test writes need not outlive the machine: waiting for the disk would take most of the
    time of recording. Processes that tests start do wait (``experiments/robustness/chaos.py``)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def _our_loggers_are_on() -> None:
    """A framework that configures logging in this process switches off the loggers of others."""
    for name in ("overheard", "overheard.guard"):
        logging.getLogger(name).disabled = False


@pytest.fixture(autouse=True)
def talkative() -> None:
    """A command that ran before with --quiet or --json must not silence this test."""
    terminal.take_flags([])


@pytest.fixture
def rng() -> np.random.Generator:
    """A fresh stream per test, so that no test depends on another's draws."""
    return np.random.default_rng(20210501)


@pytest.fixture
def federate(tmp_path: Path) -> Callable[..., Recording]:
    """Record a small federation of generated people: ``federate(model, **training)``.

    Its attribute ``s`` (0 or 1) moves both a public column and the label, so there is something
    to learn; ``change`` may alter the records before training.
    """
    made = itertools.count()
    return lambda *words, **settings: recorded(tmp_path / f"run-{next(made)}", *words, **settings)


class Workplace:
    """A folder with a small federation's config, in which the command is run."""

    CONFIG = """
[data]
source = "file"
path = "people.csv"
client = "at"
target = "y"
[model]
name = "linear"
[training]
rounds = 8
learning_rate = 0.1
participation = 0.67
[audit]
attributes = ["s"]
"""

    def __init__(self, path: Path) -> None:
        self.path = path
        dataset = generated_people(clients=3, people=30, columns=2, seed=1)
        columns = dict(dataset.records.columns)
        columns["at"] = np.array([f"site {c}" for c in columns["at"]])
        write_csv(path / "people.csv", columns)
        (path / "federation.toml").write_text(self.CONFIG)

    SCREEN = {"COLUMNS": "100", "NO_COLOR": "1"}

    def process(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``overheard WORDS`` here, as a user would: in a process of its own."""
        program = str(Path(sys.executable).with_name("overheard"))
        return ended([program, *words], self.path, **self.SCREEN)

    def overheard(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The same in this process: the same entry point without a second's start."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.SCREEN),
            mock.patch.object(sys, "argv", ["overheard", *words]),
            contextlib.chdir(self.path),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        code = ended.value.code
        return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())

    def done(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The same, which ends well."""
        ended = self.overheard(*words)
        assert ended.returncode == 0, ended.stderr
        return ended

    def refused(self, *words: str) -> str:
        """The same, which ends with code 1: what it says of it."""
        ended = self.overheard(*words)
        assert ended.returncode == 1, ended.stdout
        return ended.stderr

    def contents(self) -> dict[str, bytes]:
        """Every file and its bytes; folders too."""
        return {
            str(p.relative_to(self.path)): p.read_bytes() if p.is_file() else b"folder"
            for p in sorted(self.path.rglob("*"))
        }


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a recording ``run``, made once by the real command."""
    place = Workplace(tmp_path_factory.mktemp("recorded"))
    done = place.process("simulate", "federation.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def workplace(tmp_path: Path, _recorded: Workplace) -> Workplace:
    """A folder of one's own with ``federation.toml``, ``people.csv`` and the recording ``run``."""
    place = Workplace(tmp_path)
    shutil.copytree(_recorded.path / "run", tmp_path / "run")
    return place


LOOPBACK_ONLY = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@pytest.fixture(scope="session")
def on_loopback() -> tuple[str, ...]:
    """Words to put before a command so that it sees no network but loopback; none if impossible."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return ()
    tried = subprocess.run([*LOOPBACK_ONLY, "true"], capture_output=True, check=False)
    return () if tried.returncode else LOOPBACK_ONLY


@pytest.fixture(scope="session")
def loopback_only(on_loopback: tuple[str, ...]) -> tuple[str, ...]:
    """The same, for who must not be heard elsewhere; or skip."""
    if not on_loopback:
        pytest.skip("no network namespaces here, and Ray listens on every interface that it sees")
    return on_loopback
