"""scikit-learn's linear models in a plain loop: the example's recordings fit and are measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "scikit_learn.py"


@pytest.mark.parametrize("classes", [True, False], ids=["logistic", "ridge"])
def test_a_recorded_loop_is_measured(tmp_path: Path, classes: bool) -> None:
    example = load(EXAMPLE)
    example.train(tmp_path, classes)
    record = example.audited(tmp_path, classes)
    assert [r.outcome for r in record.replays] == ["fits"]
    (found,) = [f for f in record.findings if f.attack == "max_entropy"]
    assert found.details["rounds_heard"] == example.ROUNDS
    assert found.value > found.majority
