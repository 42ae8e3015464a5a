"""Recordings of boosted trees are imported and described as what they are.

They are read in both notations in tests/programs/trees, and audited in examples/recipes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from overheard.errors import FixConfig, FixData
from overheard.federation.federation import read_config
from overheard.recorders.describe import describe
from overheard.recorders.folder import Pattern, import_folder
from overheard.recorders.template import write_template
from overheard.transcript.store import Recorder, Recording

MODEL = Path(__file__).parents[1] / "fuzz/corpus/trees/classes.json"
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
    (tmp_path / "audit.toml").write_text(DESCRIPTION)
    description = read_config(tmp_path / "audit.toml", recorded=True)
    with pytest.raises(FixConfig, match="holds models of a network"):
        describe(Recording.open(tmp_path / "run"), description, tmp_path / "described")


def test_saved_models_are_imported_as_they_are(tmp_path: Path) -> None:
    """The first round begins with no model; a later one must say which."""
    how = Pattern(
        sent="round_{round}/global.json", returned="round_{round}/{client}.json", payload="release"
    )
    raw = MODEL.read_bytes()
    for number in (1, 2):
        (tmp_path / f"saved/round_{number}").mkdir(parents=True)
        (tmp_path / f"saved/round_{number}/a.json").write_bytes(raw)
    with pytest.raises(FixData, match="round 2 has no file"):
        import_folder(tmp_path / "saved", tmp_path / "refused", how)
    (tmp_path / "saved/round_2/global.json").write_bytes(raw)
    assert import_folder(tmp_path / "saved", tmp_path / "run", how) == 2
    (_, none, first), (_, sent, _) = Recording.open(tmp_path / "run").releases("a")
    assert none["model"].tobytes() == b""
    assert first["model"].tobytes() == sent["model"].tobytes() == raw
    text = write_template(tmp_path / "run").read_text()
    assert 'name = "xgboost"' in text
    assert "[training]" not in text
