"""A recording says itself how its clients trained, or that nothing that was tried explains it."""

from __future__ import annotations

import json
import shutil
import tomllib
from typing import Any

import numpy as np
import pytest

from overheard.identify import search

pytestmark = pytest.mark.slow

GIVEN = ["--data", "people.csv", "--client", "at", "--target", "y", "--secret", "s"]


@pytest.fixture
def bare(workplace: Any) -> Any:
    """The messages of the recording, without what describes them."""
    shutil.copytree(workplace.path / "run" / "wire", workplace.path / "bare" / "wire")
    return workplace


def test_init_finds_the_recipe_and_the_audit_follows(bare: Any) -> None:
    """One line of code recorded it; two commands end in a report, and no TOML is typed."""
    found = bare.overheard("init", "bare", *GIVEN, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["fits"]
    told = tomllib.loads((bare.path / "bare" / "audit.toml").read_text())
    simulated = tomllib.loads((bare.path / "federation.toml").read_text())["training"]
    assert told["training"]["learning_rate"] == pytest.approx(simulated["learning_rate"], rel=1e-4)
    assert told["model"]["name"] == "linear"
    words = ["--with", "bare/audit.toml", "--attack", "majority", "--out", "audit"]
    done = bare.overheard("audit", "bare", *words)
    assert done.returncode == 0, done.stderr
    replays = json.loads((bare.path / "audit" / "audit.json").read_text())["replays"]
    assert [r["outcome"] for r in replays] == ["fits"] * 3
    others = told["audit"]["also_fits"]  # one full-batch step of momentum is one of plain SGD
    assert any("momentum" in words for words in others)
    notes = json.loads((bare.path / "audit" / "audit.json").read_text())["notes"]
    assert any("fit as well" in note and others[0] in note for note in notes)
    again = bare.overheard("init", "bare", *GIVEN)
    assert again.returncode == 1
    assert "exists already" in again.stderr


def test_who_is_who_is_found(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower knows its nodes by numbers: whose records they hold is seen in what they sent."""
    monkeypatch.setattr(search, "EPOCHS", (1,))
    monkeypatch.setattr(search, "BATCHES", (None,))
    table = bare.path / "people.csv"
    names = {"site 0": "west", "site 1": "east", "site 2": "north"}
    text = table.read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    table.write_text(text)
    found = bare.overheard("init", "bare", *GIVEN)
    assert found.returncode == 0, found.stderr
    assert tomllib.loads((bare.path / "bare" / "audit.toml").read_text())["clients"] == names
    assert "are what their records lead to" in found.stdout


def test_what_nothing_explains_is_said(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that are not those that were trained on: every recipe is wrong, and called so."""
    monkeypatch.setattr(search, "EPOCHS", (1,))
    monkeypatch.setattr(search, "BATCHES", (None,))
    table = bare.path / "people.csv"
    head, *lines = table.read_text().splitlines()
    place = head.split(",").index("y")
    cells = [line.split(",") for line in lines]
    shuffled = np.random.default_rng(0).permutation([c[place] for c in cells])
    for row, label in zip(cells, shuffled, strict=True):
        row[place] = str(label)
    table.write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    found = bare.overheard("init", "bare", *GIVEN)
    assert found.returncode == 0, found.stderr
    assert "NONE FITS" in found.stderr
    assert "# NONE FITS" in (bare.path / "bare" / "audit.toml").read_text()


def test_a_table_that_is_not_there_is_named(bare: Any) -> None:
    found = bare.overheard("init", "bare", "--data", "nobody.csv", "--client", "at")
    assert found.returncode == 1
    assert "nobody.csv" in found.stderr
    assert not (bare.path / "bare" / "audit.toml").exists()


def test_layers_that_are_not_dense_ask_for_their_module(workplace: Any) -> None:
    from overheard.federation.recorders.live import Recorder

    with Recorder(workplace.path / "conv", "model", {"clients": ["site 0"]}) as recorder:
        model = {"conv1.weight": np.zeros((2, 1, 3, 3), np.float32)}
        recorder.sent(1, "", model)
        recorder.returned(1, "site 0", model, 30.0)
    found = workplace.overheard("init", "conv", *GIVEN)
    assert found.returncode == 1
    assert "conv1.weight 2x1x3x3" in found.stderr
    assert "--model" in found.stderr
