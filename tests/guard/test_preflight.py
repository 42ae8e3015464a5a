"""Preflight: the audit, before there is anything to audit."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clients import config, table
from federations import generated_people, with_strangers
from safetensors.numpy import save_file
from typer.testing import CliRunner

from overheard.cli import app
from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.federation.federation import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards, simulate
from overheard.guard import preflight as module
from overheard.guard.dry_run import recorded
from overheard.guard.exposure import Limits
from overheard.guard.preflight import Preflight, preflight, preflight_updates, read_update
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.training import local_training
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
    return {e.name: e.answer(found.limits) for e in found.exposures}


def test_a_rare_secret_is_not_let_pass_for_its_few_bits(tmp_path: Path) -> None:
    found = preflight(config(table(tmp_path, 200, rare=True)), changes=False)
    (one,) = found.exposures
    assert one.bits is not None
    assert one.bits < 0.1  # of 0.045 that there are
    assert one.certain == 200
    assert answers(found) == {"s": "too much"}
    assert any("of what there is to learn" in words for words in one.beyond(found.limits))
    assert any("200 of 200 records certain" in words for words in one.beyond(found.limits))


def test_as_many_rounds_as_configured_are_listened_to(tmp_path: Path) -> None:
    """Behind noise that is drawn anew each round, a model tells little in a round."""
    noise = [{"name": "gaussian", "sd": 0.02}]
    asked = config(table(tmp_path, 40), training={"rounds": 40}, defence=noise)
    every = preflight(asked, targets=["s"], changes=False)
    once = preflight(asked, rounds=1, targets=["s"], changes=False)
    assert (every.rounds, once.rounds, once.configured) == (40, 1, 40)
    assert every.answer == "too much"
    assert once.answer != "too much"
    assert once.exposures[0].beyond(once.limits) == []


def test_every_question_of_the_audit_is_asked(tmp_path: Path) -> None:
    asked = {"attributes": ["s"], "membership": 15, "label": True}
    wanted = config(table(tmp_path, 60), audit=asked)
    found = preflight(wanted, changes=False)
    run = Recording.open(simulate(plan(wanted), tmp_path / "run"))
    audited = {(v.question, v.attribute or ""): v.level for v in audit(run, EAVESDROPPER).secrets}
    del audited["local_model", ""]  # of a network, which has no one optimum
    assert {(e.question, e.attribute) for e in found.exposures} == set(audited)
    assert set(answers(found)) == {"s", "membership (s)", "label"}
    assert audited["attribute", "s"] == audited["membership", "s"] == "exposed"
    assert set(answers(found).values()) == {"too much"}


def test_preflight_finds_the_smallest_change_that_helps() -> None:
    steps: list[int] = []
    training = {"rounds": 1, "learning_rate": 0.1, "algorithm": "fedsgd"}
    asked = parse_config({**CONFIG, "training": training})
    found = preflight(asked, progress=lambda _, done, total: steps.append(done))
    assert found.answer != "ok"
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


def test_the_own_model_is_asked_about(tmp_path: Path) -> None:
    other = {"model": {"name": "linear", "hidden": []}, "audit": {"attributes": []}}
    asked = config(table(tmp_path, 60, clients=3), training={"rounds": 40}, **other)
    found = preflight(asked, "site 1", changes=False)
    assert answers(found) == {"own model": "too much"}


def test_secure_aggregation_is_judged_as_if_it_were_not_there(tmp_path: Path) -> None:
    rule = {"training": {"weighting": "equal"}, "defence": [{"name": "secure_sum"}]}
    asked = config(table(tmp_path, 40), **rule)
    found = preflight(asked, changes=False)
    assert "as if it were observed by itself" in found.notes[0]
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
    file, out = tmp_path / "client.toml", tmp_path / "found.json"
    file.write_text(TOML)
    known = CliRunner().invoke(app, ["preflight", str(file), "--no-changes", "--out", str(out)])
    assert known.exit_code == 1, known.output
    assert "too much: what a simulated client of this recipe (1 round) would reveal" in known.output
    assert json.loads(out.read_text())["answer"] == "too much"
    file.write_text(TOML + "[[defence]]\nname = 'gaussian'\nsd = 10.0\n")
    known = CliRunner().invoke(app, ["preflight", str(file)])
    assert known.exit_code == 0, known.output
    assert "ok: a simulated client of this recipe" in known.output
    assert "no guarantee" in known.output


# --- real updates, from files that may hold anything


ME = "site 0"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    return table(tmp_path_factory.mktemp("people"), 40)


def trained(ready: Plan, rate: float | None = None, seed: int = 0) -> tuple[Any, Any]:
    """The model that is sent, and what the client makes of it; ``rate``: but in other steps."""
    sent = initial(ready.recipe.model, 5).astype(np.float32)
    recipe = ready.recipe
    if rate is not None:
        recipe = recipe.model_copy(update={"learning_rate": rate})
    data = client_shards(recipe, {ME: ready.clients[ME]})
    return sent, local_training(recipe, sent, data, np.random.default_rng(seed))[0]


def arrays_of(ready: Plan, sent: Any, returned: Any) -> dict[str, Any]:
    layout = ready.recipe.model.layout()
    return {
        f"{way}/{name}": np.ascontiguousarray(array)
        for way, flat in (("sent", sent), ("returned", returned))
        for name, array in named(layout, flat).items()
    }


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_real_update_is_read_and_judged(people: str, tmp_path: Path, kind: str) -> None:
    asked = config(people)
    ready = plan(asked)
    sent, returned = trained(ready)
    file = tmp_path / f"update.{kind}"
    arrays = arrays_of(ready, sent, returned)
    if kind == "npz":
        np.savez_compressed(file, **arrays)
    else:
        save_file(arrays, file)
    again = read_update(file, ready)
    for way, one in zip(("sent", "returned"), again, strict=True):
        assert all(np.array_equal(array, arrays[f"{way}/{name}"]) for name, array in one.items())
    found = preflight_updates(asked, [file])
    assert not found.simulated
    assert found.unasked == ()
    assert found.answer == "too much"
    assert found.worst.value == 1.0


def test_fewer_updates_than_rounds_are_no_ok(people: str, tmp_path: Path) -> None:
    noise = [{"name": "gaussian", "sd": 10.0}]
    asked = config(people, training={"rounds": 5}, defence=noise)
    ready = plan(asked)
    sent, returned = trained(ready)
    added = np.random.default_rng(1).normal(0, 10.0, returned.shape)
    file = tmp_path / "update.npz"
    np.savez(file, **arrays_of(ready, sent, (returned + added).astype(np.float32)))
    found = preflight_updates(asked, [file])
    assert found.answer == "not known"
    assert "1 of 5 rounds were given" in found.unasked[0]
    assert preflight_updates(asked, [file], rounds=1).answer == "ok"


@pytest.mark.parametrize("batch", [0, 8])
def test_an_update_of_another_recipe_is_not_ok(people: str, batch: int) -> None:
    """Twice the rate is another recipe; another order of the mini-batches is not."""
    ready = plan(config(people, training={"batch_size": batch}))
    layout = ready.recipe.model.layout()

    def strange(**changes: Any) -> bool:
        messages = [tuple(named(layout, flat) for flat in trained(ready, **changes))]
        with recorded(ready, ME, messages) as run:
            (one,) = run.exposures(Limits(), ["s"])
        assert one.answer(Limits()) != "ok"
        return "not how this config says that you train" in one.doubt

    assert not any(strange(seed=seed) for seed in range(3))
    assert strange(rate=0.2)


def test_the_command_reads_updates(people: str, tmp_path: Path) -> None:
    ready = plan(config(people))
    sent, returned = trained(ready, rate=0.2)
    file, settings = tmp_path / "update.npz", tmp_path / "client.toml"
    np.savez(file, **arrays_of(ready, sent, returned))
    settings.write_text(
        f"[data]\nsource = 'file'\npath = '{people}'\nclient = 'who'\ntarget = 'y'\n"
        "[model]\nname = 'mlp'\nhidden = [24]\n[training]\nrounds = 1\nlearning_rate = 0.1\n"
        "[audit]\nattributes = ['s']\n"
    )
    known = CliRunner().invoke(app, ["preflight", str(settings), "--update", str(file)])
    assert known.exit_code == 1
    assert "not how this config says that you train" in known.output
    known = CliRunner().invoke(
        app, ["preflight", str(settings), "--update", str(tmp_path / "no.npz")]
    )
    assert known.exit_code != 0
    assert "Traceback" not in known.output


def _npy(head: dict[str, Any], content: bytes) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue() + content


def _zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name + ".npy", content)
    return file.getvalue()


HUGE = {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)}
THINGS = {"descr": "|O", "fortran_order": False, "shape": (1,)}


@pytest.mark.parametrize(
    ("name", "raw", "complaint"),
    [
        ("a.npz", b"no archive", "cannot be read as npz"),
        ("a.npz", _zipped(a=b"no array"), "cannot be read as npz"),
        ("a.npz", _zipped(a=_npy(HUGE, b"1234")), "cannot be read as npz"),
        ("a.npz", _zipped(a=_npy(THINGS, b"\x80\x04N.")), "cannot be read as npz"),
        ("a.npz", _zipped(a=b"\0" * 3_000_000), "the limit is 1000000"),
        ("a.npz", _zipped(**{f"a{n}": b"" for n in range(30)}), "the limit is 20"),
        ("a.safetensors", b"\xff" * 100, "cannot be read as safetensors"),
        ("a.safetensors", b"\0" * 2_000_000, "the limit is 1000000"),
    ],
)
def test_what_is_no_update_is_refused_in_a_line(
    people: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    raw: bytes,
    complaint: str,
) -> None:
    monkeypatch.setenv("OVERHEARD_MAX_MESSAGE_BYTES", "1000000")
    monkeypatch.setenv("OVERHEARD_MAX_ARRAYS", "20")
    file = tmp_path / name
    file.write_bytes(raw)
    with pytest.raises(FixData, match=complaint) as refused:
        read_update(file, plan(config(people)))
    assert "\n" not in str(refused.value)


def test_arrays_of_another_model_are_refused(people: str, tmp_path: Path) -> None:
    ready = plan(config(people))
    good = arrays_of(ready, *trained(ready))
    first = next(iter(good))
    wrong = {
        "where the config's model has": {n: a for n, a in good.items() if n != first},
        "write each array": {**good, first: good[first][:1]},
        "holds NaN": {**good, first: np.full_like(good[first], np.nan)},
        "float16": {n: a.astype(np.float16) for n, a in good.items()},
    }
    for complaint, arrays in wrong.items():
        file = tmp_path / "update.npz"
        np.savez(file, **arrays)
        with pytest.raises(FixData, match=complaint):
            read_update(file, ready)
