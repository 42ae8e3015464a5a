"""kerkouche2023's figures on digits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments import recordings
from experiments.papers.kerkouche2023 import run as paper
from experiments.runner import cell
from overheard.attacks.papers import kerkouche2023

pytestmark = pytest.mark.slow


def digits(method: str, rounds: int, **more: int):
    return cell(method, dataset="digits", size=10, clients=20, rounds=rounds, **more)


def test_every_method_has_a_curve_and_all_of_the_papers_share_detectors(monkeypatch):
    """Ours has F1 = 1 at the end."""
    ours = paper.figure("ascent", digits(paper.OURS, 30))
    assert ours["F1"]["30"] == 1.0
    assert ours["best F1"] == 1.0
    found = {}
    for method in paper.THEIRS:
        found[method] = paper.figure("ascent", digits(method, 30, shadows=40))
        monkeypatch.setattr(kerkouche2023, "detector", None)  # not again
        assert list(found[method]["F1"]) == list(ours["F1"]) == ["10", "20", "30"]
    assert len({str(values["F1"]) for values in found.values()}) > 1


def test_targets_and_decoys_share_a_federation(monkeypatch):
    world = paper.World("digits_images", 1000, 0.1, 10, (10,), 4, targets=2, decoys=1)
    monkeypatch.setitem(paper.WORLDS, "digits", world)
    setting = paper.Setting("digits", "membership", 10, 20, 4)
    with recordings.recorded(setting.config(303), shared=True) as recording:
        _, adversary, answers = paper.asked_in(recording, setting)
    assert adversary.targets is not None
    assert len(adversary.targets) == 3
    assert [int(answer.sum()) for answer in answers] == [4, 4, 0]
    values = paper.figure("membership", digits(paper.OURS, 4))
    assert {"F1", "F1, the paper's methods' target", "Brier score", "false alarms"} <= set(values)


def test_section_6_4_2_is_about_peaks_means_and_spread():
    high = paper.peaks({"20": 0.9, "40": 0.3, "60": 0.3})
    assert (high["best F1"], high["round of the best"]) == (0.9, 20)
    steady = paper.peaks({"20": 0.5, "40": 0.5})
    assert (steady["mean F1"], steady["sd of F1"]) == (0.5, 0.0)
    one = cell("BASELINE", dataset="fashion", size=20, clients=50, shadows=1200)
    assert paper.claimed("membership", one) == {"best F1": 0.83, "round of the best": 20}
    assert paper.claimed("ascent", one) == {"F1": {"290": 0.9}}
    assert paper.claimed("ascent", replace(one, method=paper.OURS)) == {}
