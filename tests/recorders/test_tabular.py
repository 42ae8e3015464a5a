"""Clients like those of Flower's fl-tabular, from the recording to the report by two commands.

Every client codes its texts, holds a fifth of its records out and scales the others by itself, with
scikit-learn; then Adam at 0.001, batches of 32, with torch. Nothing of that is typed.
"""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from torch.utils.data import DataLoader, TensorDataset

import overheard

pytestmark = pytest.mark.slow

NODES = ("18446744073709551615", "9223372036854775808", "3")


def people(client: int, rng: np.random.Generator) -> list[list[Any]]:
    """Like Adult: numbers and texts, of which the first client does not have all."""
    rows = []
    for _ in range(110):
        man = rng.random() < 0.6
        age, hours = rng.integers(18, 70) + 4 * client, rng.integers(10, 60) + 5 * man
        work = rng.choice(["clerk", "farm", "none", "state"][: 3 + (client > 0)])
        rich = age / 20 + hours / 15 + man + rng.normal() > 6.2
        rows.append([age, work, "Male" if man else "Female", hours, ">50K" if rich else "<=50K"])
    return rows


def batches(rows: list[list[Any]]) -> DataLoader[Any]:
    age, *texts, hours, income = (np.array(c)[:, None] for c in zip(*rows, strict=True))
    *texts, income = (OrdinalEncoder().fit_transform(c) for c in (*texts, income))
    x, _, y, _ = train_test_split(
        np.hstack([age, *texts, hours]), income, test_size=0.2, random_state=42
    )
    scaled = StandardScaler().fit_transform(x)
    tensors = (torch.tensor(values, dtype=torch.float32) for values in (scaled, y))
    return DataLoader(TensorDataset(*tensors), batch_size=32, shuffle=True)


def arrays(network: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: a.numpy().copy() for name, a in network.state_dict().items()}


def federation(path: Path, loaders: list[DataLoader[Any]], rounds: int) -> None:
    nn = torch.nn
    layers = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1), nn.Sigmoid()
    network = nn.Sequential(*layers)
    with overheard.Recorder(path) as recorder:
        for number in range(1, rounds + 1):
            sent, returned = arrays(network), []
            recorder.sent(number, "", sent)
            for node, loader in zip(NODES, loaders, strict=True):
                network.load_state_dict({n: torch.tensor(a) for n, a in sent.items()})
                adam = torch.optim.Adam(network.parameters(), lr=0.001)
                for x, y in loader:
                    adam.zero_grad()
                    nn.functional.binary_cross_entropy(network(x), y).backward()
                    adam.step()
                returned.append(arrays(network))
                recorder.returned(number, node, returned[-1], len(loader))  # of batches, as there
            mean = {n: torch.tensor(np.mean([r[n] for r in returned], axis=0)) for n in sent}
            network.load_state_dict(mean)


def test_two_commands_end_in_a_report(workplace: Any) -> None:
    """Who is who, each client's own codes and scales, what it held out, the optimiser: found."""
    folder, rng = workplace.path, np.random.default_rng(3)
    clients = [people(k, rng) for k in range(len(NODES))]
    with (folder / "adult.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "work", "sex", "hours", "income", "client"])
        table.writerows([*row, f"client {k}"] for k, rows in enumerate(clients) for row in rows)
    torch.manual_seed(0)
    federation(folder / "run2", [batches(rows) for rows in clients], rounds=8)

    given = "--data adult.csv --target income --secret sex".split()
    found = workplace.done("init", "run2", *given, "--json")
    assert json.loads(found.stdout)["fits"]
    known = tomllib.loads((folder / "run2" / "audit.toml").read_text())
    assert known["data"]["held_out"] == {"share": 0.2}
    assert (known["data"]["scale"], known["data"]["text"]) == ("clients", "codes")
    assert known["data"]["every"]
    assert known["training"]["optimiser"]["name"] == "adam"
    assert known["training"]["batch_size"] == 32
    assert known["training"]["learning_rate"] == pytest.approx(0.001, rel=0.05)
    assert known["clients"] == {node: f"client {k}" for k, node in enumerate(NODES)}

    words = "--with run2/audit.toml --out audit --attack max_entropy --attack majority".split()
    workplace.done("audit", "run2", *words, "--client=client 1", "--no-rounds", "--no-ladder")
    audit = json.loads((folder / "audit" / "audit.json").read_text())
    assert [replay["outcome"] for replay in audit["replays"]] == ["fits"]
    assert audit["failed"] == audit["skipped"] == []
    by_attack = {finding["attack"]: finding for finding in audit["findings"]}
    decoded = by_attack["max_entropy"]
    assert decoded["details"]["fit"] == "good"
    assert decoded["p_value"] < 0.05
    assert decoded["value"] > max(decoded["imputation"], by_attack["majority"]["value"])
    assert any("by its own mean and deviation" in note for note in audit["notes"])
    assert "sex" in (folder / "audit" / "report.html").read_text()
