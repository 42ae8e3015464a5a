"""The guard in a ClientApp, called as Flower calls it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clients import config, table

from overheard.errors import FixConfig
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards
from overheard.guard.dry_run import DryRun
from overheard.guard.exposure import Exposure, Limits
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.training import local_training

flwr: Any = pytest.importorskip("flwr.app", reason="Flower is not installed")
flower: Any = pytest.importorskip("overheard.flower", reason="Flower is not installed")
LOOSE = Limits(bits=2.0, entropy=1.5, certain=1.0)
QUIET = Exposure("s", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
DOUBTED, LOUD = replace(QUIET, doubt="poor fit"), replace(QUIET, bits=1.0)
ME = "site 0"
TOML = """
[data]
source = "file"
path = "people.csv"
client = "who"
target = "y"
[model]
name = "mlp"
hidden = [{hidden}]
[training]
learning_rate = 0.1
[audit]
attributes = ["s"]
"""
Mod = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("client")
    table(where, 40)
    write(where)
    return where


@pytest.fixture(scope="module")
def ready(folder: Path) -> Plan:
    return plan(config(str(folder / "people.csv")))


def write(folder: Path, name: str = "audit.toml", hidden: int = 24) -> None:
    """The description that the audit of the federation would be given."""
    (folder / name).write_text(TOML.format(hidden=hidden))


def answered(
    ready: Plan, mod: Mod, kind: str = "train", state: Any = None, seed: int = 0,
    bare: bool = False, **more: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """What leaves a client of a torch app with this mod, and the model that it has trained;
    ``more``: arrays that it sends beside the model, ``bare``: it sends none."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    layout = ready.recipe.model.layout()
    start = initial(ready.recipe.model, seed).astype(np.float32)
    data = client_shards(ready.recipe, ready.clients)
    trained = local_training(ready.recipe, start, data, np.random.default_rng(0))[0]

    def model(flat: Any, **more: Any) -> Any:
        arrays = {torch_name(n): np.ascontiguousarray(a) for n, a in named(layout, flat).items()}
        pieces = {n: flwr.Array(a) for n, a in (arrays | more).items()}
        return flwr.RecordDict({"arrays": flwr.ArrayRecord(pieces)})

    def train(message: Any, context: Any) -> Any:
        content = flwr.RecordDict() if bare else model(trained, **more)
        return flwr.Message(content, reply_to=message)

    message = flwr.Message(model(start), dst_node_id=1, message_type=kind)
    message.metadata.__dict__["_message_id"] = "1"
    state = flwr.RecordDict() if state is None else state
    context = flwr.Context(run_id=1, node_id=1, node_config={}, state=state, run_config={})
    return mod(message, context, train), trained


def torch_name(ours: str) -> str:
    """``layers.1.weight`` of ours is ``net.2.weight`` of a Sequential in an app."""
    _, number, what = ours.split(".")
    return f"net.{2 * int(number)}.{what}"


def sent_by(reply: Any, ready: Plan) -> Any:
    arrays = {n: a.numpy() for n, a in reply.content["arrays"].items()}
    names = [torch_name(n) for n, _ in ready.recipe.model.layout()]
    return np.concatenate([arrays[n].reshape(-1) for n in names])


def refusals(ready: Plan, mod: Mod, rounds: int, state: Any = None) -> list[bool]:
    """Which of the rounds of one client are refused."""
    state = flwr.RecordDict() if state is None else state
    return [
        answered(ready, mod, state=state, seed=number)[0].has_error() for number in range(rounds)
    ]


def guarded(folder: Path, file: str = "audit.toml", **options: Any) -> Mod:
    known = {name: options.pop(name) for name in ("limits", "tell") if name in options}
    how = flower.Guarding(**options)
    mod: Mod = flower.guard_mod(folder / file, lambda context: ME, how=how, **known)
    return mod


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Let the guard measure this in turn; it is noted how many rounds it looked at each time."""

    def script(*answers: list[Exposure]) -> list[int]:
        rounds: list[int] = []

        def found(run: DryRun, limits: Limits, targets: Any = ()) -> list[Exposure]:
            rounds.append(len(run.recording.rounds))
            return answers[len(rounds) - 1]

        monkeypatch.setattr(DryRun, "exposures", found)
        return rounds

    return script


def test_a_torch_apps_update_that_tells_is_refused_with_the_reason_and_the_cost(
    ready: Plan, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its arrays have the names of a torch module; they are told apart as the audit does it."""
    known: list[Exposure] = []
    with caplog.at_level(logging.WARNING, "overheard.guard"):
        reply, _ = answered(ready, guarded(folder, tell=lambda _, one: known.append(one)))
    assert reply.error.reason == "refused by the guard: more of 's' would leak than may"
    assert "40 of 40 records certain" in caplog.text
    assert "looked at for" in caplog.text
    assert [(one.name, one.value, one.certain) for one in known] == [("s", 1.0, 40)]
    assert known[0].seconds > 0


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_a_model_does_not_leave_in_answer_to_another_message(
    ready: Plan, folder: Path, kind: str
) -> None:
    assert answered(ready, guarded(folder), kind)[0].has_error()
    assert not answered(ready, guarded(folder), kind, bare=True)[0].has_error()


