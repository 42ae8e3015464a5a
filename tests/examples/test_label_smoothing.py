"""A defence of one's own, in one file, acts inside local training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import generated_people, planned
from generated import with_columns
from torch.nn import functional as F
from torch_twins import flat, torch_twin

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.evaluation.replay import replays
from overheard.federation.defences import all_defences
from overheard.federation.simulate import client_shards, simulate
from overheard.programs import trusted
from overheard.programs.networks import initial
from overheard.transcript.knowledge import AppliedDefence, Messages
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples"
SMOOTH: dict[str, Any] = {"name": "label_smoothing:LabelSmoothing", "share": 0.3}


@pytest.fixture(autouse=True)
def _from_its_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(FOLDER)
    all_defences.cache_clear()
    trusted.trust(SMOOTH["name"])
    yield
    all_defences.cache_clear()
    sys.modules.pop("label_smoothing", None)


def people(classes: int) -> Dataset:
    """Of so many classes; 0: with a number as the target."""
    made = generated_people(3, 12, 3, seed=2)
    if not classes:
        return made
    labels = [f"class {k}" for k in np.random.default_rng(2).integers(0, classes, 36)]
    return with_columns(made, {"task": "classification"}, y=np.array(labels))


def federation(classes: int, defence: list[dict[str, Any]], **training: Any) -> Any:
    content = {
        "data": {"source": "people"},
        "model": {"name": "mlp", "hidden": [5], "activation": "tanh"},
        "training": {"rounds": 2, "learning_rate": 0.5, "precision": "float64", **training},
        "defence": defence,
    }
    return planned(content, people(classes))


def by_torch(ready: Any, client: str, share: float, steps: int) -> tuple[Any, Any]:
    """The first gradient, and the model after so many full-batch steps, with torch's own loss."""
    recipe, gradients = ready.recipe, []
    data = client_shards(recipe, {client: ready.clients[client]})
    x, y = torch.tensor(data.inputs[0]), torch.tensor(data.labels[0])
    twin = torch_twin(recipe.model, initial(recipe.model, ready.config.seed))
    descent = torch.optim.SGD(twin.parameters(), lr=recipe.learning_rate)
    for _ in range(steps):
        outputs = twin(x)
        if outputs.shape[1] > 1:
            loss = F.cross_entropy(outputs, y.long(), label_smoothing=share)
        else:
            soft = (1 - share) * y + share / 2
            loss = F.binary_cross_entropy_with_logits(outputs[:, 0], soft)
        descent.zero_grad()
        loss.backward()
        gradients.append(flat(twin, gradient=True).copy())
        descent.step()
    return gradients[0], flat(twin)


def link(path: Path, ready: Any, client: str) -> Messages:
    recording = Recording.open(simulate(ready, path))
    return observe(recording, EAVESDROPPER, LOCAL_MODEL, client).know(Messages)


@pytest.mark.parametrize("classes", [2, 4])
def test_messages_are_those_of_the_smoothed_loss(classes: int, tmp_path: Path) -> None:
    """To rounding those of torch's own, gradient by gradient and after several local steps."""
    cases: dict[str, dict[str, Any]] = {"gradient": {"algorithm": "fedsgd"}, "model": {"epochs": 3}}
    for name, training in cases.items():
        ready = federation(classes, [SMOOTH], **training)
        plain = federation(classes, [], **training)
        for client in ("0", "2"):
            gradient, model = by_torch(ready, client, 0.3, 3)
            observed = link(tmp_path / f"{name}{client}", ready, client)
            bare = link(tmp_path / f"{name}{client} bare", plain, client)
            expected = gradient if name == "gradient" else model
            np.testing.assert_allclose(observed.returned[0], expected, atol=1e-12)
            np.testing.assert_array_equal(observed.sent[0], bare.sent[0])
            assert np.abs(observed.returned[0] - bare.returned[0]).max() > 1e-3


def test_it_is_told_and_nobody_takes_the_training_for_the_plain_one(tmp_path: Path) -> None:
    ready = federation(2, [SMOOTH, {"name": "clip", "norm": 0.5}])
    recording = Recording.open(simulate(ready, tmp_path / "run"))
    told = observe(recording, EAVESDROPPER, attribute("s"), "0").know(AppliedDefence)
    assert told.names == ("label_smoothing", "clip")
    assert told.clip_norm == 0.5
    (line, *_) = replays(recording, ready.recipe, recording.truth(), ["0"])
    assert line.outcome == "cannot be checked"
    assert "label_smoothing" in line.reason


@pytest.mark.parametrize(
    ("classes", "defence", "words"),
    [
        (2, [{**SMOOTH, "share": 1.0}], "share.*less than 1"),
        (2, [{**SMOOTH, "shares": 0.1}], "did you mean 'share'"),
        (2, [{"name": "clip", "norm": 1.0}, SMOOTH], "'label_smoothing' after 'clip' voids"),
        (2, [SMOOTH, {"name": "dp_sgd", "clip": 1.0, "noise": 1.0}], "leave one of them out"),
        (0, [SMOOTH], "the target is a number"),
    ],
)
def test_what_cannot_be_is_refused(classes: int, defence: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(FixConfig, match=words):
        federation(classes, defence)


CONFIG = """
data = { source = "digits", options = { victim = 10, participants = 2 } }
model = { name = "mlp", hidden = [3] }
training = { rounds = 1, learning_rate = 0.1 }
[[defence]]
name = "label_smoothing:LabelSmoothing"
share = 0.2
"""


def test_the_command_line_asks_for_trust(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(CONFIG)
    start = [sys.executable, "-m", "overheard"]
    command = ["simulate", str(tmp_path / "federation.toml"), "--out", str(tmp_path / "run")]
    refused = subprocess.run([*start, *command], cwd=FOLDER, capture_output=True, text=True)
    assert refused.returncode == 1
    trust = ["--trust", "label_smoothing:LabelSmoothing"]
    assert " ".join(trust) in refused.stderr
    subprocess.run([*start, *trust, *command], cwd=FOLDER, check=True, capture_output=True)
    recording = Recording.open(tmp_path / "run")
    assert recording.side("AppliedDefence")["names"] == ["label_smoothing"]
