"""Federations of networks under DP-SGD, from the config to the recording and its audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import guessed
from torch import nn

from overheard.attacks.attribute import MaxEntropy
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs import trusted
from overheard.programs.training import update_noise
from overheard.transcript.store import Recording
from overheard.transcript.threat import SERVER

LENET = {"name": "lenet", "filters": [2, 3], "hidden": [6], "dropout": 0.2}


def updates(path: Path, noise: float, **training: Any) -> tuple[Recording, np.ndarray, float]:
    """What one client was heard to send in the first round, and the noise it says it has."""
    config = {
        "data": {"source": "digits_images", "options": {"clients": 3, "records": 12}},
        "model": LENET,
        "training": {"rounds": 2, "learning_rate": 0.1, **training},
        "defence": [{"name": "dp_sgd", "clip": 0.01, "noise": noise}],
    }
    ready = plan(parse_config(config))
    run = Recording.open(simulate(ready, path))
    client = run.clients[0]
    _, sent, returned, weights = run.link(client)
    observed = np.concatenate([(sent[k][0] - returned[k][0]).ravel() for k in sent])
    return run, observed, update_noise(ready.recipe, int(weights[0]))


@pytest.mark.parametrize("training", [{}, {"batch_size": 4, "epochs": 2}])
def test_what_is_heard_carries_the_noise(tmp_path: Path, training: dict[str, Any]) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    run, observed, sd = updates(tmp_path / "a", 300.0, **training)
    assert observed.std() == pytest.approx(sd, rel=0.15)
    promise = run.side("PrivacyBudget")[run.clients[0]]
    assert 0 < promise["epsilon"] < promise["changed"] < 1
    _, again, _ = updates(tmp_path / "b", 300.0, **training)
    np.testing.assert_array_equal(observed, again)
    _, still, _ = updates(tmp_path / "c", 0.0, **training)
    steps = 6 if training else 1
    assert np.linalg.norm(still) <= 0.1 * 0.01 * steps * 12 / 4


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 1))


def test_a_module_of_ones_own_takes_private_steps_and_is_audited(
    federate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clipping each record hides nothing by itself, and noise does."""
    monkeypatch.setattr(trusted, "imported", lambda factory: net)
    monkeypatch.setattr(trusted, "_TRUSTED", {"here:net"})
    model = {"name": "module", "factory": "here:net"}
    right = []
    for noise in (0.0, 50.0):
        steps = [{"name": "dp_sgd", "clip": 0.5, "noise": noise}]
        recording = federate(model, people=40, rounds=1, participation=1.0, defence=steps)
        guess, secret = guessed(MaxEntropy(), recording, threat=SERVER)
        right.append(float((guess.choice() == secret).mean()))
    assert right[0] >= 0.95
    assert right[1] <= 0.8
