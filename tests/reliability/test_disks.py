"""Full disks and second writers: a clear line each.

A limit on file sizes stands in for a full disk.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import ChooseAnotherOutput
from overheard.transcript.store import Recorder
from overheard.transcript.verify import verify


@contextlib.contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """No file may grow beyond this, for the time being."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("count", [0, 100, 1000, 3000])
def test_a_simulation_on_a_full_disk(workplace: Any, count: int) -> None:
    with files_of_at_most(count):
        done = workplace.overheard("simulate", "federation.toml", "--out", "new")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: new/")
    assert line.endswith(": File too large; make room: what was finished is kept")
    found = verify(workplace.path / "new")
    assert found.problems == ()
    assert found.unfinished
    assert not list((workplace.path / "new").rglob("*.part"))


def test_a_report_on_a_full_disk(workplace: Any) -> None:
    words = ["audit", "run", "--out", "a", "--attack", "majority", "--no-rounds"]
    assert workplace.overheard(*words).returncode == 0
    for name in ("r.html", "r.md", "r.json"):
        with files_of_at_most(300):
            done = workplace.overheard("report", "a/audit.json", "--out", name)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {name}: cannot be written (File too large)")
    assert not [p for p in workplace.path.iterdir() if p.name.startswith(("r.", ".r."))]


def test_two_recorders_that_start_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see that nothing is there; the one that comes second is refused all the same."""
    first = Recorder(tmp_path / "run")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(ChooseAnotherOutput, match="exists already; choose another path"):
        Recorder(tmp_path / "run")
    monkeypatch.undo()
    first.close()
    assert verify(tmp_path / "run").sound
