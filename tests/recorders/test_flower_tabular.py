"""Flower's tabular app, from one line of code to the report by two commands, nothing typed."""

from __future__ import annotations

import csv
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripts import load

pytestmark = pytest.mark.slow

pytest.importorskip("flwr", reason="Flower is not installed: pip install overheard[flower]")
HERE = Path(__file__)
here = load(HERE.with_name("conftest.py"), "recorders_conftest")
tabular = load(HERE.with_name("tabular_app.py"))
CLIENTS = 3


def write_people(path: Path) -> None:
    """Like Adult: numbers and texts, of which some clients do not have all."""
    rng = np.random.default_rng(3)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "work", "sex", "hours", "income", "client"])
        for number in range(CLIENTS):
            for _ in range(110):
                man = rng.random() < 0.6
                age, hours = rng.integers(18, 70) + 4 * number, rng.integers(10, 60) + 5 * man
                work = rng.choice(["clerk", "farm", "none", "state"][: 3 + (number > 0)])
                rich = age / 20 + hours / 15 + man + rng.normal() > 6.2
                row = [age, work, "Male" if man else "Female", hours, ">50K" if rich else "<=50K"]
                table.writerow([*row, f"client {number}"])


def test_one_line_and_two_commands_end_in_a_report(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is who, each client's own codes and scales, what it held out, the optimiser: found."""
    folder = workplace.path
    write_people(folder / "adult.csv")
    monkeypatch.setenv(tabular.TABLE, str(folder / "adult.csv"))
    monkeypatch.setenv(tabular.RUN, str(folder / "flower"))
    random.seed(0)
    torch.manual_seed(0)
    server, client = tabular.apps({"inputs": 4, "wide": 8}, CLIENTS, rounds=8)
    server(here.in_process_grid(client, here.NODES[:CLIENTS]), here.context())

    given = ["--data", "adult.csv", "--target", "income", "--secret", "sex"]
    found = workplace.overheard("init", "flower", *given, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["fits"]
    told = tomllib.loads((folder / "flower" / "audit.toml").read_text())
    assert told["data"]["held_out"] == {"share": 0.2}
    assert (told["data"]["scale"], told["data"]["text"]) == ("clients", "codes")
    assert told["data"]["every"]
    assert told["training"]["optimiser"]["name"] == "adam"
    assert told["training"]["batch_size"] == 32
    assert told["training"]["learning_rate"] == pytest.approx(0.001, rel=0.05)
    names = {str(node): f"client {k}" for k, node in enumerate(here.NODES[:CLIENTS])}
    assert told["clients"] == names

    asked = ["--client", "client 1", "--attack", "max_entropy", "--attack", "majority"]
    words = ["--with", "flower/audit.toml", "--out", "audit", *asked, "--no-rounds"]
    done = workplace.overheard("audit", "flower", *words)
    assert done.returncode == 0, done.stderr
    audit = json.loads((folder / "audit" / "audit.json").read_text())
    assert [replay["outcome"] for replay in audit["replays"]] == ["fits"]
    assert audit["failed"] == audit["skipped"] == []
    found = {finding["attack"]: finding for finding in audit["findings"]}
    heard = found["max_entropy"]
    assert heard["details"]["fit"] == "good"
    assert heard["p_value"] < 0.05
    assert heard["value"] > max(heard["imputation"], found["majority"]["value"])
    assert any("by its own mean and deviation" in note for note in audit["notes"])
    assert "sex" in (folder / "audit" / "report.html").read_text()
