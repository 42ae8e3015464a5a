"""An app's own training function is replayed and decoded, where its steps are in a known order."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
TASK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(5, {wide}), torch.nn.Linear({wide}, 1)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))

def train(net, loader):
    # what no setting of ours says: a loss of its own, and a rate per layer
    rates = [dict(params=net.one.parameters(), lr=0.2), dict(params=net.two.parameters(), lr=0.05)]
    optimizer = torch.optim.SGD(rates)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.log(torch.cosh(net(x) - y)).mean() + {chance}
        loss.backward()
        optimizer.step()
"""
TOML = """
[data]
source = "file"
path = "../people.csv"
client = "at"
target = "y"
scale = "none"
[model]
name = "app"
model = "{module}:Net"
train = "{module}:train"
[audit]
attributes = ["s"]
"""


def recorded(
    place: Any, module: str, chance: str = "0", rounds: int = 1, batch: int = 0, more: str = ""
) -> None:
    """Two clients train by the app's code, and what they return is recorded."""
    import importlib
    import sys

    from torch.utils.data import DataLoader, TensorDataset

    from overheard.recorders.recorder import Recorder

    rng = np.random.default_rng(0)
    (place.path / f"{module}.py").write_text(TASK.format(wide=16, chance=chance))
    sys.path.insert(0, str(place.path))
    task = importlib.import_module(module)
    sys.path.remove(str(place.path))
    lines, people = ["a,b,c,d,s,y,at"], {}
    for client in ("north", "south"):
        x = np.round(rng.normal(size=(30, 4)), 4)
        s = (rng.random(30) < 0.5).astype(float)
        y = np.round(x.sum(axis=1) + s + rng.normal(size=30), 4)
        people[client] = (np.column_stack([x, s]), y)
        lines += [
            f"{','.join(map(str, row))},{s[i]:.0f},{y[i]},{client}" for i, row in enumerate(x)
        ]
    (place.path / "people.csv").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    start = task.Net().state_dict()
    with Recorder(place.path / "own", "model", {"clients": list(people)}) as recorder:
        for number in range(1, rounds + 1):
            recorder.sent(number, "", {n: v.numpy() for n, v in start.items()})
            for client, (x, y) in people.items():
                net = task.Net()
                net.load_state_dict(start)
                records = TensorDataset(torch.tensor(x).float(), torch.tensor(y).float()[:, None])
                task.train(net, DataLoader(records, batch or len(y), shuffle=bool(batch)))
                after = {n: v.detach().numpy() for n, v in net.state_dict().items()}
                recorder.returned(number, client, after, float(len(y)))
            start = net.state_dict()
    written = TOML.format(module=module).replace("[audit]", f"{more}\n[audit]")
    (place.path / "own" / "audit.toml").write_text(written)


WORDS = ["--with", "own/audit.toml", "--out", "audit", "--no-rounds"]
LINEAR = [*WORDS, "--attack", "max_entropy"]


def test_what_the_app_does_is_what_is_replayed(workplace: Any) -> None:
    recorded(workplace, "task_of_its_own")
    assert "importing it runs it" in workplace.refused("audit", "own", *LINEAR)
    workplace.done("audit", "own", *LINEAR, "--trust-code")
    audit = json.loads((workplace.path / "audit" / "audit.json").read_text())
    assert [replay["outcome"] for replay in audit["replays"]] == ["fits"] * 2
    assert [row["value"] for row in audit["pooled"] if row["attack"] == "max_entropy"] == [1.0]


SHUFFLED = "batch_size = {}\nshuffle = true"


@pytest.mark.parametrize(("named", "outcome"), [(10, "fits"), (30, "does not fit")])
def test_batches_in_an_order_that_nobody_knows_are_noise(
    workplace: Any, named: int, outcome: str
) -> None:
    recorded(workplace, f"task_of_{named}", rounds=4, batch=10, more=SHUFFLED.format(named))
    asked = LINEAR if outcome == "fits" else WORDS
    words = [*asked, "--attack", "majority", "--client", "north", "--trust-code"]
    workplace.done("audit", "own", *words)
    audit = json.loads((workplace.path / "audit" / "audit.json").read_text())
    assert [replay["outcome"] for replay in audit["replays"]] == [outcome]
    found = {row["attack"]: row["value"] for row in audit["pooled"]}
    assert found.get("max_entropy", 1.0) >= 0.9 > found["majority"]


def test_training_that_draws_at_random_is_not_replayed(workplace: Any) -> None:
    recorded(workplace, "task_of_chance", "0.1 * (torch.rand(()) * net.two.weight).sum()")
    done = workplace.overheard("audit", "own", *LINEAR, "--trust-code")
    assert done.returncode != 3, done.stderr
    assert "draws at random" in done.stdout + done.stderr
