from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from patience import PATIENCE, ended
from report_words import without_seconds
from stopping import stopped_after

from overheard.data.bundled import digits
from overheard.data.source import add_sources
from overheard.errors import ChooseAnotherOutput, FixConfig
from overheard.federation import simulate
from overheard.sweep import run
from overheard.sweep.frontier import frontier
from overheard.sweep.grid import cells, parse_sweep
from overheard.sweep.run import TABLE, hold_out, read_rows, run_cell, sweep, write_table

pytestmark = pytest.mark.slow

SWEEP: dict[str, Any] = {
    "base": {
        "data": {
            "source": "digits",
            "options": {"victim": 40, "participants": 2, "attributes": ["c043"]},
        },
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 2, "learning_rate": 0.1},
    },
    "attacks": ["max_entropy", "majority"],
    "clients": ["victim"],
    "setting": [
        {"defence": "none"},
        {"defence": "larger step", "strength": 0.5, "change": {"training.learning_rate": 0.5}},
    ],
    "seeds": [0, 1],
}


ONE = {**SWEEP, "seeds": [0], "setting": [{}]}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, run in one process and never stopped, with its table."""
    out = sweep(parse_sweep(SWEEP), tmp_path_factory.mktemp("sweeps") / "s")
    write_table(out)
    return out


@pytest.fixture
def finished(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(undisturbed, tmp_path / "finished"))


def kept(out: Path) -> list[Path]:
    return sorted(out.glob("cells/*.json"))


def half_done(finished: Path) -> Path:
    """Two of its four cells are missing, and its table."""
    for path in (*kept(finished)[:2], finished / TABLE):
        path.unlink()
    return finished


def same_table(out: Path, undisturbed: Path) -> bool:
    return write_table(out).read_bytes() == (undisturbed / TABLE).read_bytes()


def test_a_sweep_of_what_is_known(tmp_path: Path) -> None:
    few = {**ONE, "ladder": True}
    rows = read_rows(sweep(parse_sweep(few), tmp_path / "s"))
    best = {r["rung"]: r for r in rows if r["attack"] != "majority"}
    assert best["colleague"]["attack"] == "max_entropy"
    assert best["schema"]["attack"] == "partial_decode"
    assert best["colleague"]["value"] >= best["schema"]["value"] - 0.05
    assert best["schema"]["records"] == best["colleague"]["records"]
    assert {dict(p.varied)["rung"] for p in frontier(rows)} == set(best)
    assert cells(parse_sweep(few))[0].key != cells(parse_sweep({**few, "ladder": False}))[0].key


def test_a_sweep_ends_in_a_table_and_a_frontier(undisturbed: Path) -> None:
    rows = read_rows(undisturbed)
    assert len(rows) == 4 * 2
    assert {r["attack"] for r in rows} == {"max_entropy", "majority"}
    assert all(0 <= r["utility"] <= 1 and r["utility_is"] == "accuracy" for r in rows)
    ours = [r for r in rows if r["attack"] == "max_entropy"]
    assert all(r["value"] > r["majority"] for r in ours)
    points = frontier(rows)
    assert {p.defence for p in points} == {"none", "larger step"}
    assert any(p.best for p in points)
    with (undisturbed / TABLE).open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["lift"]) for row in table] == [row["lift"] for row in rows]
    assert "seconds" not in table[0]


def test_finished_cells_are_not_run_again_and_the_table_is_the_same(
    finished: Path, undisturbed: Path
) -> None:
    before = {p: p.stat().st_mtime_ns for p in kept(half_done(finished))}
    observed: list[tuple[int, int]] = []
    sweep(parse_sweep(SWEEP), finished, progress=lambda _, d, t: observed.append((d, t)))
    assert observed == [(2, 4), (3, 4), (4, 4)]
    assert all(p.stat().st_mtime_ns == then for p, then in before.items())
    assert same_table(finished, undisturbed)


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_finished(
    finished: Path, undisturbed: Path
) -> None:
    full = OSError(28, "No space left on device", "somewhere")
    with stopped_after(1, full), pytest.raises(OSError, match="No space left on device"):
        sweep(parse_sweep(SWEEP), half_done(finished))
    assert len(kept(finished)) == 3
    assert same_table(sweep(parse_sweep(SWEEP), finished), undisturbed)


def test_a_disk_that_is_full_inside_a_cell_is_no_fault_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, "No space left on device", "somewhere")
    monkeypatch.setattr(simulate, "run_rounds", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match="somewhere"):
        sweep(parse_sweep(SWEEP), tmp_path / "s")
    assert not kept(tmp_path / "s")


def test_a_failing_cell_is_kept_with_its_error_and_the_others_go_on(tmp_path: Path) -> None:
    wrong = {"defence": "wild", "change": {"training.learning_rate": 1e30}}
    config = parse_sweep({**ONE, "setting": [wrong, {"defence": "none"}]})
    out = sweep(config, tmp_path / "s")
    rows, before = read_rows(out), kept(out)
    failed = [r for r in rows if r["error"]]
    assert len(failed) == 1
    assert "diverged" in failed[0]["error"]
    assert sum(1 for r in rows if not r["error"]) == 2
    assert [p.defence for p in frontier(rows)] == ["none"]
    sweep(config, out, again=True)
    assert kept(out) == before


def test_a_folder_of_another_sweep_or_of_another_writer_is_refused(finished: Path) -> None:
    import fcntl

    with pytest.raises(ChooseAnotherOutput, match="holds another sweep"):
        sweep(parse_sweep(ONE), finished)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "version", lambda name: "another")
        with pytest.raises(ChooseAnotherOutput, match="another version of overheard"):
            sweep(parse_sweep(SWEEP), finished)
    with (finished / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ChooseAnotherOutput, match="another sweep is writing"):
            sweep(parse_sweep(SWEEP), finished)


def test_damaged_cells_are_run_again(finished: Path, undisturbed: Path) -> None:
    first, second, *others = kept(finished)
    first.write_text("[" * 100_000)
    second.write_bytes(second.read_bytes()[:-9])
    assert len(read_rows(finished)) == 2 * len(others)
    assert same_table(sweep(parse_sweep(SWEEP), finished), undisturbed)
    for path in kept(finished):
        path.unlink()
    with pytest.raises(FixConfig, match="no cell is finished"):
        read_rows(finished)
    with pytest.raises(FixConfig, match="folder of a sweep"):
        read_rows(finished / "cells")


KILLED = """
import json, multiprocessing, os, pathlib, sys
from overheard.sweep.grid import parse_sweep
from overheard.sweep.run import sweep

