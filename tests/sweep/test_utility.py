"""What the model is worth, from whatever the server heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import generated_people, simulated

from overheard.data.dataset import Dataset
from overheard.errors import FixRecording
from overheard.federation.federation import parse_config
from overheard.federation.server import Mean
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.sweep.utility import global_model, utility
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recorder, Recording

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {
    "data": {
        "source": "digits",
        "options": {"victim": 40, "participants": 3, "attributes": ["c043"]},
    },
    "model": {"name": "mlp", "hidden": [6]},
    "training": {"rounds": 1, "learning_rate": 0.1, "weighting": "equal"},
}


def recorded(
    path: Path, config: dict[str, Any], dataset: Dataset | None = None
) -> tuple[Recording, Recipe]:
    run = simulated(path, config, dataset)
    recipe = recipe_of(run)
    assert recipe is not None
    return run, recipe


@pytest.mark.parametrize("rule", ["mean", "weighted_mean", "momentum", "adam"])
@pytest.mark.parametrize("defence", [[], [{"name": "secure_sum"}]], ids=["open", "sum"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
def test_the_model_is_the_one_that_would_have_been_sent_next(
    rule: str, defence: list[Any], algorithm: str, tmp_path: Path
) -> None:
    """Whatever the server remembers of earlier rounds."""
    training = {"rounds": 4, "learning_rate": 0.1, "algorithm": algorithm}
    config = {**BASE, "training": training, "server": {"rule": rule}, "defence": defence}
    run, recipe = recorded(tmp_path / "run", config)
    *_, (_, sent, _) = run.aggregates()
    expected = np.concatenate([sent[name].reshape(-1) for name, _ in recipe.model.layout()])
    found = global_model(
        replace(run, rounds=run.rounds[:-1]), recipe, parse_config(config).server_rule()
    )
    np.testing.assert_allclose(found, expected, atol=2e-6)
    if rule in ("momentum", "adam"):
        plain = global_model(replace(run, rounds=run.rounds[:-1]), recipe, Mean())
        assert np.abs(plain - expected).max() > 1e-3


def test_a_sum_of_nobody_knows_how_many_is_no_mean(tmp_path: Path) -> None:
    run, recipe = recorded(tmp_path / "sum", {**BASE, "defence": [{"name": "secure_sum"}]})
    _, sent, total = next(run.aggregates())
    with Recorder(tmp_path / "silent") as recorder:
        recorder.aggregated(0, sent, total, None)
    with pytest.raises(FixRecording, match="nobody said how many"):
        global_model(Recording.open(tmp_path / "silent"), recipe)


def test_the_worth_of_a_network_of_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 24
    records = Records(
        {
            "client": np.array([f"client {i % 2}" for i in range(rows)]),
            "image": rng.random((rows, 256)),
            "digit": np.array([f"d{i % 3}" for i in range(rows)]),
        }
    )
    about = {"client": "client", "target": "digit", "images": {"image": (1, 16, 16)}}
    people = generated_people(1, 1, 1, 0, classify=True)
    dataset = replace(people, records=records, sensitive=(), **about)
    lenet = {"name": "lenet", "filters": [2, 3], "hidden": [5]}
    run, recipe = recorded(tmp_path / "run", {**BASE, "model": lenet}, dataset)
    model = global_model(run, recipe)
    held = records.without("client")
    worth, name = utility(recipe, model, held)
    assert name == "accuracy"
    outputs = network(recipe).predict(model, encode(recipe.encoding, held))
    right = outputs.argmax(axis=1) == recipe.target.encode(held)
    assert worth == pytest.approx(right.mean())
