"""What every defence promises, whichever file it is in."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from federations import generated_people, planned, view_of

import overheard
from overheard import Recording, audit, plan, simulate
from overheard.errors import FixConfig
from overheard.federation import defences
from overheard.federation.defences import all_defences, parse_defence
from overheard.federation.defences.contract import (
    HOOKS,
    Claim,
    Defence,
    RoundContext,
    Stage,
    applied,
    chain,
)
from overheard.programs.records import Records
from overheard.programs.training import LocalStep
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import AppliedDefence
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

# settings with which each defence is tried, and the hooks that it has; a new defence adds its own
SETTINGS = {
    "clip": {"norm": 0.05},
    "gaussian": {"sd": 0.1},
    "secure_sum": {},
    "dp_sgd": {"clip": 0.5, "noise": 1.0},
    "drop_column": {"columns": ["s"]},
    "top_k": {"share": 0.1},
    "quantise": {"bits": 8},
    "leaf_values": {"rounded_to": 0.01},
    "suppress_cells": {"below": 4},
    "round_counts": {"to": 5},
    "dp_sums": {"clip": 2.0, "noise": 1.0},
}
PROGRAMS = {  # of defences that act on programs alone
    "leaf_values": {"name": "xgboost", "objective": "reg:squarederror"},
    "suppress_cells": {"name": "statistics", "tables": [{"by": ["s"]}]},
    "round_counts": {"name": "statistics", "tables": [{"by": ["s"]}]},
    "dp_sums": {"name": "newton", "likelihood": "linear"},
}
DECLARED = {
    "clip": ("upload",),
    "gaussian": ("upload", "broadcast"),
    "secure_sum": ("upload", "total", "program"),
    "dp_sgd": ("step",),
    "drop_column": ("records",),
    "top_k": ("upload",),
    "quantise": ("upload",),
    **dict.fromkeys(PROGRAMS, ("program",)),
}


def federation(name, model=None):
    """A plan with this defence alone: three clients, an attribute ``s``."""
    network = model is None
    config = {
        "data": {"source": "people"},
        "model": {"name": "mlp", "hidden": [4]} if network else model,
        "training": {"rounds": 2, **({"learning_rate": 0.1} if network else {})},
        "defence": [{"name": name, **SETTINGS[name]}],
    }
    return planned(config, people())


def people():
    return generated_people(clients=3, people=10, columns=4, seed=4)


def built(name):
    return chain(parse_defence({"name": name, **SETTINGS[name]}))


def updates():
    return np.random.default_rng(3).normal(size=(3, 400)) * [[0.001], [0.02], [1.0]]


def context(seed=0):
    return RoundContext(0, np.array([0, 2, 3]), np.random.default_rng(seed))


@pytest.mark.parametrize("name", sorted(all_defences()))
class TestEvery:
    def test_is_one_class_in_a_file_of_its_name(self, name):
        defence = all_defences()[name]
        assert defence.__module__.rpartition(".")[2] == name
        assert defence.hooks() == DECLARED[name]

    def test_hooks_keep_shapes_and_change_nothing_in_place(self, name):
        (defence,) = built(name).parts
        before, model = updates(), np.ones(400)
        after = defence.upload(before, context())
        total, answered = defence.total(before, context())
        sent = defence.broadcast(model, context())
        assert after.shape == before.shape
        assert after.dtype == total.dtype == np.float64
        assert total.shape == sent.shape == model.shape
        np.testing.assert_allclose(total, before[answered].sum(axis=0), atol=1e-9)
        np.testing.assert_array_equal(before, updates())
        np.testing.assert_array_equal(model, 1.0)
        records = people().records
        left = defence.records(records, np.random.default_rng(0))
        assert len(left) == len(records)
        assert set(records.columns) == set(people().records.columns)

    def test_what_is_not_declared_changes_nothing(self, name):
        (defence,) = built(name).parts
        records, step = people().records, LocalStep(0)
        changed = {
            "records": defence.records(records, np.random.default_rng(0)) is not records,
            "step": defence.step(step) is not step,
            "upload": not np.array_equal(defence.upload(updates(), context()), updates()),
        }
        for hook, differs in changed.items():
            assert differs == (hook in DECLARED[name])

    def test_its_claim_is_data_and_true(self, name):
        (claim,) = built(name).claims
        assert claim.name == name
        assert len(claim.promises) > 10
        said = applied((claim,))
        assert isinstance(said, AppliedDefence)
        assert said.names == (name,)
        content = json.loads(json.dumps(said.content()))
        assert content["effects"] == [list(claim.effects)]
        after = built(name).upload(updates(), context(1))
        if claim.clip_norm is not None:
            assert np.linalg.norm(after, axis=1).max() <= claim.clip_norm * (1 + 1e-12)
        if claim.noise_sd:
            assert np.std(after - updates()) == pytest.approx(claim.noise_sd, rel=0.1)

    def test_its_settings_survive_a_file_and_typos_are_refused(self, name):
        config = parse_defence({"name": name, **SETTINGS[name]})
        assert parse_defence(json.loads(config.model_dump_json())) == config
        with pytest.raises(FixConfig, match=f"defence '{name}': unknown key 'strenght'"):
            parse_defence({"name": name, **SETTINGS[name], "strenght": 1})

    def test_in_a_federation(self, name, tmp_path):
        """It is told to everybody, changes what is heard, and the same seed gives the same bits."""
        if name.startswith("dp_"):
            pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
        if name in PROGRAMS:
            in_a_program(name, tmp_path)
            return
        ready = federation(name)
        assert ("s" in ready.recipe.encoding.columns()) == (name != "drop_column")
        assert (ready.recipe.private is not None) == (name == "dp_sgd")
        runs = [Recording.open(simulate(ready, tmp_path / which)) for which in "ab"]
        assert runs[0].side("AppliedDefence")["names"] == [name]
        observed = [model_heard(run) for run in runs]
        np.testing.assert_array_equal(*observed)
        bare = ready.config.model_copy(update={"defence": ()})
        off = replace(ready, config=bare, program=ready.recipe.model_copy(update={"private": None}))
        without = model_heard(Recording.open(simulate(off, tmp_path / "bare")))
        if name not in ("drop_column", "secure_sum"):  # in the plan; rounding alone
            assert np.abs(observed[0] - without).max() > 1e-5
        else:
            np.testing.assert_allclose(observed[0], without, atol=1e-6)


def in_a_program(name, tmp_path):
    if PROGRAMS[name]["name"] == "xgboost":
        pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    ready = federation(name, PROGRAMS[name])
    runs = [Recording.open(simulate(ready, tmp_path / which)) for which in "ab"]
    assert runs[0].side("AppliedDefence")["names"] == [name]
    assert program_in(runs[0]).settings == ready.program.settings != plain(name).program.settings
    bare = Recording.open(simulate(plain(name), tmp_path / "bare"))
    observed = [
        b"".join(a.tobytes() for a in first_returned(run).values()) for run in (*runs, bare)
    ]
    assert observed[0] == observed[1] != observed[2]
    (found,) = audit(runs[0], EAVESDROPPER, ["max_entropy"], ["0"]).findings
    assert "flag" not in found.details  # the decoder knows what was done
    with pytest.raises(FixConfig, match=f"defence '{name}' is about programs"):
        federation(name)


def plain(name):
    """The same federation without the defence."""
    ready = federation(name, PROGRAMS[name])
    return plan(ready.config.model_copy(update={"defence": ()}), people())


def first_returned(run):
    ((_, _, returned), *_) = run.releases("0")
    return returned


def model_heard(run):
    """The model that the clients are sent in the last round."""
    *_, (_, sent, _) = run.aggregates()
    return np.concatenate([np.ravel(a) for a in sent.values()])


def test_every_defence_is_tried_and_every_hook_is_used():
    assert set(SETTINGS) == set(DECLARED) == set(all_defences())
    assert {hook for hooks in DECLARED.values() for hook in hooks} == set(HOOKS)


class Drifting(Defence):
    """Not one of ours: it remembers, and it has a hook on the records."""

    name: str = "drifting"

    @property
    def claim(self):
        words = "updates grow from round to round"
        return Claim(self.name, Stage.COMPRESSION, words, effects=("sparse",))

    def records(self, records, rng):
        return Records({**records.columns, "x0": records["x0"] + rng.normal(size=len(records))})

    def upload(self, updates, context):
        context.memory["rounds"] = context.memory.get("rounds", 0) + 1
        return updates * context.memory["rounds"]


def test_a_defence_remembers_from_round_to_round_and_for_itself_alone():
    both, memory = chain(Drifting(), Drifting()), {}
    for number in (1, 2, 3):
        context = RoundContext(number, np.arange(2), np.random.default_rng(0), memory)
        assert (both.upload(np.ones((2, 4)), context) == number**2).all()


def announced(monkeypatch, value, thing):
    point = SimpleNamespace(value=value, load=lambda: thing)
    monkeypatch.setattr(
        defences, "entry_points", lambda group: [point] if group == "overheard.defences" else []
    )


@pytest.fixture
def fresh_registry():
    all_defences.cache_clear()
    yield
    all_defences.cache_clear()


def test_a_defence_of_another_package_is_found_by_its_entry_point(
    monkeypatch, fresh_registry, tmp_path
):
    announced(monkeypatch, "theirs:Drifting", Drifting)
    both = [{"name": "drifting"}, {"name": "drop_column", "columns": ["s"]}]
    config = {
        "data": {"source": "people"},
        "model": {"name": "linear"},
        "training": {"rounds": 2, "learning_rate": 0.1},
    }
    with pytest.raises(FixConfig, match="'drop_column' after 'drifting' voids"):
        planned(config | {"defence": both}, people())
    ready = planned(config | {"defence": both[:1]}, people())
    run = Recording.open(simulate(ready, tmp_path / "run"))
    assert run.side("AppliedDefence")["names"] == ["drifting"]
    assert run.side("AppliedDefence")["effects"] == [["sparse"]]
    defence = view_of(run).know(AppliedDefence)
    assert defence.having("sparse") == ("drifting",)
    assert defence.having("repeatable") == ()
    assert run.truth()["0"]["x0"].tolist() == ready.clients["0"]["x0"].tolist()  # as they were
    free = replace(ready, config=ready.config.model_copy(update={"defence": ()}))
    bare = Recording.open(simulate(free, tmp_path / "bare"))
    assert np.abs(model_heard(run) - model_heard(bare)).max() > 1e-3


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (Records, "theirs:X: is no defence; derive it from"),
        (type("Other", (Drifting,), {"__annotations__": {"name": str}, "name": "clip"}), "two def"),
    ],
)
def test_what_is_no_defence_or_has_a_name_that_is_taken_is_refused(
    monkeypatch, fresh_registry, thing, words
):
    announced(monkeypatch, "theirs:X", thing)
    with pytest.raises(FixConfig, match=words):
        parse_defence({"name": "clip", "norm": 1.0})


PACKAGE = Path(overheard.__file__).parent
CLOSED = ("federation/plan.py", "federation/simulate.py", "federation/server.py")
CLOSED_LAYERS = ("guard", "sweep", "attacks", "report", "evaluation")


def asks_which(source, names):
    """Lines that compare with a defence's name, or ask whether something is one of its class."""
    asking = {"isinstance", "issubclass", "frozenset", "set"}
    found = []
    for node in ast.walk(ast.parse(source)):
        call = isinstance(node, ast.Call) and getattr(node.func, "id", "") in asking
        if isinstance(node, ast.expr) and (call or isinstance(node, ast.Compare | ast.Set)):
            inside = [getattr(n, "id", getattr(n, "value", "")) for n in ast.walk(node)]
            found += [f"{node.lineno}: {value}" for value in inside if value in names]
    return found


def test_nobody_asks_which_defence_it_is():
    names = {name for known in all_defences().items() for name in (known[0], known[1].__name__)}
    files = [PACKAGE / name for name in CLOSED]
    files += [file for layer in CLOSED_LAYERS for file in (PACKAGE / layer).rglob("*.py")]
    found = {
        str(file.relative_to(PACKAGE)): asked
        for file in files
        if file.exists() and (asked := asks_which(file.read_text(), names))
    }
    assert found == {}
    assert len(asks_which("if 'top_k' in names or isinstance(d, Clip): pass", names)) == 2
