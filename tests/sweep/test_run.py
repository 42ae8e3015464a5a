from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE

from overheard.data.digits import load
from overheard.data.source import add_sources
from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.sweep import cell, run
from overheard.sweep.cell import hold_out, run_cell
from overheard.sweep.frontier import draw, frontier
from overheard.sweep.grid import cells, parse_sweep
from overheard.sweep.run import sweep
from overheard.sweep.table import read_rows, write_table
from overheard.sweep.utility import global_model, utility
from overheard.transcript.observe import recipe_of
from overheard.transcript.store import Recording

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


def test_a_sweep_of_what_is_known(tmp_path: Path) -> None:
    few = {**SWEEP, "ladder": True, "seeds": [0], "setting": [{"defence": "none"}]}
    rows = read_rows(sweep(parse_sweep(few), tmp_path / "s"))
    best = {r["rung"]: r for r in rows if r["attack"] != "majority"}
    assert best["colleague"]["attack"] == "max_entropy"
    assert best["schema"]["attack"] == "partial_decode"
    assert best["colleague"]["value"] >= best["schema"]["value"] - 0.05
    assert best["schema"]["records"] == best["colleague"]["records"]
    assert {dict(p.varied)["rung"] for p in frontier(rows)} == set(best)
    assert cells(parse_sweep(few))[0].key != cells(parse_sweep({**few, "ladder": False}))[0].key


