"""The quick path, for a guard that looks at every update: one decoder, in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import simulate
from overheard.guard.exposure import Secret, exposures
from overheard.guard.limits import Exposure, Limits
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
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


def messages(ready: Plan, run: Recording) -> tuple[Any, Any]:
    _, sent, returned, _ = run.link("victim")
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
    rng = np.random.default_rng(seed)
    rare = np.zeros(200)
    rare[rng.choice(200, 3, replace=False)] = 1.0
    columns = {f"x{j}": rng.normal(size=200) for j in range(6)} | {"rare": rare}
    columns["y"] = rng.normal(size=200)
    ready, sent, returned = _trained(Records(columns), "rare")
    secret = Secret(Records(columns), "rare", (0.0, 1.0))
    found = exposure(ready.recipe, secret, sent, returned, most=16)
    assert found.records == 16
    assert found.guess == 13 / 16
    assert found.share is not None
    assert found.share > 0.9
    assert found.answer(Limits()) == "too much"


def _trained(records: Records, secret: str, **training: Any) -> tuple[Plan, Any, Any]:
    """A client's plan, the model it is sent and what it returns."""
    from overheard.data.dataset import Dataset
    from overheard.federation.simulate import client_shards
    from overheard.programs.networks import initial
    from overheard.programs.training import local_training

    table = Records({**records.columns, "client": np.array(["me"] * len(records))})
    dataset = Dataset(
        name="table",
        records=table,
        client="client",
        target="y",
        task="regression",
        sensitive=(secret,),
        origin="made",
        licence="none",
    )
    config = parse_config(
        {
            "data": {"source": "made"},
            "model": {"name": "mlp", "hidden": [24]},
            "training": {"rounds": 1, "learning_rate": 0.1, **training},
        }
    )
    ready = plan(config, dataset)
    start = initial(ready.recipe.dense, 0).astype(np.float32)
    data = client_shards(ready.recipe, ready.clients)
    return ready, start, local_training(ready.recipe, start, data, np.random.default_rng(0))[0]


def people(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    columns = {f"x{j}": rng.normal(size=count) for j in range(5)}
    columns["s"] = (rng.random(count) < 0.4).astype(float)
    return Records({**columns, "y": rng.normal(size=count)})


def test_labels_and_membership_are_secrets_too() -> None:
    own, strangers = people(30), people(20, 1)
    ready, sent, returned = _trained(own, "s")
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
