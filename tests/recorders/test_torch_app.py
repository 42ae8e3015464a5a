"""An app of somebody else's: torch's Adam on a module of its own, recorded, described, audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import overheard
from overheard.federation.federation import read_config
from overheard.recorders.describe import describe
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

APP = """
from torch import nn
def net():
    return nn.Sequential(
        nn.Linear(5, 96), nn.GELU(), nn.Linear(96, 32), nn.GELU(), nn.Linear(32, 1), nn.Sigmoid()
    )
"""
TOML = """
[data]
source = "file"
path = "people.csv"
client = "site"
target = "ill"
task = "classification"
scale = "none"
[model]
factory = "{module}:net"
[training]
learning_rate = 0.01
epochs = {epochs}
batch_size = {batch}
optimiser = {{ name = "{optimiser}" }}
loss = "binary_cross_entropy"
[audit]
attributes = ["smokes"]
"""
PEOPLE = 60


def app(place: Path, batch: int, epochs: int) -> None:
    """Two sites train with Adam, written as anybody would."""
    rng = np.random.default_rng(3)
    torch.manual_seed(0)
    spaces: dict[str, Any] = {}
    exec(APP, spaces)  # the app's own code
    made: nn.Module = spaces["net"]()
    start = [p.detach().clone() for p in made.parameters()]
    names = [n for n, _ in made.named_parameters()]
    lines = ["site,a,b,c,d,smokes,ill"]
    with overheard.Recorder(place / "run") as recorder:
        for site in ("north", "south"):
            numbers = rng.normal(size=(PEOPLE, 4)).round(3)
            smokes = rng.integers(2, size=PEOPLE)
            ill = (numbers[:, 0] + smokes + rng.normal(size=PEOPLE) > 0.5).astype(int)
            rows = zip(numbers, smokes, ill, strict=True)
            lines += [",".join([site, *map(str, x), str(s), str(y)]) for x, s, y in rows]
            inputs = torch.tensor(np.column_stack([numbers, smokes]), dtype=torch.float32)
            labels = torch.tensor(ill, dtype=torch.float32)
            with torch.no_grad():
                for p, first in zip(made.parameters(), start, strict=True):
                    p.copy_(first)
            arrays = {n: p.detach().numpy().copy() for n, p in zip(names, start, strict=True)}
            recorder.sent(0, site, arrays)
            optimiser = torch.optim.Adam(made.parameters(), lr=0.01)
            size = batch or PEOPLE
            for _ in range(epochs):
                order = torch.randperm(PEOPLE) if batch else torch.arange(PEOPLE)
                for begin in range(0, PEOPLE, size):
                    some = order[begin : begin + size]
                    optimiser.zero_grad()
                    outputs = made(inputs[some])[:, 0]
                    nn.functional.binary_cross_entropy(outputs, labels[some]).backward()
                    optimiser.step()
            back = {n: p.detach().numpy().copy() for n, p in made.named_parameters()}
            recorder.returned(0, site, back, weight=PEOPLE)
    (place / "people.csv").write_text("\n".join(lines) + "\n")


def audited(
    place: Path, monkeypatch: pytest.MonkeyPatch, clients: tuple[str, ...] = (), **said: Any
) -> Any:
    module = f"app_{place.name.replace('-', '_')}"
    (place / f"{module}.py").write_text(APP)
    monkeypatch.chdir(place)
    file = place / "audit.toml"
    file.write_text(TOML.format(module=module, **said))
    describe(
        Recording.open(place / "run"), read_config(file, recorded=True), place / "described", True
    )
    recording = Recording.open(place / "run", place / "described")
    found = overheard.audit(recording, EAVESDROPPER, ["max_entropy", "majority"], clients)
    return {r.outcome for r in found.replays}, [
        f for f in found.findings if f.attack == "max_entropy"
    ]


@pytest.mark.parametrize(("batch", "epochs"), [(0, 3), (10, 1)])
def test_it_is_decoded(
    batch: int, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app(tmp_path, batch, epochs)
    clients = ("north",) if batch else ()
    said: dict[str, Any] = {"batch": batch, "epochs": epochs, "optimiser": "adam"}
    outcomes, found = audited(tmp_path, monkeypatch, clients, **said)
    assert outcomes == {"fits"}
    assert len(found) == (1 if batch else 2)
    for finding in found:
        assert "flag" not in finding.details
        if batch:
            assert finding.p_value < 0.05
        else:
            assert finding.value == 1.0
        assert finding.details["method"] == ("direct_response" if batch else "replay")


def test_described_as_plain_steps_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app(tmp_path, 10, 1)
    said: dict[str, Any] = {"batch": 10, "epochs": 1, "optimiser": "sgd"}
    outcomes, found = audited(tmp_path, monkeypatch, ("north",), **said)
    assert outcomes == {"does not fit"}
    assert all("flag" in finding.details for finding in found)
