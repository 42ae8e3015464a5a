"""kerkouche2023's figures on digits, and what their rows say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from overheard.errors import FixConfig
from papers.common.catalogue import experiments
from papers.common.rows import Choice, Reproduction
from papers.kerkouche2023 import run as paper
from papers.kerkouche2023.listening import OURS, Heard, Point, Setting, listen
from papers.kerkouche2023.rows import curve_rows, reliability, worst_rows

pytestmark = pytest.mark.slow


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


def run(number: str, choice: Choice) -> Reproduction:
    return experiments()[f"kerkouche2023-{number}"].measure(True, 1, quiet, choice)


def drawn(number: str, outcome: Reproduction, folder: Path) -> None:
    experiments()[f"kerkouche2023-{number}"].draw(outcome, folder / "picture.svg")
    assert (folder / "picture.svg").stat().st_size > 1000


def test_the_quick_version_finds_the_climbers(tmp_path) -> None:
    """Ours has F1 = 1 at the end; every method has a curve; the picture is drawn."""
    outcome = run("fig5", Choice(rounds=30, shadows=40, every=30))
    curves = {r.method for r in outcome.rows if r.measure == "F1"}
    assert curves == {"matched_filter", "BASELINE", "OLS", "REG", "PROLIN"}
    assert curves == {r.method for r in outcome.rows if r.measure == "best F1"}
    last = [r.measured for r in outcome.rows if r.client == "round 30" and r.measure == "F1"]
    assert outcome.measured("matched_filter", client="round 30", measure="F1") == [1.0]
    assert max(last) == 1.0
    drawn("fig5", outcome, tmp_path)


def test_targets_and_decoys_share_a_federation() -> None:
    setting = Setting("digits", "membership", 10, 4, 20, 4, targets=2, decoys=1, compared=0)
    heard = listen(setting, 3, quiet)
    assert [int(p.positive.sum()) for p in heard.points] == [4, 4]
    assert [int(p.positive.sum()) for p in heard.decoys] == [0]
    rows = curve_rows(setting, [heard])
    measures = {r.measure for r in rows}
    assert {"F1", "Brier score", "false alarms", "F1 by effect size", "CPU seconds"} <= measures


def test_fresh_federations_have_seeds_of_their_own() -> None:
    """Ours alone, on seeds that no other experiment has."""
    others = [e.first_seed for name, e in experiments().items() if name != "kerkouche2023-fresh"]
    outcome = paper.fresh(True, 1, quiet, Choice(rounds=4))
    assert {r.method for r in outcome.rows} == {OURS}
    assert f"Seeds of the federations: {paper.FRESH_SEED} to {paper.FRESH_SEED}." in outcome.notes
    assert not set(range(paper.FRESH_SEED, paper.FRESH_SEED + 3)) & set(others)


def test_reliability(tmp_path) -> None:
    """What was said and what was so; no paper claims either."""
    p, real = np.array([0.05, 0.05, 0.95, 0.97]), np.array([False, False, True, True])
    point = Point(0, "matched_filter", 50, p, p > 0.5, real, 1.0)
    rows = reliability("all", [point])
    assert [(r.measure, r.measured, r.claimed) for r in rows] == [
        ("probability given", pytest.approx(0.05), None),
        ("reliability", 0.0, None),
        ("probability given", pytest.approx(0.96), None),
        ("reliability", 1.0, None),
    ]
    made = run("reliability", Choice(rounds=4))
    assert {r.client for r in made.rows if r.measure == "F1"} >= {"round 4"}
    assert any(r.measure == "reliability" for r in made.rows)
    drawn("reliability", made, tmp_path)


def test_parts_of_figures() -> None:
    panels = paper._settings("membership", False, Choice("fashion", 10, 60, 0), ("mnist",))
    assert [(p.dataset, p.size, p.rounds, p.compared) for p in panels] == [("fashion", 10, 60, 0)]
    both = paper._settings("ascent", False, Choice(), ("mnist", "cifar10"))
    assert [p.size for p in both] == [10, 20, 30, 25, 50]
    (many,) = paper._settings("ascent", False, Choice("cifar10", 25, clients=200), ())
    assert (many.clients, many.positives, many.shadows) == (200, 5, 1200)
    with pytest.raises(FixConfig, match="unknown dataset 'svhn'"):
        paper._settings("ascent", False, Choice("svhn"), ("mnist",))
    (alone,) = paper._settings("ascent", True, Choice(shadows=0), ())
    assert alone.compared == 0


def answer(target: int, method: str, round_: int, f1: float) -> Point:
    """Ten of twenty clients are accused, so many of the ten positives among them."""
    clients, missed = np.arange(20), 10 - round(10 * f1)
    chosen = (clients >= missed) & (clients < 10 + missed)
    return Point(target, method, round_, chosen.astype(float), chosen, clients < 10, 1.0)


def test_ours_is_set_beside_theirs_on_the_same_targets() -> None:
    """A mean over all targets of ours would not be comparable with theirs on one."""
    points = (answer(0, OURS, 10, 1.0), answer(1, OURS, 10, 0.0), answer(0, "PROLIN", 10, 0.5))
    setting = Setting("fashion", "membership", 10, 10, targets=2)
    rows = curve_rows(setting, [Heard(points, (), 2.5)])
    of = {(r.method, r.measure): r.measured for r in rows}
    assert of[OURS, "F1"] == 0.5
    assert of[OURS, "F1, the others' targets"] == 1.0
    assert of["PROLIN", "F1"] == 0.5
    assert of[OURS, "CPU seconds"] == 2.5


def curve(method: str, *heights: float) -> tuple[Point, ...]:
    return tuple(answer(0, method, 20 * (t + 1), height) for t, height in enumerate(heights))


def test_section_6_4_2_is_about_peaks_means_and_spread() -> None:
    """Of Fashion, 20 records: BASELINE peaks at round 20 with .83, PROLIN at round 120 with .79."""
    points = curve("BASELINE", 0.9, 0.3, 0.3) + curve("PROLIN", 0.2, 0.5, 0.8)
    setting = Setting("fashion", "membership", 20, 60)
    rows = curve_rows(setting, [Heard((*points, *curve(OURS, 1, 1, 1)), (), 0.0)])
    of = {(r.method, r.measure): (r.measured, r.claimed) for r in rows if r.client == "all rounds"}
    assert of["BASELINE", "best F1"] == (0.9, 0.83)
    assert of["BASELINE", "round of the best"] == (20, 20)
    assert of["PROLIN", "best F1"] == (0.8, 0.79)
    assert of["PROLIN", "round of the best"] == (60, 120)
    assert of["PROLIN", "mean F1"] == (pytest.approx(0.5), None)
    spread = [of[method, "sd of F1"][0] for method in ("BASELINE", "PROLIN", OURS)]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] == 0
    assert worst_rows(rows) == []
    other = curve_rows(replace(setting, dataset="mnist"), [Heard(curve("PROLIN", 0.1), (), 0.0)])
    (worst, *_) = worst_rows([*other, *rows])
    assert (worst.method, worst.measured, worst.claimed) == ("PROLIN", 0.1, 0.69)
    assert worst.client == "mnist, membership, 20 records, 50 clients"
