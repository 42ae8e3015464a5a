"""The simulation of audits with nothing to learn sees a false "exposed" where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from overheard.evaluation import decision
from reliability import null_audits


@pytest.mark.parametrize(("error", "faults"), [(decision.ERROR, 0), (1e9, 4)])
def test_false_exposures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, faults: int
) -> None:
    """Whoever does not pay for chance at all calls everything exposed."""
    monkeypatch.setattr(decision, "ERROR", error)
    monkeypatch.setattr(null_audits, "WORLDS", null_audits.WORLDS[:2])
    row = null_audits.rates(3, 20, 4, 0, tmp_path)
    assert row["faults"] == faults
    assert row.keys() == {"what", "trials", "faults", "outcome"}
    assert row["what"].startswith("3 clients of 20 records; ")
