"""Preflight: the audit, before there is anything to audit."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clients import config, table
from federations import generated_people, with_strangers

import overheard
from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.guard import preflight as module
from overheard.guard.exposure import Exposure, Limits
from overheard.guard.preflight import Preflight, preflight
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

CONFIG: dict[str, Any] = {
    "data": {
        "source": "digits",
        "options": {"victim": 30, "participants": 1, "attributes": ["c043"]},
    },
    "model": {"name": "mlp", "hidden": [6]},
    "training": {"rounds": 1, "learning_rate": 0.1},
}


def answers(found: Preflight) -> dict[str, str]:
    return {e.name: e.answer(found.limits) for e in found.found}


def test_a_rare_secret_is_not_let_pass_for_its_few_bits(tmp_path: Path) -> None:
    found = preflight(config(table(tmp_path, 200, rare=True)), changes=False)
    (one,) = found.found
    assert one.bits is not None
    assert one.bits < 0.1  # of 0.045 that there are
    assert one.certain == 200
    assert answers(found) == {"s": "too much"}
    assert any("of what there is to learn" in words for words in one.beyond(found.limits))
    assert any("200 of 200 records certain" in words for words in one.beyond(found.limits))


def test_as_many_rounds_as_configured_are_listened_to(tmp_path: Path) -> None:
    """Behind noise that is drawn anew each round, a model tells little in a round."""
    asked = config(
        table(tmp_path, 40),
        training={"rounds": 40, "learning_rate": 0.1},
        defence=[{"name": "gaussian", "sd": 0.02}],
    )
    every = preflight(asked, targets=["s"], changes=False)
    once = preflight(asked, rounds=1, targets=["s"], changes=False)
    assert (every.rounds, once.rounds, once.configured) == (40, 1, 40)
    assert every.answer == "too much"
    assert once.answer != "too much"
    assert once.found[0].beyond(once.limits) == []


def test_every_question_of_the_audit_is_asked(tmp_path: Path) -> None:
    asked = {"attributes": ["s"], "membership": 15, "label": True}
    wanted = config(table(tmp_path, 60), audit=asked, training={"rounds": 1, "learning_rate": 0.1})
    found = preflight(wanted, changes=False)
    run = Recording.open(simulate(plan(wanted), tmp_path / "run"))
    audited = {(v.question, v.attribute or ""): v.level for v in audit(run, EAVESDROPPER).secrets}
    del audited["local_model", ""]  # of a network, which has no one optimum
    assert {(e.question, e.attribute) for e in found.found} == set(audited)
    assert set(answers(found)) == {"s", "membership (s)", "label"}
    assert audited["attribute", "s"] == audited["membership", "s"] == "exposed"
    assert set(answers(found).values()) == {"too much"}


def test_the_answer_of_the_worst_secret_counts() -> None:
    fine = Exposure("a", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
    failed = Exposure("b", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0, doubt="poor fit")
    loud = Exposure("c", 10, 0.9, 0.8, 1.0, 0.5, 9, 0.9, 0.9)
    told = {n: Preflight("c", 1, 1, Limits(), e) for n, e in {
        "ok": (fine,), "not known": (fine, failed), "too much": (loud, fine, failed)
    }.items()}  # fmt: skip
    assert [p.answer for p in told.values()] == list(told)
    assert [p.passes for p in told.values()] == [True, False, False]
    assert Preflight("c", 1, 1, Limits(), (fine,), unasked=("much",)).answer == "not known"
    assert told["too much"].worst is loud


def test_a_flag_is_never_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from overheard.attacks.attribute import MaxEntropy

    quiet = config(table(tmp_path, 40), defence=[{"name": "gaussian", "sd": 10.0}])
    assert answers(preflight(quiet, changes=False)) == {"s": "ok"}
    sound = MaxEntropy.__call__

    def flagging(self: MaxEntropy, view: Any, rng: Any) -> Any:
        guess = sound(self, view, rng)
        return replace(guess, diagnostics={**guess.diagnostics, "flag": "poor fit: of a test"})

    monkeypatch.setattr(MaxEntropy, "__call__", flagging)
    found = preflight(quiet, changes=False)
    assert answers(found) == {"s": "not known"}
    assert "max_entropy: poor fit: of a test" in found.found[0].doubt


def test_preflight_finds_the_smallest_change_that_helps() -> None:
    steps: list[int] = []
    training = {"rounds": 1, "learning_rate": 0.1, "algorithm": "fedsgd"}
    asked = parse_config({**CONFIG, "training": training})
    found = preflight(asked, progress=lambda _, done, total: steps.append(done))
    assert not found.passes
    assert found.worst.value == 1.0
    assert found.worst.certain >= 25
    noises = [c for c in found.changes if c.kind == "noise"]
    assert [c.strength for c in noises] == sorted(c.strength for c in noises)
    enough = [c.answer(found.limits) == "ok" for c in noises]
    assert enough == sorted(enough)
    assert any(enough)
    assert noises[enough.index(True)] in found.smallest()
    assert steps == sorted(steps)
    (drop,) = [c for c in found.changes if c.kind == "drop"]
    assert drop.words == "leaving c043 out of the model"
    assert drop in found.smallest()


@pytest.mark.parametrize("pace", [1.0, -1.0])
def test_which_attack_is_named_does_not_depend_on_what_it_took(
    monkeypatch: pytest.MonkeyPatch, pace: float
) -> None:
    """Several get everything; whichever runs later seems slower, and then quicker."""
    clock = accumulate(100 + pace * number for number in range(100))
    watch = SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr("overheard.evaluation.audit.time", watch)
    found = overheard.preflight(parse_config(CONFIG), rounds=2, changes=False)
    assert (found.rounds, found.configured, found.passes) == (2, 1, False)
    assert found.worst.value == 1.0
    assert found.worst.attack == "max_entropy"


def test_the_own_model_is_asked_about(tmp_path: Path) -> None:
    training = {"rounds": 40, "learning_rate": 0.1}
    asked = config(
        table(tmp_path, 60, clients=3),
        model={"name": "linear"},
        training=training,
        audit={"attributes": []},
    )
    found = preflight(asked, "site 1", changes=False)
    assert answers(found) == {"own model": "too much"}


def test_secure_aggregation_is_judged_as_if_it_were_not_there(tmp_path: Path) -> None:
    training = {"rounds": 1, "learning_rate": 0.1, "weighting": "equal"}
    asked = config(table(tmp_path, 40), training=training, defence=[{"name": "secure_sum"}])
    found = preflight(asked, changes=False)
    assert "as if it were heard by itself" in found.notes[0]
    assert answers(found) == {"s": "too much"}


def test_a_property_leaves_a_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        "data": {"source": "made"},
        "model": {"name": "linear"},
        "training": {"rounds": 2, "learning_rate": 0.1},
        "property": {"kind": "free-rider", "positives": 1},
    }
    data = with_strangers(generated_people(2, 60, 4, 0))
    monkeypatch.setattr(module, "plan", lambda config: plan(config, data))
    _, asked = module._asked(parse_config(content), "0", Limits(), None, ())
    assert "[property]" in asked.unasked[0]
    assert asked.answer == "not known"


@pytest.mark.parametrize(
    ("client", "changes", "complaint"),
    [
        ("nobody", {}, "no client 'nobody'"),
        ("", {"data": {**CONFIG["data"], "options": {"victim": 20, "participants": 2}}}, "several"),
        ("", {"audit": {"attributes": []}}, "asks nothing that can be scored"),
    ],
)
def test_preflight_says_what_is_wrong(client: str, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FixConfig, match=complaint):
        preflight(parse_config({**CONFIG, **changes}), client)


TOML = (
    "[data]\nsource = 'digits'\noptions = { victim = 24, attributes = ['c043'] }\n"
    "[model]\nname = 'mlp'\nhidden = [6]\n[training]\nrounds = 1\nlearning_rate = 0.1\n"
)


def test_the_command_says_what_it_measured_and_exits_by_it(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from overheard.cli import app

    file, out = tmp_path / "client.toml", tmp_path / "found.json"
    file.write_text(TOML)
    told = CliRunner().invoke(app, ["preflight", str(file), "--no-changes", "--out", str(out)])
    assert told.exit_code == 1, told.output
    assert "too much: what a simulated client of this recipe (1 round) would reveal" in told.output
    assert json.loads(out.read_text())["answer"] == "too much"
    file.write_text(TOML + "[[defence]]\nname = 'gaussian'\nsd = 10.0\n")
    told = CliRunner().invoke(app, ["preflight", str(file)])
    assert told.exit_code == 0, told.output
    assert "ok: a simulated client of this recipe" in told.output
    assert "not a guarantee" in told.output
