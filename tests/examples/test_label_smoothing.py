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
from torch.nn import functional as F

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.evaluation.replay import replays
from overheard.federation.defences import all_defences
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import client_shards, simulate
from overheard.programs import trusted
from overheard.programs.networks import initial
from overheard.programs.records import Records
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
    rng = np.random.default_rng(2)
    columns: dict[str, Any] = {c: rng.normal(size=36) for c in "abc"}
    columns["s"] = rng.integers(0, 2, 36).astype(float)
    labels = [f"class {k}" for k in rng.integers(0, classes, 36)] if classes else np.arange(36.0)
    columns["y"] = np.array(labels)
    columns["at"] = np.repeat(["p", "q", "r"], [10, 12, 14])
    task: Any = "classification" if classes else "regression"
    return Dataset("people", Records(columns), "at", "y", task, ("s",), "made up", "none")


def planned(classes: int, defence: list[dict[str, Any]], **training: Any) -> Any:
    content = {
        "data": {"source": "people"},
        "model": {"name": "mlp", "hidden": [5], "activation": "tanh"},
        "training": {"rounds": 2, "learning_rate": 0.5, "wire": "float64", **training},
        "defence": defence,
    }
    return plan(parse_config(content), people(classes))


def by_torch(ready: Any, client: str, share: float, steps: int) -> tuple[Any, Any]:
    """The first gradient, and the model after so many full-batch steps, with torch's own loss."""
    recipe = ready.recipe
    data = client_shards(recipe, {client: ready.clients[client]})
    x, y = torch.tensor(data.inputs[0]), torch.tensor(data.labels[0])
    theta = torch.tensor(initial(recipe.model, ready.config.seed), requires_grad=True)
    first = None
    for _ in range(steps):
        (w1, b1), (w2, b2) = _layers(recipe.model, theta)
        outputs = torch.tanh(x @ w1.T + b1) @ w2.T + b2
        if outputs.shape[1] > 1:
            loss = F.cross_entropy(outputs, y.long(), label_smoothing=share)
        else:
            soft = (1 - share) * y + share / 2
            loss = F.binary_cross_entropy_with_logits(outputs[:, 0], soft)
        (gradient,) = torch.autograd.grad(loss, theta)
        first = gradient if first is None else first
        theta = (theta - recipe.learning_rate * gradient).detach().requires_grad_()
    assert first is not None
    return first.numpy(), theta.detach().numpy()


def _layers(model: Any, theta: Any) -> list[tuple[Any, Any]]:
    parts, start = [], 0
    for _, shape in model.layout():
        size = int(np.prod(shape))
        parts.append(theta[start : start + size].reshape(shape))
        start += size
    return list(zip(parts[::2], parts[1::2], strict=True))


def link(path: Path, ready: Any, client: str) -> Messages:
    recording = Recording.open(simulate(ready, path))
    return observe(recording, EAVESDROPPER, LOCAL_MODEL, client).know(Messages)


@pytest.mark.parametrize("classes", [2, 4])
def test_messages_are_those_of_the_smoothed_loss(classes: int, tmp_path: Path) -> None:
    """To rounding those of torch's own, gradient by gradient and after several local steps."""
    cases: dict[str, dict[str, Any]] = {"gradient": {"algorithm": "fedsgd"}, "model": {"epochs": 3}}
    for name, training in cases.items():
        ready = planned(classes, [SMOOTH], **training)
        plain = planned(classes, [], **training)
        for client in ("p", "r"):
            gradient, model = by_torch(ready, client, 0.3, 3)
            observed = link(tmp_path / f"{name}{client}", ready, client)
            bare = link(tmp_path / f"{name}{client} bare", plain, client)
            expected = gradient if name == "gradient" else model
            np.testing.assert_allclose(observed.returned[0], expected, atol=1e-12)
            np.testing.assert_array_equal(observed.sent[0], bare.sent[0])
            assert np.abs(observed.returned[0] - bare.returned[0]).max() > 1e-3


def test_it_is_told_and_nobody_takes_the_training_for_the_plain_one(tmp_path: Path) -> None:
    ready = planned(2, [SMOOTH, {"name": "clip", "norm": 0.5}])
    recording = Recording.open(simulate(ready, tmp_path / "run"))
    told = observe(recording, EAVESDROPPER, attribute("s"), "p").know(AppliedDefence)
    assert told.names == ("label_smoothing", "clip")
    assert told.clip_norm == 0.5
    (line, *_) = replays(recording, ready.recipe, recording.truth(), ["p"])
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
        planned(classes, defence)


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
