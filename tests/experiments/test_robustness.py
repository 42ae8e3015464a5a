"""What tries the promises sees what breaks them; each experiment runs, at small sizes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import ended

from experiments import runner
from experiments.accuracy import audits, networks, programs
from experiments.robustness import guard, misdeclared, null_audits, promises, unseen
from experiments.runner import Result, cell
from overheard.evaluation import decision

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    """In a process of its own: here nothing waits for the disk."""
    (tmp_path / "tmp").mkdir()
    words = ["-m", "experiments", "run", "robustness-chaos", "--quick", "--out", str(tmp_path)]
    done = ended([sys.executable, *words], ROOT, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    found = [r.values for r in runner.results("robustness-chaos", tmp_path)]
    assert [values["faults"] for values in found] == [0] * 3, found
    assert sum(values["kills"] for values in found) >= 6


@pytest.mark.parametrize(("error", "faults"), [(decision.ERROR, 0), (1e9, 4)])
def test_false_exposures_are_counted(
    monkeypatch: pytest.MonkeyPatch, error: float, faults: int
) -> None:
    """Whoever does not pay for chance at all calls everything exposed."""
    monkeypatch.setattr(decision, "ERROR", error)
    found = null_audits.null_audits(
        cell(clients=3, records=20, model="linear", noise=0.0, audits=4)
    )
    assert (found["trials"], found["faults"]) == (4, faults)


def answer(**changes: Any) -> dict[str, Any]:
    """An answer that is as sure as right, about 100 records."""
    return {"n": 100, "accuracy": 0.9, "confidence": 0.9, "promised": 0.0009, **changes}


def test_what_is_surer_than_right_has_collapsed() -> None:
    assert not unseen.collapsed(answer())
    assert unseen.collapsed(answer(accuracy=0.7))
    # five points, of which three standard errors make too little, are none
    assert not unseen.collapsed(answer(n=30, promised=0.003, accuracy=0.8))


def test_an_unseen_cell_is_decoded_and_the_secret_is_not_left_beside() -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 8, 100) + 0.0 for name in unseen.COLUMNS["fair"].split()}
    table["affairs"] = rng.integers(0, 2, 100) + 0.0
    (experiment,) = unseen.EXPERIMENTS
    each = next(c for c in experiment.cells() if c.quick and c["table"] == "fair")
    setting = {**dict(each.setting), "records": 20}
    data = unseen.dataset(setting, table)
    assert each["column"] not in data.records.columns
    again = unseen.dataset({**setting, "recoded": True}, table)
    assert np.array_equal(data.records["s"], 1 - again.records["s"])
    found = unseen.answered(each, data)
    assert found["n"] == 20
    assert found["faults"] in (0, 1)
    assert len({c.key for c in experiment.cells()}) >= 200


@pytest.mark.parametrize("wrong", ["", "rate x2"])
def test_a_wrong_description_is_told_from_the_right_one(wrong: str) -> None:
    found = misdeclared.audited(cell(federation=0, wrong=wrong))
    assert found["called"] is bool(wrong)
    assert found["faults"] == 0


def test_every_wrong_description_is_another_one() -> None:
    true, rng = misdeclared.drawn(1), np.random.default_rng(0)
    said = [misdeclared.changed(true, wrong, rng) for wrong in ("", *misdeclared.WRONG)]
    kept = [json.dumps([{k: v.tolist() for k, v in c.items()}, about]) for c, about in said]
    assert len(set(kept)) == len(kept)
    assert said[0] == (true.columns, true.about)


@pytest.mark.parametrize(
    ("federation", "asleep", "left", "exposed"),
    [(0, False, "none", 0), (2, False, "some", 0), (0, True, "all", 1)],
)
def test_what_guarded_clients_let_out_in_several_rounds_exposes_nothing(
    monkeypatch: pytest.MonkeyPatch, federation: int, asleep: bool, left: str, exposed: int
) -> None:
    """Through the Flower mod: by default nothing leaves of updates that tell, in no round, and some
    do behind noise. Behind a guard that sleeps the same updates leave, and are exposed."""
    flower = pytest.importorskip("overheard.flower", reason="Flower is not installed")
    if asleep:
        monkeypatch.setattr(flower, "guard_mod", lambda *how, **more: lambda m, c, call: call(m, c))
    monkeypatch.setattr(guard, "CLIENTS", 2)
    monkeypatch.setattr(guard, "ROUNDS", 4)
    found = guard.guarded(cell(federation=federation))
    assert (found["trials"], found["updates"], found["faults"]) == (2, 8, exposed)
    assert found["left"] in {"none": [0], "some": range(1, 9), "all": [8]}[left]


def test_an_exposed_secret_that_was_called_ok_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = guard.asked(cell(federation=0))
    assert found["faults"] == 0 < found["exposed"]
    monkeypatch.setattr(guard, "_answers", lambda config, client: {})  # never asked
    assert guard.asked(cell(federation=0))["faults"] == found["exposed"]


def test_promises_say_what_is_not_run_and_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "results", lambda name: [])
    lines = promises.promise_table().splitlines()[2:]
    assert len(lines) >= 8
    assert all("not run" in line for line in lines)
    values = promises.tried(5, 2, "too often")
    broken = Result("x", {"case": "a"}, "", 0, values, 1.0, "c", "abc", "2026-01-01")
    assert "2 faults" in promises.counted([broken])
    assert "too often" in promises.counted([broken])


# --------------------------------------------------------------------------------------- accuracy


def test_an_audit_is_a_cell_and_a_row_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    case = programs.STEPS["site 3, black"]
    found = audits.audited(case, 0)
    assert found["value"] == {"black": 1.0}
    assert set(found["by rounds"]) == {"1", "2", "5", "7"}
    assert found["imputation"]["black"] > 0.5
    setting: dict[str, Any] = {"case": "site 3, black"}
    result = Result("accuracy-newton", setting, "", 0, found, 1.0, "c", "abc", "2026-01-01")
    monkeypatch.setattr(programs, "results", lambda name: [result])
    assert "| black | " in programs.TABLES["newton"]()


@pytest.mark.parametrize("module", [networks, programs])
def test_cases_are_described_as_the_simulator_wants_them(module: Any) -> None:
    from overheard.federation.federation import parse_config

    for experiment in module.EXPERIMENTS:
        keys = [each.key for each in experiment.cells()]
        assert len(set(keys)) == len(keys)
    for cases in (v for v in vars(module).values() if isinstance(v, dict)):
        for case in (c for c in cases.values() if isinstance(c, audits.Case)):
            parse_config(dict(case.config))


def test_one_setting_of_a_sweep_is_a_cell() -> None:
    found = programs._tried(cell("nothing", program="statistics"))
    assert found["lift"] > 0.02
    assert found["utility"] == 1.0
