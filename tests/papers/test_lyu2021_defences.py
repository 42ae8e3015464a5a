"""The experiment on noise and clipping: its rows say what was measured."""

from __future__ import annotations

import pytest

from overheard.errors import FixData
from papers.lyu2021 import defences as experiment


def test_one_strength_is_measured_as_committed(monkeypatch):
    monkeypatch.setattr(experiment, "RECORDS", 100)
    try:
        norm, size = experiment._bare(0)
    except FixData as missing:
        pytest.skip(str(missing))
    defences = experiment._defences(experiment.CLIP, 0.1, norm, size)
    found = experiment._attack(0, defences, told=False)
    assert found["accuracy"] == 1.0
    assert found["scale"] == pytest.approx(0.1, rel=1e-3)