def test_a_sweep_ends_in_a_table_and_a_frontier(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    out = sweep(parse_sweep(SWEEP), tmp_path / "s", progress=lambda _, d, t: heard.append((d, t)))
    assert heard[0] == (0, 4)
    assert heard[-1] == (4, 4)
    rows = read_rows(out)
    assert len(rows) == 4 * 2
    assert {r["attack"] for r in rows} == {"max_entropy", "majority"}
    assert all(0 <= r["utility"] <= 1 and r["utility_is"] == "accuracy" for r in rows)
    ours = [r for r in rows if r["attack"] == "max_entropy"]
    assert all(r["value"] > r["majority"] for r in ours)
    points = frontier(rows)
    assert {p.defence for p in points} == {"none", "larger step"}
    assert any(p.best for p in points)
    assert draw(points).startswith("<?xml")
    import pyarrow.parquet as pq

    table = pq.read_table(write_table(out))
    assert table.num_rows == len(rows)
    assert "seconds" not in table.column_names


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of the sweep, run in one process and never stopped."""
    return write_table(sweep(parse_sweep(SWEEP), tmp_path_factory.mktemp("s") / "s")).read_bytes()


def test_finished_cells_are_not_run_again_and_the_table_is_the_same(
    tmp_path: Path, undisturbed: bytes
) -> None:
    resumed = tmp_path / "resumed"
    sweep(parse_sweep(SWEEP), resumed)
    for path in sorted((resumed / "cells").glob("*.json"))[:2]:
        path.unlink()
    kept = {p: p.stat().st_mtime_ns for p in (resumed / "cells").glob("*.json")}
    (resumed / "cells" / "left.json.part").write_text("torn")
    sweep(parse_sweep(SWEEP), resumed, workers=2)
    assert all(p.stat().st_mtime_ns == then for p, then in kept.items())
    assert write_table(resumed).read_bytes() == undisturbed
    assert not list(resumed.rglob("*.part"))


def test_cells_of_another_version_are_not_mixed_with_this_ones(
    tmp_path: Path, undisturbed: bytes
) -> None:
    """They are refused, and with ``again`` run anew; a table of them can still be read."""
    out = tmp_path / "old"
    sweep(parse_sweep(SWEEP), out)
    cells = sorted((out / "cells").glob("*.json"))
    older = json.loads(cells[0].read_text())
    cells[0].write_text(json.dumps(older | {"version": "another"}))
    with pytest.raises(ChooseAnotherOutput, match=r"another version of overheard.*--again"):
        sweep(parse_sweep(SWEEP), out)
    assert write_table(out).read_bytes() != undisturbed
    assert {row["version"] for row in read_rows(out)} == {older["version"], "another"}
    kept = {p: p.stat().st_mtime_ns for p in cells[1:]}
    sweep(parse_sweep(SWEEP), out, again=True)
    assert all(p.stat().st_mtime_ns == then for p, then in kept.items())
    assert json.loads(cells[0].read_text())["version"] == older["version"]
    assert write_table(out).read_bytes() == undisturbed


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes
) -> None:
    real, written = run.write_durably, []  # type: ignore[attr-defined]

    def full(path: Path, pieces: Any) -> Any:
        if len(written) == 3:  # the description of the sweep and two cells
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        return real(path, pieces)

    out = tmp_path / "s"
    with monkeypatch.context() as patched:
        patched.setattr(run, "write_durably", full)
        with pytest.raises(ChooseAnotherOutput, match=r"No space left on device.*2 of 4 cells are"):
            sweep(parse_sweep(SWEEP), out)
    assert len(list(out.glob("cells/*.json"))) == 2
    assert write_table(sweep(parse_sweep(SWEEP), out)).read_bytes() == undisturbed


def test_a_disk_that_is_full_inside_a_cell_is_no_fault_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device", "somewhere")

    with monkeypatch.context() as patched:
        patched.setattr(cell, "simulate", full)
        with pytest.raises(ChooseAnotherOutput, match=r"somewhere.*0 of 4 cells are kept"):
            sweep(parse_sweep(SWEEP), tmp_path / "s")
    assert not list((tmp_path / "s").glob("cells/*.json"))


def test_a_table_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = sweep(parse_sweep({**SWEEP, "seeds": [0], "setting": [{}]}), tmp_path / "s")
    before = write_table(out).read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ChooseAnotherOutput, match="the cells are kept"):
        write_table(out)
    assert (out / "results.parquet").read_bytes() == before
    assert not list(out.glob("*.part"))


def test_a_failing_cell_is_kept_with_its_error_and_the_others_go_on(tmp_path: Path) -> None:
    wrong = {"defence": "wild", "change": {"training.learning_rate": 1e30}}
    config = parse_sweep({**SWEEP, "setting": [wrong, {"defence": "none"}], "seeds": [0]})
    rows = read_rows(sweep(config, tmp_path / "s"))
    failed = [r for r in rows if r["error"]]
    assert len(failed) == 1
    assert "diverged" in failed[0]["error"]
    assert sum(1 for r in rows if not r["error"]) == 2
    assert [p.defence for p in frontier(rows)] == ["none"]
    before = {p.name for p in (tmp_path / "s" / "cells").glob("*.json")}
    sweep(config, tmp_path / "s", again=True)
    assert {p.name for p in (tmp_path / "s" / "cells").glob("*.json")} == before


def test_the_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    out = sweep(parse_sweep({**SWEEP, "seeds": [0], "setting": [{}]}), tmp_path / "s")
    with pytest.raises(ChooseAnotherOutput, match="holds another sweep"):
        sweep(parse_sweep({**SWEEP, "seeds": [5], "setting": [{}]}), out)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    import fcntl

    config = parse_sweep({**SWEEP, "seeds": [0], "setting": [{}]})
    (tmp_path / "s").mkdir()
    with (tmp_path / "s" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ChooseAnotherOutput, match="another sweep is writing"):
            sweep(config, tmp_path / "s")


def test_damaged_results_are_named(tmp_path: Path) -> None:
    config = parse_sweep({**SWEEP, "seeds": [0], "setting": [{}]})
    out = sweep(config, tmp_path / "s")
    (path,) = (out / "cells").glob("*.json")
    path.write_text("[" * 100_000)
    with pytest.raises(FixRecording, match="more levels, and the limit is 64"):
        read_rows(out)
    path.unlink()
    with pytest.raises(FixConfig, match="no cell is finished"):
        read_rows(out)
    with pytest.raises(FixConfig, match="folder of a sweep"):
        read_rows(tmp_path)


def test_a_killed_sweep_goes_on_and_ends_in_the_same_table(
    tmp_path: Path, undisturbed: bytes
) -> None:
    code = (
        "import json, os, sys; from overheard.sweep.grid import parse_sweep; "
        "from overheard.sweep.run import sweep; "
        "progress = lambda what, done, total: done and os.kill(os.getpid(), 9); "
        "sweep(parse_sweep(json.loads(sys.argv[1])), sys.argv[2], progress=progress)"
    )
    out = tmp_path / "b"
    words = [sys.executable, "-c", code, json.dumps(SWEEP), str(out)]
    done = subprocess.run(words, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(out.glob("cells/*.json"))) == 1
    sweep(parse_sweep(SWEEP), out)
    assert write_table(out).read_bytes() == undisturbed


def test_workers_know_the_sources_that_were_added(tmp_path: Path) -> None:
    """Those of the papers, which the package itself does not know."""
    add_sources("papers.data")
    options = {"sizes": [30, 40], "features": 3}
    base = {**SWEEP["base"], "data": {"source": "leaf_synthetic", "options": options}}
    asked = {**SWEEP, "base": base, "clients": [], "attacks": ["majority"], "seeds": [0]}
    rows = read_rows(sweep(parse_sweep(asked), tmp_path / "s", workers=2))
    assert [row["error"] for row in rows] == [None, None]
    assert all(row["utility"] is not None for row in rows)


def children_of(pid: int) -> set[int]:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return set(map(int, words))


def test_workers_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    """They would wait for minutes for work that nobody hands out, and hold their memory."""
    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc here to see a process's children in")
    code = (
        "import json, sys; from overheard.sweep.grid import parse_sweep; "
        "from overheard.sweep.run import sweep; "
        "sweep(parse_sweep(json.loads(sys.argv[1])), sys.argv[2], workers=2)"
    )
    out = tmp_path / "s"
    many = json.dumps({**SWEEP, "seeds": list(range(40))})
    process = subprocess.Popen([sys.executable, "-c", code, many, str(out)])
    deadline = time.monotonic() + PATIENCE
    try:
        while not list(out.glob("cells/*.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = children_of(process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(children) >= 2

    def alive() -> list[int]:
        return [p for p in children if Path(f"/proc/{p}/stat").exists() and not gone(p)]

    def gone(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    while alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive() == []


def test_nothing_is_recorded_outside_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a killed sweep would leave the clients' records behind."""
    real, places = cell.simulate, []  # type: ignore[attr-defined]

    def simulate(ready: Any, path: Path) -> Path:
        places.append(path)
        return real(ready, path)

    monkeypatch.setattr(cell, "simulate", simulate)
    out = tmp_path / "s"
    (out / "scratch" / "overheard-cell-old" / "run" / "truth").mkdir(parents=True)
    sweep(parse_sweep({**SWEEP, "seeds": [0]}), out)
    assert len(places) == 2
    assert all(place.is_relative_to(out / "scratch") for place in places)
    assert {p.name for p in out.iterdir()} == {".lock", "cells", "sweep.json"}


def test_where_a_cell_was_recorded_is_in_no_result(tmp_path: Path) -> None:
    """Or the same sweep would not give the same table twice."""
    secure = {"defence": "sums", "change": {"defence": [{"name": "secure_sum"}]}}
    settings = [secure | {"change": secure["change"] | {"training.weighting": "equal"}}]
    (first, *_) = cells(parse_sweep({**SWEEP, "setting": settings}))
    results = [run_cell(first, None), run_cell(first, tmp_path)]
    said = [json.dumps({**r, "seconds": 0}) for r in results]
    assert "holds sums of updates only" in said[0]
    assert said[0] == said[1]
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from overheard.cli.sweep import frontier as command

    out = sweep(parse_sweep({**SWEEP, "seeds": [0]}), tmp_path / "s")
    command(out)
    before = (out / "frontier.svg").read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(OSError, match="No space left"):
            command(out)
    assert (out / "frontier.svg").read_bytes() == before
    command(out)
    assert not list(out.glob("*.part"))


def test_two_nodes_of_a_ray_cluster_give_the_same_table_and_audit(
    tmp_path: Path, loopback_only: tuple[str, ...], undisturbed: bytes, workplace: Any
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    program = str(Path(__file__).with_name("ray_cluster.py"))
    asked = ["audit", str(workplace.path / "run"), "--attack", "max_entropy", "--out"]
    assert workplace.overheard(*asked, "one").returncode == 0
    done = subprocess.run(
        [
            *loopback_only,
            sys.executable,
            program,
            json.dumps(SWEEP),
            str(tmp_path / "s"),
            *asked,
            str(tmp_path / "ray"),
        ],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "2 nodes" in done.stdout
    assert write_table(tmp_path / "s").read_bytes() == undisturbed
    one, ray = (
        re.sub(r'"seconds": [^,\n}]+', "", (tmp_path / out / "audit.json").read_text())
        for out in ("one", "ray")
    )
    assert ray == one


def test_an_address_where_no_cluster_is(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    config = parse_sweep({**SWEEP, "seeds": [0], "setting": [{}]})
    with pytest.raises(FixConfig, match="no Ray cluster answers"):
        sweep(config, tmp_path / "s", ray="127.0.0.1:1")


def test_held_out_records_are_nobodys() -> None:
    dataset = load(victim=40, participants=2)
    kept, held = hold_out(dataset, 0.25, seed=3)
    assert len(kept.records) + len(held) == len(dataset.records)
    sizes = {c: len(r) for c, r in dataset.by_client().items()}
    assert {c: len(r) for c, r in kept.by_client().items()} == {
        c: n - round(0.25 * n) for c, n in sizes.items()
    }


def test_the_global_model_is_the_one_that_the_server_sends_next(tmp_path: Path) -> None:
    """A federation of two rounds, cut after the first, gives the model of the second broadcast."""
    base = parse_sweep(SWEEP).base
    runs = []
    for rounds in (1, 2):
        config = {**base, "training": {**base["training"], "rounds": rounds}}
        runs.append(Recording.open(simulate(plan(parse_config(config)), tmp_path / str(rounds))))
    recipe = recipe_of(runs[0])
    assert recipe is not None
    _, sent, _, _ = runs[1].link("victim")
    second = np.concatenate([sent[name][1].reshape(-1) for name, _ in recipe.model.layout()])
    assert np.allclose(global_model(runs[0], recipe), second, rtol=1e-6, atol=1e-7)
    truth = runs[0].truth()["victim"]
    worth, name = utility(recipe, global_model(runs[0], recipe), truth)
    assert name == "accuracy"
    assert 0 <= worth <= 1


def test_a_cell_says_what_it_costs() -> None:
    (first, *_) = cells(parse_sweep(SWEEP))
    result = run_cell(first)
    assert result["seconds"] > 0
    assert result["key"] == first.key


def test_a_setting_at_which_the_decoder_failed_is_not_recommended() -> None:
    shared = {"defence": "none", "strength": 0.0, "seed": 0, "metric": "accuracy", "error": None}
    shared |= {"attribute": "a", "attack": "max_entropy", "utility_is": "r2", "flagged": 0}
    leaky = shared | {"lift": 0.4, "utility": 0.5, "bits_gained": 0.9}
    misled = shared | {"defence": "epochs", "lift": 0.0, "utility": 0.9, "bits_gained": -2.0}
    one, two = frontier([leaky, misled])
    assert one.best
    assert not one.doubtful
    assert two.doubtful
    assert not two.best


def test_a_worker_that_is_killed_is_said_and_finished_cells_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "s"
    many = parse_sweep({**SWEEP, "seeds": list(range(10))})

    def kill(name: str, done: int, total: int) -> None:
        if done == 1:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid or 0, signal.SIGKILL)

    with pytest.raises(FixConfig, match=r"a worker ended before its cell did .* fewer --workers"):
        sweep(many, out, workers=2, progress=kill)
    assert len(list(out.glob("cells/*.json"))) >= 1


def test_who_stops_a_sweep_does_not_wait_for_its_workers(tmp_path: Path) -> None:
    def stop(name: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    many = parse_sweep({**SWEEP, "seeds": list(range(10))})
    with pytest.raises(KeyboardInterrupt):
        sweep(many, tmp_path / "s", workers=2, progress=stop)
    assert multiprocessing.active_children() == []
    assert len(list(tmp_path.glob("s/cells/*.json"))) == 1
