"""An audit on several workers is the audit on one, and several are started where it is worth it."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report_words import without_seconds

from overheard import workers
from overheard.evaluation.parts import Asked
from overheard.workers import shared_out

pytestmark = pytest.mark.slow

ATTACKS = ["--attack", "majority", "--attack", "max_entropy", "--attack", "exact_linear"]


@pytest.mark.parametrize("asked", [["--workers", "2"], []])
def test_two_workers_write_what_one_writes(
    workplace: Any, monkeypatch: Any, asked: list[str]
) -> None:
    """Asked for two from the start, this process attacks nobody; asked for nothing it begins, with
    one client, and is joined as soon as work for two is ahead."""
    workplace.done("audit", "run", "--out", "one", *ATTACKS, "--workers", "1")
    monkeypatch.setattr(workers, "ONCE", 0.0)
    monkeypatch.setattr(workers, "WORTH", 1e-6)
    monkeypatch.setattr(workers, "room", lambda: 2)
    real, attacked = Asked.tried, set()

    def tried(asked: Any, attack: Any, target: Any, client: str, *how: Any) -> Any:
        attacked.add(client if len(how) == 1 else "curves")
        return real(asked, attack, target, client, *how)

    monkeypatch.setattr(Asked, "tried", tried)
    workplace.done("audit", "run", "--out", "two", *ATTACKS, *asked)
    assert attacked - {"curves"} == (set() if asked else {"site 0"})
    alone, both = ((workplace.path / n / "audit.json").read_text() for n in ("one", "two"))
    assert without_seconds(alone) == without_seconds(both)
    assert len(json.loads(both)["replays"]) == 3
    assert {p.name for p in (workplace.path / "two").iterdir()} == {"audit.json", "report.html"}


def test_processes_are_started_where_there_is_work_and_room_for_them(monkeypatch: Any) -> None:
    """Long work is announced, and starting a process must be worth it."""

    def used(seconds: float, room: int) -> tuple[list[Any], list[str]]:
        now, said = [0.0], list[str]()

        def task(call: int) -> str:
            now[0] += seconds
            return "here"

        clocks = dict.fromkeys(("monotonic", "process_time"), lambda: now[0])
        monkeypatch.setattr(workers, "time", SimpleNamespace(**clocks))
        monkeypatch.setattr(workers, "room", lambda: room)
        monkeypatch.setattr(
            workers, "in_processes", lambda task, calls, many, _: [many] * len(calls)
        )
        return list(shared_out(task, [(k,) for k in range(40)], "", "", said.append)), said

    assert used(0.1, 8) == (["here"] * 40, [])
    assert used(1.0, 8) == (["here"] * 8 + [2] * 32, [])
    assert used(4.0, 8) == (["here"] + [3] * 39, [])
    assert used(60.0, 8) == (["here"] + [8] * 39, ["about 5 minutes more"])
    assert used(60.0, 1) == (["here"] * 40, ["about 37 minutes more"])


def test_there_is_room_for_as_many_as_memory_holds(monkeypatch: Any) -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("no Linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for many in (0, 3, 100):
        text = f"MemFree: 1 kB\nMemAvailable:  {many * largest + largest // 2} kB\n"
        monkeypatch.setattr(Path, "read_text", lambda self, text=text: text)
        assert workers.room() == min(many, 64)
