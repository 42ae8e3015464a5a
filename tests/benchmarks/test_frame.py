"""The frame that measures: ratios, their spread, memory, the guard. Speeds are not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from benchmarks import frame
from benchmarks.command import app
from benchmarks.runner import child, run
from benchmarks.runner.catalogue import chosen, entries, growths, side_named
from benchmarks.runner.entry import Check, Entry, Growth, Job, Opponent, Side
from overheard.cli import run as cli
from overheard.errors import FixConfig
from overheard.origin import origin

pytestmark = pytest.mark.slow


def busy(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def sleeper(seconds: float, **facts: Any) -> Side:
    """A party that works so long (the name says so: parties are told apart by it)."""

    def prepare(sizes: Any, folder: Path) -> Job:
        def work() -> dict[str, Any]:
            busy(seconds)
            return dict(facts)

        return Job(work)

    return Side(f"works {seconds:g} s", prepare)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties of a test are unknown to another process: measure here."""

    def measured(name: str, side: Side, sizes: Any, folder: Path) -> dict[str, Any]:
        return child.measure(side.prepare(sizes, folder), side.tree)

    monkeypatch.setattr(run, "measured", measured)
    monkeypatch.setattr(child, "LONG_ENOUGH", 0.02)


def no_show(*_: Any) -> None:
    pass


@pytest.mark.usefixtures("in_process")
def test_ratio_is_the_opponents_time_over_ours() -> None:
    """Of whom a tenth is timed, ten times as much; who is not installed is skipped and said."""
    tenth = Side("tenth", lambda sizes, folder: Job(lambda: busy(0.01) or {}, share=0.1))
    absent = Side("absent", sleeper(0.01).prepare, needs="no_such_module_anywhere")
    never = (Check("never", lambda ours, theirs: False),)
    opponents = (
        Opponent(sleeper(0.04), goal=2),
        Opponent(sleeper(0.005), goal=2),
        Opponent(sleeper(0.03), checks=never, goal=1),
        Opponent(tenth, goal=5),
        Opponent(absent, goal=2),
    )
    entry = Entry("x", "a test", sleeper(0.01), opponents, {"n": 1}, {"n": 1})
    rows = run.compare(entry, 3, False, no_show)
    ratios = [row["ratio"] for row in rows]
    assert ratios[:4] == pytest.approx([4, 0.5, 3, 10], rel=0.4)
    assert [row["met"] for row in rows] == [True, False, False, True, None]
    assert rows[0]["lowest"] <= rows[0]["ratio"] <= rows[0]["highest"]
    assert len(rows[0]["ratios"]) == 3
    assert "no_such_module_anywhere is not installed" in rows[4]["skipped"]


def test_memory_beyond_the_start_is_seen() -> None:
    """In a process of its own: one that has run other tests takes 20 MB from what it holds."""
    words = (
        "import numpy as np\n"
        "from benchmarks.runner import child\n"
        "from benchmarks.runner.entry import Job\n"
        "hungry = lambda: {'sum': float(np.ones(20 << 17).sum())}\n"
        "print(child.measure(Job(hungry), False)['extra_mb'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, cwd=run.ROOT
    )
    assert 15 < float(done.stdout) < 60


def test_memory_of_processes_below_is_seen() -> None:
    words = [sys.executable, "-c", "import time; x = b'1' * (80 << 20); time.sleep(0.5)"]

    def work() -> dict[str, Any]:
        subprocess.run(words, check=True)
        return {}

    assert child.measure(Job(work, spawns=True), False)["peak_mb"] > 60


@pytest.mark.usefixtures("in_process")
def test_growth_is_measured_and_judged() -> None:
    def prepare(sizes: Any, folder: Path) -> Job:
        return Job(lambda: busy(0.001 * sizes["records"]) or {})

    def curve(expected: float) -> Growth:
        side = Side("ours", prepare)
        return Growth("g", "a test", "records", (4, 16), (4, 16), side, "why", time=expected)

    row = run.grow(curve(1.0), False, no_show)
    assert row["time_exponent"] == pytest.approx(1.0, abs=0.3)
    assert run.grow(curve(0.2), False, no_show)["met"] is False


def test_every_row_has_a_goal_and_both_sizes_name_the_same() -> None:
    for entry in entries().values():
        assert entry.sizes.keys() == entry.quick.keys(), entry.name
        assert any(o.goal or o.seconds_more for o in entry.opponents), entry.name
        for side in entry.sides().values():
            assert side_named(entry.name, side.name) is side
    for growth in growths().values():
        assert side_named(growth.name, "ours") is growth.side
    assert {g.axis for g in growths().values()} == {"records", "parameters", "clients", "rounds"}
    assert not entries().keys() & growths().keys()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        FixConfig, match=r"no comparison 'nothing'; choose from fedavg-mlp, .*start-up"
    ):
        chosen(["nothing"])


