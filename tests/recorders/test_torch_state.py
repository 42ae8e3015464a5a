"""A torch app sends its whole state: what is not trained is told apart, images are squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import overheard
from overheard.evaluation.replay import replays
from overheard.federation.federation import read_config
from overheard.recorders.describe import describe
from overheard.recorders.template import image_of
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recording

APP = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, frozen=True):
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 1)
        self.backbone.requires_grad_(not frozen)
    def forward(self, x):
        return self.head(self.norm(torch.relu(self.backbone(x)).flatten(1)))

def trained():
    return Net(frozen=False)

def other():
    return nn.Linear(36, 1)
"""
TOML = """
[data]
source = "file"
path = "images.csv"
client = "site"
target = "y"
scale = "none"
[model]
factory = "{module}:{name}"
[training]
learning_rate = 0.1
[target]
scale = 1.0
"""


def federation(place: Path, name: str, named: bool, rng: np.random.Generator) -> str:
    """Two steps of one client, recorded by name or as Flower's older clients number arrays."""
    spaces: dict[str, Any] = {}
    exec(APP, spaces)  # the app's own code
    model = spaces[name]()
    x, y = rng.normal(size=(12, 36)), rng.normal(size=12)
    lines = ["site," + ",".join(f"p{k}" for k in range(36)) + ",y"]
    lines += [
        ",".join(["a", *map(repr, [*row, label])])
        for row, label in zip(x.tolist(), y.tolist(), strict=True)
    ]
    (place / "images.csv").write_text("\n".join(lines) + "\n")

    def state() -> dict[str, np.ndarray]:
        arrays = [(n, a.detach().numpy().copy()) for n, a in model.state_dict().items()]
        return {n if named else str(k): a for k, (n, a) in enumerate(arrays)}

    images = torch.tensor(x, dtype=torch.float32).reshape(12, 1, 6, 6)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with overheard.Recorder(place / "run") as recorder:
        for number in range(2):
            recorder.sent(number, "a", state())
            optimiser.zero_grad()
            labels = torch.tensor(y, dtype=torch.float32)
            torch.nn.functional.mse_loss(model(images)[:, 0], labels).backward()
            optimiser.step()
            recorder.returned(number, "a", state(), 12)
    module = f"state_{place.name.replace('-', '_')}"
    (place / f"{module}.py").write_text(APP)
    return module


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("name", "parameters"), [("Net", 4), ("trained", 6)])
def test_what_is_not_trained_is_left_out(
    name: str, parameters: int, named: bool, tmp_path: Path, monkeypatch: Any, rng: Any
) -> None:
    module = federation(tmp_path, name, named, rng)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.toml").write_text(TOML.format(module=module, name=name))
    bare = Recording.open(tmp_path / "run")
    describe(bare, read_config(tmp_path / "audit.toml", recorded=True), tmp_path / "beside", True)
    recording = bare.described_in(tmp_path / "beside")
    recipe = recipe_of(recording)
    assert len(recipe.model.parameters) == parameters
    assert len(recipe.model.idle) == len(bare.rounds[0].layout) - parameters
    assert recipe.model.shape == (1, 6, 6)
    (replay,) = replays(recording, recipe, recording.truth(), ["a"])
    assert replay.outcome == "fits"
    wrong = recipe.model_copy(update={"learning_rate": 0.05})
    (replay,) = replays(recording, wrong, recording.truth(), ["a"])
    assert replay.outcome == "does not fit"


@pytest.mark.parametrize(
    ("shapes", "inputs", "image"),
    [
        ([(6, 1, 3, 3), (6,)], 64, (1, 8, 8)),
        ([(6, 3, 5, 5)], 3072, (3, 32, 32)),
        ([(6, 1, 3, 3)], 50, ()),
        ([(6, 3, 3, 3)], 64, ()),
        ([(10, 64), (10,)], 64, ()),
    ],
)
def test_images_are_squares(shapes: Any, inputs: int, image: tuple[int, ...]) -> None:
    layout = tuple((str(k), shape) for k, shape in enumerate(shapes))
    assert image_of(layout, inputs) == image
