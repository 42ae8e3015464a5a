"""The decoder against compressed updates: the coordinates that are sent are as exact as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.evaluation.metrics import attribute_hits
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.knowledge import AppliedDefence
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import launch


def accuracy(path: Path, model: dict[str, Any], defence: dict[str, Any], told: bool) -> float:
    config = {
        "data": {"source": "digits", "options": {"victim": 60, "attributes": ["c043"]}},
        "model": model,
        "training": {"rounds": 2, "learning_rate": 0.1},
        "defence": [defence],
    }
    run = Recording.open(simulate(plan(parse_config(config)), path))
    threat = SERVER if told else SERVER.without(AppliedDefence)
    guess = launch(MaxEntropy(), observe(run, threat, attribute("c043"), "victim"), 0)
    return float(attribute_hits(guess, run.truth()["victim"]["c043"]).mean())


@pytest.mark.parametrize("model", [{"name": "mlp", "hidden": [8]}, {"name": "logistic"}])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_a_tenth_of_the_coordinates_tells_everything(
    tmp_path: Path, model: dict[str, Any], share: float
) -> None:
    defence = {"name": "top_k", "share": share}
    assert accuracy(tmp_path / "told", model, defence, told=True) == 1.0


def test_who_does_not_know_that_the_rest_was_not_sent_is_misled(tmp_path: Path) -> None:
    defence = {"name": "top_k", "share": 0.1}
    assert accuracy(tmp_path / "run", {"name": "mlp", "hidden": [8]}, defence, told=False) < 0.9


def test_eight_bits_hide_little(tmp_path: Path) -> None:
    model = {"name": "mlp", "hidden": [32]}
    fine = accuracy(tmp_path / "8", model, {"name": "quantise", "bits": 8}, told=True)
    coarse = accuracy(tmp_path / "1", model, {"name": "quantise", "bits": 1}, told=True)
    assert fine > 0.9
    assert coarse < fine