@pytest.mark.usefixtures("in_process")
def test_the_guard_and_a_doctored_file(tmp_path: Path, capsys: Any) -> None:
    """It passes with a file of its own and fails where a ratio was better before."""

    def bench(*words: str) -> int:
        with (
            mock.patch.object(sys, "argv", ["benchmarks", "model-based", *words]),
            pytest.raises(SystemExit) as ended,
        ):
            cli(app, "python -m benchmarks")
        return int(ended.value.code or 0)

    path = tmp_path / "r.json"
    same = ("--quick", "--repeats", "1")
    assert bench(*same, "--out", str(path)) == 0
    content = json.loads(path.read_text())
    assert {row["opponent"] for row in content["comparisons"]} > {"loop over records and values"}
    assert all(row["checks"]["identical decisions"] for row in content["comparisons"])
    for row in content["comparisons"]:
        how = origin("python -m benchmarks model-based --repeats 1 --quick")
        assert {name: row[name] for name in how} == how
    for factor, code in ((0.3, 0), (20.0, 1)):
        changed = json.loads(json.dumps(content))
        for row in changed["comparisons"]:
            row["ratio"] *= factor
        path.write_text(json.dumps(changed))
        assert bench(*same, "--check", str(path)) == code
    assert "lost: model-based against loop over records and values" in capsys.readouterr().err
    path.write_text(json.dumps(content | {"quick": False}))
    assert bench(*same, "--check", str(path)) == 1
    assert "was measured without --quick" in capsys.readouterr().err
    path.write_text("{}")
    assert bench(*same, "--check", str(path)) == 1
    assert "is no file of results" in capsys.readouterr().err


def test_a_measurement_is_a_process_of_its_own(tmp_path: Path) -> None:
    side = entries()["start-up"].opponents[0].side
    found = run.measured("start-up", side, {}, tmp_path)
    assert found["cpu"] > 0  # memory is sampled: a process this short may end between two looks
    broken = Side("no such party", side.prepare)
    with pytest.raises(FixConfig, match="start-up: 'no such party' ended with code 1"):
        run.measured("start-up", broken, {}, tmp_path)


def test_an_engine_that_hangs_is_ended_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its row says so; nothing that it started is left running."""
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nsleep 60 & echo $! > " + str(tmp_path / "pid") + "\nwait\n")
    script.chmod(0o755)
    monkeypatch.setattr(run, "PATIENCE", 1)
    monkeypatch.setattr(run, "LOOPBACK", (str(script),))
    with pytest.raises(FixConfig, match="'hangs' did not end within 1 s"):
        run.measured("x", Side("hangs", sleeper(0.0).prepare, loopback=True), {}, tmp_path)
    left = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    patience = time.monotonic() + 20  # on a busy machine a process that was killed lives on a while
    while left.exists() and ") Z " not in left.read_text() and time.monotonic() < patience:
        time.sleep(0.05)
    assert not left.exists() or ") Z " in left.read_text()


def test_scripts_measure_what_is_missing_and_say_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--seeds", "2", "--only", "b", "--out", str(tmp_path / "made" / "x.json"), "--quick"]
    monkeypatch.setattr(sys, "argv", ["x.py", *words])
    given = frame.options("A script.", "benchmarks/x.py", seeds=3, only=["a", "b"], quick=False)
    assert (given.seeds, given.only, given.quick) == (2, ["b"], True)
    assert given.command.startswith("python -m benchmarks.x --seeds 2 --only b --out ")
    kept = frame.Results(given.out, given.command)
    assert kept.row("one", lambda: {"flag": "", "value": 0.5})["command"] == given.command
    kept.runs("many", 2, lambda number: {"flag": "unsure", "value": number})
    again = frame.Results(given.out, "another command")
    assert again.row("one", lambda: pytest.fail("it was there")) == kept.rows["one"]
    runs = again.runs("many", 3, lambda number: {"flag": "", "value": 10 * number})
    assert [run["value"] for run in runs] == [0, 1, 20]
    frame.show("many", runs, "value")
    assert capsys.readouterr().out == "many: value 7.000, flagged 2 of 3\n"


@pytest.mark.parametrize("faults", [0, 2])
def test_a_table_of_trials_ends_with_its_faults(tmp_path: Path, faults: int) -> None:
    rows = [frame.counted("what", 5, faults, "as it came")]
    given = SimpleNamespace(out=tmp_path / "x.json", command="the command")
    assert frame.finish(given, "A title", rows) == (faults > 0)
    content = json.loads(given.out.read_text())
    assert content["rows"] == rows
    assert rows[0]["faults"] == faults
    assert {"title", "command", "commit", "date"} < content.keys()