def kill(what, done, total):
    if done > 2:
        workers = [child.pid for child in multiprocessing.active_children()]
        pathlib.Path(sys.argv[3]).write_text(json.dumps(workers))
        os.kill(os.getpid(), 9)

sweep(parse_sweep(json.loads(sys.argv[1])), sys.argv[2], workers="2", progress=kill)
"""


def test_a_killed_sweep_ends_its_workers_and_goes_on_to_the_same_table(
    finished: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """They would wait for minutes for work that nobody hands out, and hold their memory."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here to see other processes in")
    words = [json.dumps(SWEEP), str(half_done(finished)), str(tmp_path / "workers")]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(kept(finished)) == 3
    workers = json.loads((tmp_path / "workers").read_text())
    assert len(workers) == 2

    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + PATIENCE
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert same_table(sweep(parse_sweep(SWEEP), finished), undisturbed)


def test_workers_know_the_sources_that_were_added(tmp_path: Path) -> None:
    """Those of the papers, which the package itself does not know."""
    add_sources("experiments.data")
    options = {"sizes": [30, 40]}
    base = {**SWEEP["base"], "data": {"source": "leaf_synthetic", "options": options}}
    asked = {**SWEEP, "base": base, "clients": [], "attacks": ["majority"], "seeds": [0]}
    rows = read_rows(sweep(parse_sweep(asked), tmp_path / "s", workers="2"))
    assert [row["error"] for row in rows] == [None, None]
    assert all(row["utility"] is not None for row in rows)


def kill_workers() -> None:
    for worker in multiprocessing.active_children():
        os.kill(worker.pid or 0, signal.SIGKILL)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (kill_workers, FixConfig, r"a worker ended before its cell did .* fewer --workers"),
        (interrupt, KeyboardInterrupt, None),
    ],
)
def test_a_sweep_that_is_stopped_keeps_its_cells_and_waits_for_no_worker(
    tmp_path: Path, act: Callable[[], None], error: type[BaseException], words: str | None
) -> None:
    def progress(name: str, done: int, total: int) -> None:
        if done == 1:
            act()

    many = parse_sweep({**SWEEP, "seeds": list(range(10))})
    with pytest.raises(error, match=words):
        sweep(many, tmp_path / "s", workers="2", progress=progress)
    assert multiprocessing.active_children() == []
    assert 1 <= len(kept(tmp_path / "s")) < 20


