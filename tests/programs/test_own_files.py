"""A loss and a program in a file of one's own, as the docstrings of ours show them, are audited."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from federations import generated_people

import overheard
from overheard.programs import losses, program
from overheard.transcript.target import attribute
from overheard.transcript.threat import SERVER

LOSS = {"model": {"name": "linear"}, "training": {"rounds": 3, "learning_rate": 0.1}}
PROGRAM = {"model": {"name": "total"}, "training": {"rounds": 1}}


@pytest.mark.parametrize(
    ("shown", "name", "config"),
    [
        (losses, "losses", {**LOSS, "training": {**LOSS["training"], "loss": "half"}}),
        (program, "programs", PROGRAM),
    ],
    ids=["loss", "program"],
)
def test_a_file_of_your_own(
    shown: Any, name: str, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example is written into a package of its own; what it adds can be run and decoded."""
    (point,) = re.findall(r"``(\w+ = \"(\w+):\w+\")``", shown.__doc__)
    code = shown.__doc__.partition("::\n\n")[2]
    block = re.match(r"(?:(?: {4}.*)?\n)+", code)
    assert block
    (tmp_path / f"{point[1]}.py").write_text(textwrap.dedent(block[0]))
    about = tmp_path / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    entry = point[0].replace('"', "")
    (about / "entry_points.txt").write_text(f"[overheard.{name}]\n{entry}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(losses, "LOSSES", dict(losses.LOSSES))
    program.families.cache_clear()
    try:
        made = overheard.parse_config({"seed": 1, "data": {"source": "file"}, **config})
        people = generated_people(clients=2, people=12, columns=4, classify=False, seed=1)
        run = overheard.Recording.open(
            overheard.simulate(overheard.plan(made, people), tmp_path / "run")
        )
        view = overheard.observe(run, SERVER, attribute("s"), "0")
        guess = overheard.launch(overheard.attack_named("max_entropy"), view, 0)
        right = guess.probabilities.argmax(axis=1) == run.truth()["0"]["s"]
        assert right.mean() > 0.7
    finally:
        program.families.cache_clear()
