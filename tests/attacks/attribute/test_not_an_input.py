"""A secret that the model does not see: no update depends on it, and nobody pretends otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overheard.evaluation.audit import audit
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.store import Recording
from overheard.transcript.threat import threat_named


def recorded(path: Path, training: dict[str, Any], defence: list[dict[str, Any]]) -> Recording:
    options = {"victim": 40, "participants": 3, "attributes": ["c043"]}
    config = {
        "data": {"source": "digits", "options": options},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 1, "learning_rate": 0.1, "weighting": "equal", **training},
        "defence": [{"name": "drop_column", "columns": ["c043"]}, *defence],
    }
    ready = plan(parse_config(config))
    assert "c043" not in ready.recipe.encoding.columns()
    assert ready.recipe.dense.inputs == 63
    return Recording.open(simulate(ready, path / "run"))


@pytest.mark.parametrize("training", [{}, {"epochs": 2, "batch_size": 16}])
def test_the_decoder_answers_what_was_known_before(
    training: dict[str, Any], tmp_path: Path
) -> None:
    run = recorded(tmp_path, training, [])
    record = audit(run, threat_named("server"), clients=["victim"], targets=["c043"])
    found = {f.attack: f for f in record.findings}
    ours = found["max_entropy"]
    assert "does not see 'c043'" in str(ours.details["not_an_input"])
    assert ours.details["rank"] == 0
    # records of other people are known, and what they tell without listening is no exposure
    assert ours.value == pytest.approx(ours.imputation)
    assert ours.lift is not None
    assert ours.lift <= 0
    assert ours.flag == ""  # what it says is right, and little
    assert ours.sure is not None
    assert ours.evidence is not None
    assert ours.evidence <= 0
    why = {s.attack: s.reason for s in record.skipped}
    if not training:
        assert "nothing to decode" in why["partial_decode"]
        assert "nothing to decode" in why["joint_decode"]


def test_nor_is_it_in_a_sum(tmp_path: Path) -> None:
    run = recorded(tmp_path, {}, [{"name": "secure_sum"}])
    record = audit(run, threat_named("secure-server"), ["sum_decode"], ["victim"], ["c043"])
    assert record.findings == ()
    assert "nothing to decode" in record.skipped[0].reason
