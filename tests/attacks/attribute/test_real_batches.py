"""Mini-batches on real people: the RAND experiment comes with the package, Adult where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import overheard
from overheard.errors import FixData
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER


def found(path: Path, content: dict[str, Any], client: str, target: str) -> Any:
    recording = Recording.open(simulate(plan(parse_config(content)), path))
    alone = overheard.AuditOptions(rounds=False)
    record = overheard.audit(recording, EAVESDROPPER, ["max_entropy"], [client], [target], alone)
    assert {replay.outcome for replay in record.replays} == {"fits"}
    (finding,) = record.findings
    return finding


def test_a_client_whose_share_is_far_from_the_population(tmp_path: Path) -> None:
    """Half of site 5 is black, a fifth of all are: the share is learned, not called noise."""
    content = {
        "data": {"source": "randhie"},
        "model": {"name": "linear"},
        "training": {"rounds": 60, "learning_rate": 0.01, "batch_size": 32},
        "audit": {"attributes": ["black"]},
    }
    finding = found(tmp_path / "run", content, "site 5", "black")
    assert "flag" not in finding.details
    assert finding.value >= 0.7
    assert finding.value > finding.imputation


def test_a_right_recipe_on_adult_is_not_called_a_poor_fit(tmp_path: Path) -> None:
    content = {
        "data": {"source": "adult"},
        "model": {"name": "mlp", "hidden": [32]},
        "training": {"rounds": 5, "learning_rate": 0.05, "batch_size": 64},
        "audit": {"attributes": ["sex"]},
    }
    try:
        finding = found(tmp_path / "run", content, "client 0", "sex")
    except FixData as error:
        pytest.skip(f"Adult is not at hand: {error}")
    assert "flag" not in finding.details
    assert finding.value >= 0.95
