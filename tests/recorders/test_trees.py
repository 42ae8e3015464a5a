"""Recordings of boosted trees are described as what they are; examples/recipes audits them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from overheard.errors import FixConfig
from overheard.federation.federation import read_config
from overheard.recorders.describe import describe
from overheard.recorders.template import write_template
from overheard.transcript.store import Recorder, Recording

DESCRIPTION = """
[data]
source = "file"
path = "people.csv"
client = "who"
target = "rich"

[model]
name = "xgboost"
"""


def test_networks_and_programs_are_described_as_what_they_are(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", "model", {}) as recorder:
        recorder.round(0, {"w": np.zeros((1, 4))}, {"a": {"w": np.zeros((1, 4))}})
    (tmp_path / "people.csv").write_text("who,age,rich\na,1,0\na,2,1\n")
    file = tmp_path / "audit.toml"
    file.write_text(DESCRIPTION)
    with pytest.raises(FixConfig, match="holds models of a network"):
        describe(
            Recording.open(tmp_path / "run"),
            read_config(file, recorded=True),
            tmp_path / "described",
        )
    file.write_text(DESCRIPTION + "\n[training]\nlearning_rate = 0.1\n")
    with pytest.raises(FixConfig, match=r"training\.learning_rate is about networks"):
        read_config(file, recorded=True)


def test_the_template_of_trees_names_their_program(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", "release", {}) as recorder:
        tree = {"0": np.frombuffer(b"{}", dtype=np.uint8)}
        recorder.round(1, {"0": np.zeros(0, dtype=np.uint8)}, {"a": tree})
    text = write_template(tmp_path / "run").read_text()
    assert 'name = "xgboost"' in text
    assert "[training]" not in text
