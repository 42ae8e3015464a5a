"""The experiment on noise and clipping: what it asks, and that its rows say what was measured."""

from __future__ import annotations

import pytest

from overheard.errors import FixData
from papers.common.catalogue import experiment_named
from papers.lyu2021 import defences as experiment


def test_it_is_registered_and_asks_at_least_five_strengths():
    assert experiment_named("lyu2021-noise").paper == "lyu2021"
    for quick in (True, False):
        cells = list(experiment._cells(quick))
        assert len({s for panel, s, told in cells if panel == experiment.NOISE and told}) >= 5
        assert {told for _, _, told in cells} == {True, False}


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
