"""kerkouche2023's figures on digits, and what their rows say."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.errors import FixConfig
from papers.common.catalogue import experiments
from papers.common.rows import Choice
from papers.kerkouche2023 import pictures as drawn
from papers.kerkouche2023 import run as paper
from papers.kerkouche2023.listening import OURS, Heard, Point, Setting, listen
from papers.kerkouche2023.rows import curve_rows, reliability_rows


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


def test_every_figure_is_listed() -> None:
    names = {f"kerkouche2023-{n}" for n in ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8")}
    assert names <= set(experiments())


def test_the_quick_version_finds_the_climbers(tmp_path) -> None:
    """Ours has F1 = 1 at the end; every method has a curve; the picture is drawn."""
    outcome = paper.fig5(True, 1, quiet, Choice(rounds=40, shadows=60))
    curves = {r.method for r in outcome.rows if r.measure == "F1"}
    assert curves == {"matched_filter", "BASELINE", "OLS", "REG", "PROLIN"}
    last = [r.measured for r in outcome.rows if r.client == "round 40" and r.measure == "F1"]
    assert outcome.measured("matched_filter", client="round 40", measure="F1") == [1.0]
    assert max(last) == 1.0
    drawn.draw_f1(outcome, tmp_path / "fig5.svg")
    assert (tmp_path / "fig5.svg").stat().st_size > 1000


def test_targets_and_decoys_share_a_federation() -> None:
    setting = Setting("digits", "membership", 10, 10, 20, 4, targets=2, decoys=1, compared=0)
    heard = listen(setting, 3, quiet)
    assert [int(p.positive.sum()) for p in heard.points] == [4, 4]
    assert [int(p.positive.sum()) for p in heard.decoys] == [0]
    rows = curve_rows(setting, [heard])
    measures = {r.measure for r in rows}
    assert {"F1", "Brier score", "false alarms", "F1 by effect size", "CPU seconds"} <= measures


def test_reliability() -> None:
    p, real = np.array([0.05, 0.05, 0.95, 0.97]), np.array([False, False, True, True])
    point = Point(0, "matched_filter", 50, 1.0, 0.0, p, real, 1.0, 2)
    rows = reliability_rows("all", [point])
    assert [(r.measured, r.claimed) for r in rows] == [
        (0.0, pytest.approx(0.05)),
        (1.0, pytest.approx(0.96)),
    ]


def test_parts_of_figures() -> None:
    panels = paper._settings("membership", False, Choice("fashion", 10, 60, 0), ("mnist",))
    assert [(p.dataset, p.size, p.rounds, p.compared) for p in panels] == [("fashion", 10, 60, 0)]
    assert len(paper._settings("ascent", False, Choice(), ("mnist", "cifar10"))) == 4
    (many,) = paper._settings("ascent", False, Choice("cifar10", 25, clients=200), ())
    assert (many.clients, many.positives, many.shadows) == (200, 5, 1200)
    with pytest.raises(FixConfig, match="unknown dataset 'svhn'"):
        paper._settings("ascent", False, Choice("svhn"), ("mnist",))
    with pytest.raises(FixConfig, match="give --shadows"):
        paper.fig2(True, 1, quiet, Choice(shadows=0))
    (alone,) = paper._settings("ascent", True, Choice(shadows=0), ())
    assert alone.compared == 0
    other = experiments()["driouich2022-prop1"]
    with pytest.raises(FixConfig, match="has no --dataset"):
        other.run_part(True, 1, quiet, Choice("fashion"))


def test_what_the_detectors_tell(tmp_path) -> None:
    """Figures 2, 6 and 7 on digits: overlaps between 0 and 1, and pictures."""
    choice = Choice(rounds=10, shadows=60)
    features = paper.fig2(True, 1, quiet, choice)
    shared = features.measured("both", measure="OVL")
    assert len(shared) == 2
    assert all(0 <= value <= 1 for value in shared)
    drawn.draw_features(features, tmp_path / "fig2.svg")
    norms = paper.fig6(True, 1, quiet, choice)
    assert min(norms.measured("ascent", measure="norm")) > 0
    drawn.draw_overlap(norms, tmp_path / "fig6.svg")


def test_ours_is_set_beside_theirs_on_the_same_targets() -> None:
    """A mean over all targets of ours would not be comparable with theirs on one."""
    nobody = np.zeros(2)

    def point(target: int, method: str, value: float) -> Point:
        return Point(target, method, 10, value, 0.0, nobody, nobody > 0, 1.0, 0)

    points = (point(0, OURS, 1.0), point(1, OURS, 0.0), point(0, "PROLIN", 0.5))
    setting = Setting("fashion", "membership", 10, 10, targets=2)
    rows = curve_rows(setting, [Heard(points, (), (), ())])
    of = {(r.method, r.measure): r.measured for r in rows}
    assert of[OURS, "F1"] == 0.5
    assert of[OURS, "F1, the others' targets"] == 1.0
    assert of["PROLIN", "F1"] == 0.5
    assert (OURS, "CPU seconds") not in of  # readings that were kept took no time


def test_reliability_takes_points_at_one_round() -> None:
    made = paper.reliability(True, 1, lambda *_: None, Choice(rounds=30))
    assert {r.client for r in made.rows if r.measure == "F1"} >= {"round 30"}
    assert any(r.measure == "reliability" for r in made.rows)