def test_nothing_is_recorded_outside_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a killed sweep would leave the clients' records behind."""
    real, places = simulate.run_rounds, []

    def recorded(ready: Any, path: Path) -> Any:
        places.append(path)
        return real(ready, path)

    monkeypatch.setattr(simulate, "run_rounds", recorded)
    out = tmp_path / "s"
    (out / "scratch" / "overheard-cell-old" / "run" / "truth").mkdir(parents=True)
    sweep(parse_sweep(ONE), out)
    assert len(places) == 1
    assert places[0].is_relative_to(out / "scratch")
    assert {p.name for p in out.iterdir()} == {".lock", "cells", "sweep.json"}


def test_where_a_cell_was_recorded_is_in_no_result(tmp_path: Path) -> None:
    """Or the same sweep would not give the same table twice."""
    change = {"defence": [{"name": "secure_sum"}], "training.weighting": "equal"}
    (first,) = cells(parse_sweep({**ONE, "setting": [{"defence": "sums", "change": change}]}))
    results = [run_cell(first, None), run_cell(first, tmp_path)]
    said = [r.to_json() for r in results]
    assert "holds sums of updates only" in said[0]
    assert said[0] == said[1]
    assert list(tmp_path.iterdir()) == []


def test_two_nodes_of_a_ray_cluster_give_the_same_table_and_audit_and_outlive_a_worker(
    tmp_path: Path, loopback_only: tuple[str, ...], undisturbed: Path, workplace: Any
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    program = str(Path(__file__).with_name("ray_cluster.py"))
    asked = ["audit", str(workplace.path / "run"), "--attack", "max_entropy", "--out"]
    assert workplace.overheard(*asked, "one").returncode == 0
    words = [program, json.dumps(SWEEP), str(tmp_path / "s"), *asked, str(tmp_path / "ray")]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    done = ended([*loopback_only, sys.executable, *words], **quiet)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "2 nodes" in done.stdout
    assert "killed, and yet [1, 2]" in done.stdout
    assert same_table(tmp_path / "s", undisturbed)
    one, ray = (
        without_seconds((tmp_path / out / "audit.json").read_text()) for out in ("one", "ray")
    )
    assert ray == one


def test_an_address_where_no_cluster_is(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(FixConfig, match="no Ray cluster answers"):
        sweep(parse_sweep(ONE), tmp_path / "s", "127.0.0.1:1")


def test_held_out_records_are_nobodys() -> None:
    dataset = digits(victim=40, participants=2)
    kept, held = hold_out(dataset, 0.25, seed=3)
    assert len(kept.records) + len(held) == len(dataset.records)
    sizes = {c: len(r) for c, r in dataset.by_client().items()}
    assert {c: len(r) for c, r in kept.by_client().items()} == {
        c: n - round(0.25 * n) for c, n in sizes.items()
    }


# Without a guard, as whoever calls it from a few lines writes it: no worker runs the script again.
# np.maximum stands in for what measures a cell: it comes of a package that lies around, too.
SCRIPT = """
import os
import numpy as np
from overheard.workers import in_processes
print("once")
assert "PYTHONSAFEPATH" not in os.environ
print(sorted(int(result) for result in in_processes(np.maximum, [(1, 2), (1, 3)], 2, "cell")))
assert "PYTHONSAFEPATH" not in os.environ, "the workers' environment stayed behind"
"""


def test_workers_do_not_import_what_lies_around(tmp_path: Path) -> None:
    """Standing in a stranger's folder."""
    script, here = tmp_path / "elsewhere" / "script.py", tmp_path / "here"
    for folder in (script.parent, here):
        folder.mkdir()
    script.write_text(SCRIPT)
    for name in ("random", "json", "socket", "numpy"):
        (here / f"{name}.py").write_text("open('pwned', 'a').write(__name__)\nraise SystemExit")
    # as the command, whose own folder is elsewhere
    done = ended([sys.executable, str(script)], here)
    assert not (here / "pwned").exists()
    assert (done.stdout, done.returncode) == ("once\n[2, 3]\n", 0), done.stderr
