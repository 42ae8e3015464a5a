"""The runner of experiments: what is measured is kept, and nothing is measured twice."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import pages, recordings, runner
from experiments.command import app
from experiments.papers.xu2021 import observations
from experiments.runner import Experiment, cell
from overheard.errors import FixConfig
from overheard.files import LOCK, sole_writer

CALLS: list[str] = []


def draws(one: runner.Cell) -> runner.Values:
    CALLS.append(one.key)
    if one.method == "broken":
        raise ValueError("does not work")
    numbers = np.random.default_rng(one.seed).normal(size=one["size"])
    return {
        "mean": numbers.mean(),
        "count": np.int64(one["size"]),
        "by half": {"first": 1.0},
        "seconds": time.time(),
    }


def cells() -> list[runner.Cell]:
    return [
        cell("plain", seed, cost=size, quick=size < 20, size=size)
        for size in (100, 10)
        for seed in range(2)
    ]


TOY = Experiment("toy-means", "means", draws, cells, group="toys")
FALSE = Experiment("toy-broken", "fails", draws, lambda: [cell("broken", size=1)], group="toys")


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    known = {one.name: one for one in (TOY, FALSE)}
    monkeypatch.setattr(runner, "experiments", lambda: known)
    CALLS.clear()


def invoked(*words: str, code: int = 0) -> str:
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == code, outcome.output
    return outcome.output


def test_cells_are_kept_as_they_end_and_the_cheapest_comes_first(tmp_path):
    out = ("--out", str(tmp_path))
    assert "2 of 2 missing" in invoked("run", "toy-means", "--quick", *out)
    assert "1 of 1 missing" in invoked("run", "toy-means", "--seeds", "1", *out)
    assert "1 of 1 missing" in invoked("run", "toy-means", *out)
    assert [json.loads(key)[0]["size"] for key in CALLS] == [10, 10, 100, 100]
    lines = (tmp_path / "toy-means.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert (first["setting"], first["method"], first["seed"]) == ({"size": 10}, "plain", 0)
    assert {"values", "seconds", "command", "commit", "date"} <= first.keys()
    assert "4 of 4" in invoked("list", "toys", *out)


def test_a_failure_is_said_and_the_other_cells_go_on(tmp_path):
    output = invoked("run", "toy", "--out", str(tmp_path), code=1)
    assert "4 of 5 missing" in output
    assert "does not work" in output
    assert len(runner.results("toy-means", tmp_path)) == 4


def test_half_a_line_of_a_killed_run_is_measured_again(tmp_path):
    (tmp_path / "toy-means.jsonl").write_text('{"experiment": "toy-me')
    list(runner.run(runner.todo([TOY], tmp_path), tmp_path))
    assert len(runner.results("toy-means", tmp_path)) == 4
    assert runner.todo([TOY], tmp_path) == []


def test_what_another_run_is_at_is_left_to_it(tmp_path):
    work = runner.todo([TOY], tmp_path, quick=True)
    claim = runner.claim_of("toy-means", work[0][1], tmp_path)
    claim.mkdir(parents=True)
    with sole_writer(claim, "another run"):
        first, second = runner.run(work, tmp_path)
    assert (first.result, first.failure) == (None, "")
    assert second.result is not None
    assert [done.result is None for done in runner.run(work, tmp_path)] == [False, True]
    assert list(claim.parent.iterdir()) == []  # claims go with their cells


SLEEPER = """
import sys, time
from pathlib import Path
from typing import Any
from experiments import runner

def slow(one):
    time.sleep(60 * one["long"])
    return {"x": 1.0}

