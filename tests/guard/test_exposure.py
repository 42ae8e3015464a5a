from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import overheard
from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import simulate
from overheard.guard.exposure import Exposure, Secret, exposure, worst
from overheard.guard.preflight import Preflight, preflight
from overheard.transcript.knowledge import AppliedDefence
from overheard.transcript.store import Recording
from overheard.transcript.threat import SERVER

CONFIG: dict[str, Any] = {
    "data": {
        "source": "digits",
        "options": {"victim": 60, "participants": 1, "attributes": ["c043"]},
    },
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"rounds": 1, "learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Recording]:
    ready = plan(parse_config(CONFIG))
    path = simulate(ready, tmp_path_factory.mktemp("guard") / "run")
    return ready, Recording.open(path)


def messages(ready: Plan, run: Recording) -> tuple[Any, Any]:
    _, sent, returned, _ = run.link("victim")
    names = [name for name, _ in ready.recipe.model.layout()]
    flat = [np.concatenate([a[n][0].reshape(-1) for n in names]) for a in (sent, returned)]
    return flat[0], flat[1]


def secret_of(ready: Plan) -> Secret:
    return Secret(ready.clients["victim"], "c043", ready.attributes["c043"])


def test_what_the_guard_sees_is_what_the_audit_finds(heard: tuple[Plan, Recording]) -> None:
    ready, run = heard
    found = exposure(ready.recipe, secret_of(ready), *messages(ready, run))
    record = audit(run, SERVER, ["max_entropy"], ["victim"], ["c043"])
    assert found.accuracy == record.findings[0].value
    assert found.majority == pytest.approx(record.findings[0].majority or 0)
    assert found.sure == 60
    assert found.bits > 0.9
    assert found.exceeds(0.1)
    assert not found.doubtful


def test_a_sample_is_decoded_with_the_others_taken_as_known(
    heard: tuple[Plan, Recording],
) -> None:
    ready, run = heard
    found = exposure(ready.recipe, secret_of(ready), *messages(ready, run), most=16)
    assert found.records == 16
    assert found.accuracy == 1.0


def test_noise_that_it_is_told_of_hides_the_records(heard: tuple[Plan, Recording]) -> None:
    ready, run = heard
    sent, returned = messages(ready, run)
    sd = 10 * float(np.abs(sent - returned).max())
    noisy = returned + np.random.default_rng(0).normal(0, sd, returned.shape).astype("float32")
    told = AppliedDefence(("gaussian",), noise_sd=sd)
    found = exposure(ready.recipe, secret_of(ready), sent, noisy, told)
    assert found.bits < 0.1
    assert found.sure == 0


def test_messages_of_another_model_are_refused(heard: tuple[Plan, Recording]) -> None:
    ready, run = heard
    sent, returned = messages(ready, run)
    with pytest.raises(FixData, match="for a model of"):
        exposure(ready.recipe, secret_of(ready), sent[:-1], returned[:-1])
    with pytest.raises(FixData, match="no column 'age'"):
        Secret(ready.clients["victim"], "age", (0.0, 1.0))
    with pytest.raises(FixConfig, match="no attribute"):
        worst([])


def test_preflight_finds_the_smallest_noise_that_helps() -> None:
    steps: list[int] = []
    found = preflight(
        parse_config(CONFIG), limit=0.1, progress=lambda _, done, total: steps.append(done)
    )
    assert not found.passes
    assert worst(found.found).sure == 60
    noises = [c for c in found.changes if c.kind == "noise"]
    assert noises[-1].enough(0.1)
    assert not any(c.enough(0.1) for c in noises[:-1])
    assert noises[-1] in found.smallest()
    assert steps == sorted(steps)
    (drop,) = [c for c in found.changes if c.kind == "drop"]
    assert drop.words == "leaving c043 out of the model"
    assert drop.bits == pytest.approx(0, abs=1e-6)
    assert drop in found.smallest()
    epochs = [c.strength for c in found.changes if c.kind == "epochs"]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 10


def test_preflight_hears_several_rounds() -> None:
    """Noise is drawn anew each round: who listens longer hears more."""
    config = parse_config({**CONFIG, "defence": [{"name": "gaussian", "sd": 0.003}]})
    once, often = (overheard.preflight(config, rounds=n, limit=2) for n in (1, 10))
    assert (once.rounds, often.rounds) == (1, 10)
    assert often.found[0].rank > once.found[0].rank
    assert often.found[0].bits > once.found[0].bits + 0.1


def test_a_decoder_that_failed_is_no_pass() -> None:
    misled = Exposure("a", 10, 0.5, 0.2, 0.8, 0.5, 9, -1.0, 5, 10)
    found = Preflight("c", 1, 0.1, (misled,), ())
    assert found.doubtful
    assert not found.passes


def test_preflight_with_enough_noise_passes() -> None:
    noisy = parse_config({**CONFIG, "defence": [{"name": "gaussian", "sd": 10.0}]})
    found = preflight(noisy, limit=0.1)
    assert found.passes
    assert found.changes == ()


@pytest.mark.parametrize(
    ("client", "changes", "complaint"),
    [
        ("nobody", {}, "no client 'nobody'"),
        ("", {"data": {**CONFIG["data"], "options": {"victim": 20, "participants": 2}}}, "several"),
        ("", {"audit": {"attributes": []}}, "no sensitive attribute"),
    ],
)
def test_preflight_says_what_is_wrong(client: str, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FixConfig, match=complaint):
        preflight(parse_config({**CONFIG, **changes}), client)


def test_doubt_is_shown() -> None:
    plain = Exposure("a", 10, 0.5, 0.2, 0.8, 0.5, 0, -1.0, 5, 10)
    assert plain.doubtful
    assert not plain.exceeds(0.1)


def test_the_command_exits_with_1_when_too_much_leaks(tmp_path: Path) -> None:
    import json
    import subprocess
    import sys

    file = tmp_path / "client.toml"
    file.write_text(
        "[data]\nsource = 'digits'\noptions = { victim = 40, attributes = ['c043'] }\n"
        "[model]\nname = 'mlp'\nhidden = [6]\n[training]\nrounds = 1\nlearning_rate = 0.1\n"
    )
    out = tmp_path / "found.json"
    command = [str(Path(sys.executable).with_name("overheard")), "preflight", str(file)]
    command += ["--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "too much" in done.stdout
    assert json.loads(out.read_text())["passes"] is False