def test_enough_noise_lets_it_pass_and_is_never_the_same_twice(ready: Plan, folder: Path) -> None:
    mod = guarded(folder, noise_sd=1.0, limits=Limits(p_value=0.0, evidence=40))
    (one, trained), (two, _) = (answered(ready, mod) for _ in range(2))
    assert (sent_by(one, ready) - trained).std() == pytest.approx(1.0, rel=0.2)
    assert np.abs(sent_by(one, ready) - sent_by(two, ready)).std() > 0.5
    assert refusals(ready, guarded(folder, noise_sd=1e-9), 1) == [True]


def test_what_is_not_known_does_not_leave_unless_it_may(
    ready: Plan, folder: Path, measuring: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    measuring([DOUBTED], [DOUBTED])
    reply, _ = answered(ready, guarded(folder))
    assert reply.error.reason.endswith("what it would leak is not known")  # and no figure
    reply, trained = answered(ready, guarded(folder, unsure="pass"))
    assert np.array_equal(sent_by(reply, ready), trained)
    assert "s: poor fit); it is sent as it is" in caplog.text


def test_an_array_that_the_model_does_not_have_does_not_leave(
    ready: Plan, folder: Path, measuring: Callable[..., list[int]]
) -> None:
    measuring([QUIET], [QUIET])
    assert not answered(ready, guarded(folder))[0].has_error()
    with pytest.raises(FixConfig, match="send no other arrays"):
        answered(ready, guarded(folder, unsure="pass"), secret=np.ones(3, np.float32))


def test_who_lets_the_unmeasured_pass_does_so_until_the_first_refusal(
    ready: Plan, folder: Path, measuring: Callable[..., list[int]]
) -> None:
    measuring([DOUBTED], [LOUD], [DOUBTED], [QUIET], [DOUBTED])
    found = refusals(ready, guarded(folder, unsure="pass"), 5)
    assert found == [False, True, True, False, True]


def test_rounds_are_judged_together_with_those_that_have_left(
    ready: Plan, folder: Path, measuring: Callable[..., list[int]]
) -> None:
    rounds = measuring([QUIET], [QUIET], [LOUD], [DOUBTED], *[[QUIET]] * 5)
    state = flwr.RecordDict()
    found = refusals(ready, guarded(folder, remember=4), 8, state)
    assert found == [False, False, True, True, False, False, False, False]
    assert rounds == [1, 2, 3, 3, 3, 4, 5, 5]  # the two that were refused have not left
    refusals(ready, guarded(folder, remember=0), 1, state)
    assert rounds[-1] == 1


def test_what_has_left_is_remembered_bit_for_bit(
    ready: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def reading(self: DryRun, limits: Limits) -> list[Exposure]:
        read.append([back for _, _, back in self.recording.releases(ME)])
        return [QUIET]

    monkeypatch.setattr(DryRun, "exposures", reading)
    refusals(ready, guarded(folder), 2)
    (first,), (again, _) = read
    assert len(first) == 4
    np.testing.assert_equal(again, first)


def test_wrong_settings_are_refused(ready: Plan, folder: Path) -> None:
    with pytest.raises(FixConfig, match="give 0 or more"):
        guarded(folder, noise_sd=-1.0)
    with pytest.raises(FixConfig, match="neither 'refuse' nor 'pass'"):
        guarded(folder, unsure="maybe")
    trees = (folder / "audit.toml").read_text().partition("[model]")[0]
    (folder / "trees.toml").write_text(trees + '[model]\nname = "xgboost"\n')
    with pytest.raises(FixConfig, match="trains no network"):
        guarded(folder, "trees.toml")
    write(folder, "wider.toml", hidden=9)
    with pytest.raises(FixConfig, match="the model described has"):
        answered(ready, guarded(folder, "wider.toml"))