cells = [runner.cell(long=n, cost=n) for n in (0, 1)]
known = {"sleep": runner.Experiment("sleep", "sleeps", slow, lambda: cells)}
runner.experiments = lambda: known
runner.CACHE = Path(sys.argv[1]) / "cache"
list(runner.run(runner.todo(list(known.values()), Path(sys.argv[1])), Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_killed_run_loses_the_cell_that_it_was_at_and_no_other(tmp_path):
    claim = runner.claim_of("sleep", cell(long=1), tmp_path)
    with subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path)]) as process:
        until = time.monotonic() + 60
        while not (claim / LOCK).exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    sleep = Experiment("sleep", "sleeps", draws, lambda: [cell(long=0), cell(long=1)])
    assert [each["long"] for _, each in runner.todo([sleep], tmp_path)] == [1]
    with sole_writer(claim, "this test"):
        pass  # a claim ends with the process that held it


@pytest.mark.slow
def test_two_jobs_measure_what_one_does(tmp_path):
    (obs2, *_) = observations.EXPERIMENTS
    work = runner.todo([obs2], tmp_path, quick=True)
    assert all(done.result for done in runner.run(work, tmp_path, jobs=2))
    found = {r.key: r.values for r in runner.results(obs2.name, tmp_path)}
    assert found == {each.key: obs2.run(each) for _, each in work}


def test_a_value_that_moved_is_said(tmp_path):
    out = ("--out", str(tmp_path))
    invoked("run", "toy-means", *out)
    said = invoked("run", "toy-means", "--check", *out)
    assert said.count("PASS") == 12  # a number a measure and a label; seconds are not compared
    path = tmp_path / "toy-means.jsonl"
    path.write_text(path.read_text().replace('"first": 1.0', '"first": 1.5', 1))
    said = invoked("run", "toy-means", "--check", *out, code=1)
    assert [line.split()[0] for line in said.splitlines()].count("MOVED") == 1


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(FixConfig, match="did you mean 'toy-means'"):
        runner.chosen(["toy-maens"])


def test_no_cell_begins_when_the_time_is_over(tmp_path):
    done = runner.run(runner.todo([TOY], tmp_path), tmp_path, hours=1e-9)
    assert [one.result for one in done] == [None] * 4


def test_a_shared_recording_is_made_once(tmp_path, monkeypatch):
    config = recordings.federation(
        0, "digits", "logistic", {"rounds": 1, "learning_rate": 0.1}, {"victim": 10}
    )
    with recordings.recorded(config, shared=True) as first:
        messages = first.clients
    monkeypatch.setattr(recordings, "simulate", None)  # not again
    with recordings.recorded(config, shared=True) as second:
        assert second.clients == messages
    monkeypatch.undo()
    monkeypatch.setattr(recordings, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(recordings, "CACHE_BYTES", 0)
    with recordings.recorded({**config, "seed": 1}, shared=True):
        kept = list((tmp_path / "cache" / "recordings").glob("*/run"))
    assert len(kept) == 1  # the older one made room


def test_tables_are_filled_between_their_markers(monkeypatch):
    monkeypatch.setattr(pages, "gathered", lambda name: {"toy": lambda: "new"})
    text = "a\n<!-- table: toy -->\nold\n<!-- end -->\nb\n"
    assert pages.filled(text) == text.replace("old", "new")


# -------------------------------------------------------------------- where a result comes from


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one committed module, which the code believes to be in."""
    (tmp_path / "code.py").write_text("one = 1\n")
    who = ("-c", "user.name=a", "-c", "user.email=b@c")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(runner, "HERE", tmp_path)
    return tmp_path


def test_the_commit_is_that_of_the_code(checkout: Path) -> None:
    words = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True).stdout
    today = datetime.date.today().isoformat()
    assert runner.origin("how") == {"command": "how", "commit": head[:12], "date": today}
    (checkout / "results.json").write_text("{}")
    assert runner.origin("how")["commit"] == head[:12]
    (checkout / "code.py").write_text("one = 2\n")
    assert runner.origin("how")["commit"] == f"{head[:12]}+"


def test_without_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner, "HERE", tmp_path)
    assert runner.origin("how")["commit"] == ""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert runner.origin("how")["commit"] == ""
