"""The attack that the documentation shows is held to what it says there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from share_of_values import ShareOfValues

from overheard.attacks import all_attacks
from overheard.evaluation.audit import audit
from overheard.transcript.threat import EAVESDROPPER


def test_it_is_audited_listed_and_explained_like_any_other(
    federate: Any, workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(all_attacks(), "share_of_values", ShareOfValues)
    record = audit(federate(participation=1.0), EAVESDROPPER, ["share_of_values"], targets=["s"])
    assert {f.attack for f in record.findings} == {"share_of_values"}
    assert record.attacks[0].equation.startswith("(θ − θ′)")
    assert "share_of_values" in workplace.overheard("attacks").stdout
    assert "how common each value is" in workplace.overheard("attacks", "share_of_values").stdout
