"""The quick path, for a guard that looks at every update: one decoder, in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import generated_people

from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards, simulate
from overheard.guard.exposure import Secret, exposures
from overheard.guard.limits import Exposure, Limits
from overheard.programs.networks import initial
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.programs.training import local_training
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


def exposure(recipe: Recipe, secret: Secret, *heard: Any, **settings: Any) -> Exposure:
    (found,) = exposures(recipe, [secret], *heard, **settings)
    return found


def messages(ready: Plan, run: Recording, client: str = "victim") -> tuple[Any, Any]:
    _, sent, returned, _ = run.link(client)
    names = [name for name, _ in ready.recipe.model.layout()]
    flat = [np.concatenate([a[n][0].reshape(-1) for n in names]) for a in (sent, returned)]
    return flat[0], flat[1]


def secret_of(ready: Plan) -> Secret:
    return Secret(ready.clients["victim"], "c043", ready.attributes["c043"].values)


def test_what_the_guard_sees_is_what_the_audit_finds(heard: tuple[Plan, Recording]) -> None:
    ready, run = heard
    found = exposure(ready.recipe, secret_of(ready), *messages(ready, run))
    record = audit(run, SERVER, ["max_entropy"], ["victim"], ["c043"])
    assert found.value == record.findings[0].value
    assert found.guess == pytest.approx(record.findings[0].majority or 0)
    assert found.certain == 60
    assert found.bits is not None
    assert found.bits > 0.9
    assert found.share == pytest.approx(1.0, abs=0.01)
    assert found.answer(Limits()) == "too much"


@pytest.mark.parametrize(("site", "sd", "most"), [("site 2", 0.004, 64), ("site 3", 1e-4, 2000)])
def test_so_it_is_behind_noise(site: str, sd: float, most: int, tmp_path: Path) -> None:
    """Much of it, of a sample of the records, and little."""
    rand = {"data": {"source": "randhie"}, "model": {"name": "mlp", "hidden": [64]}}
    ready = plan(parse_config({**CONFIG, **rand, "defence": [{"name": "gaussian", "sd": sd}]}))
    run = Recording.open(simulate(ready, tmp_path / "run"))
    secret = Secret(ready.clients[site], "female", ready.attributes["female"].values)
    told = AppliedDefence(("gaussian",), noise_sd=sd)
    found = exposure(ready.recipe, secret, *messages(ready, run, site), told, most=most)
    (audited,) = audit(run, SERVER, ["max_entropy"], [site], ["female"]).findings
    assert found.low <= audited.value <= found.high
    bits = found.bits or 0.0
    if site == "site 2":
        assert bits <= 0.1
        assert audited.details["bits_gained"] <= 0.1
    else:
        assert 0.1 < bits <= 0.5
        assert audited.low <= found.value <= audited.high
        assert audited.value > (audited.majority or 0) + 0.05


def test_a_sample_is_decoded_with_the_others_taken_as_known(
    heard: tuple[Plan, Recording],
) -> None:
    ready, run = heard
    found = exposure(ready.recipe, secret_of(ready), *messages(ready, run), most=16)
    assert found.records == 16
    assert found.value == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_holds_the_rare_values(seed: int) -> None:
    """Three of 200: a plain sample of 16 has none of them as a rule, and would learn nothing."""
    rare = np.zeros(200)
    rare[np.random.default_rng(seed).choice(200, 3, replace=False)] = 1.0
    ready, sent, returned = trained(200, s=rare)
    secret = Secret(ready.clients["0"], "s", (0.0, 1.0))
    found = exposure(ready.recipe, secret, sent, returned, most=16)
    assert found.records == 16
    assert found.guess == 13 / 16
    assert found.share is not None
    assert found.share > 0.9
    assert found.answer(Limits()) == "too much"


def trained(people: int, **columns: Any) -> tuple[Plan, Any, Any]:
    """The plan of a client of so many people, the model it is sent and what it returns."""
    dataset = generated_people(1, people, 5, 0)
    records = Records({**dataset.records.columns, **columns})
    content = {**CONFIG, "data": {"source": "file"}, "model": {"name": "mlp", "hidden": [24]}}
    ready = plan(parse_config(content), replace(dataset, records=records))
    start = initial(ready.recipe.dense, 0).astype(np.float32)
    data = client_shards(ready.recipe, ready.clients)
    return ready, start, local_training(ready.recipe, start, data, np.random.default_rng(0))[0]


def test_labels_and_membership_are_secrets_too() -> None:
    ready, sent, returned = trained(30)
    own = ready.clients["0"]
    strangers = generated_people(1, 20, 5, 1).records.without("at")
    label = exposure(ready.recipe, Secret(own, "y"), sent, returned)
    assert (label.question, label.name) == ("label", "label")
    assert label.share is not None
    assert label.share > 0.9
    assert label.answer(Limits()) == "too much"
    who = exposure(ready.recipe, Secret(own, strangers=strangers), sent, returned)
    assert (who.name, who.records) == ("membership", 50)
    assert who.certain == 50
    assert who.answer(Limits()) == "too much"


def test_noise_that_it_is_told_of_hides_the_records(heard: tuple[Plan, Recording]) -> None:
    ready, run = heard
    sent, returned = messages(ready, run)
    sd = 10 * float(np.abs(sent - returned).max())
    noisy = returned + np.random.default_rng(0).normal(0, sd, returned.shape).astype("float32")
    told = AppliedDefence(("gaussian",), noise_sd=sd)
    found = exposure(ready.recipe, secret_of(ready), sent, noisy, told)
    assert found.certain == 0
    assert found.answer(Limits()) == "ok"


def test_what_is_no_secret_or_no_message_of_this_model_is_refused(
    heard: tuple[Plan, Recording],
) -> None:
    ready, run = heard
    sent, returned = messages(ready, run)
    with pytest.raises(FixData, match="for a model of"):
        exposure(ready.recipe, secret_of(ready), sent[:-1], returned[:-1])
    own = ready.clients["victim"]
    with pytest.raises(FixData, match="no column 'age'"):
        Secret(own, "age", (0.0, 1.0))
    with pytest.raises(FixConfig, match="a column, or who is there"):
        Secret(own)
    with pytest.raises(FixConfig, match="no numeric label"):
        exposure(ready.recipe, Secret(own, "c043"), sent, returned)
