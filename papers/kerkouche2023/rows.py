"""What kerkouche2023 shows of the answers: F1 by round, calibration, false alarms, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from papers.common.harness import mean_row, reliability_rows
from papers.common.rows import Row
from papers.kerkouche2023.listening import OURS, Heard, Point, Setting

# the paper's text gives few numbers; figures 3 to 5 and 8 are drawn only
CLAIMS: dict[tuple[str, str, int, int], dict[str, dict[int, float]]] = {
    ("fashion", "membership", 10, 50): {"PROLIN": {50: 0.25, 100: 0.97}},
    ("fashion", "membership", 30, 50): {"PROLIN": {290: 0.4}},
    ("cifar10", "ascent", 25, 50): {"BASELINE": {300: 1.0}, "OLS": {300: 0.83}},
    ("cifar10", "ascent", 25, 100): {"BASELINE": {300: 0.69}, "OLS": {300: 0.62}},
    ("cifar10", "ascent", 25, 200): {"BASELINE": {300: 0.21}, "OLS": {300: 0.24}},
    ("cifar10", "ascent", 50, 50): {"BASELINE": {300: 1.0}, "PROLIN": {300: 0.76}},
}

BEST_F1, BEST_ROUND, MEAN_F1, SPREAD = "best F1", "round of the best", "mean F1", "sd of F1"
"""Section 6.4.2 compares curves by these: the highest point and where it is, the mean over the
rounds ("more accurate on average") and the standard deviation over them ("more stable")."""

PEAKS: dict[tuple[str, str, int, int], dict[str, dict[str, float]]] = {
    ("fashion", "membership", 20, 50): {
        "BASELINE": {BEST_F1: 0.83, BEST_ROUND: 20},
        "PROLIN": {BEST_F1: 0.79, BEST_ROUND: 120},
    },
    ("mnist", "membership", 20, 50): {"PROLIN": {BEST_F1: 0.86}},
    ("cifar10", "ascent", 50, 50): {"BASELINE": {BEST_F1: 1.0}, "PROLIN": {BEST_F1: 0.76}},
}
"""Section 6.4.2, for 50 clients. Its "Figure 3.e" is Fashion with |D| = 20, "3.b" MNIST with 20:
panels a to c and d to f have 10, 20 and 30 records, g and h (CIFAR-10) 25 and 50. What it calls
"gradient ascent attack shown in Figure 3.i" is Figure 5's last panel."""

WORST = {"PROLIN": 0.69, "BASELINE": 0.56}
"""The worst of all scenarios (section 6.4.2); taken here as that of the scenarios' best F1."""


def curve_rows(setting: Setting, heard: Sequence[Heard]) -> list[Row]:
    """F1 against the round for each method; of ours also Brier score, effects, alarms, cost."""
    points = [p for one in heard for p in one.points]
    key = (setting.dataset, setting.kind, setting.size, setting.clients)
    claims = CLAIMS.get(key, {})
    rows: list[Row] = []
    for method in dict.fromkeys(p.method for p in points):
        for t in sorted({p.round for p in points}):
            values = [p.f1 for p in points if p.method == method and p.round == t]
            claimed = claims.get(method, {}).get(t)
            rows.append(
                mean_row(setting.words, f"round {t}", method, "F1", values, claimed=claimed)
            )
    rows += peak_rows(setting, rows, PEAKS.get(key, {}))
    rows += _on_the_same(setting, heard)
    mine = [p for p in points if p.method == OURS]
    for t in sorted({p.round for p in mine}):
        scores = [p.brier for p in mine if p.round == t]
        rows.append(mean_row(setting.words, f"round {t}", OURS, "Brier score", scores))
        alarms = [float(p.chosen.sum()) for one in heard for p in one.decoys if p.round == t]
        if alarms:
            label = f"round {t}"
            rows.append(mean_row(setting.words, label, OURS, "false alarms", alarms))
    if setting.kind == "membership":
        rows += _by_effect(setting, mine)
    spent = [one.ours_seconds for one in heard]
    rows.append(mean_row(setting.words, "a round", OURS, "CPU seconds", spent))
    return rows


def peak_rows(
    setting: Setting, curves: Sequence[Row], claims: Mapping[str, Mapping[str, float]]
) -> list[Row]:
    """How high each method's curve of F1 comes, and where; its mean and spread over the rounds."""
    rows: list[Row] = []
    for method in dict.fromkeys(row.method for row in curves):
        points = [row for row in curves if row.method == method and row.measure == "F1"]
        best = max(points, key=lambda row: row.measured)
        heights = [row.measured for row in points]
        measured = {
            BEST_F1: best.measured,
            BEST_ROUND: float(best.client.split()[1]),
            MEAN_F1: float(np.mean(heights)),
            SPREAD: float(np.std(heights)),
        }
        for measure, value in measured.items():
            row = Row(setting.words, "all rounds", method, measure, value, seeds=best.seeds)
            rows.append(replace(row, claimed=claims.get(method, {}).get(measure)))
    return rows


def worst_rows(rows: Sequence[Row]) -> list[Row]:
    """Each method's worst setting, by its best F1 there; none where there is but one setting."""
    best = [row for row in rows if row.measure == BEST_F1]
    if len({row.setting for row in best}) < 2:
        return []
    lowest = {
        method: min((row for row in best if row.method == method), key=lambda row: row.measured)
        for method in dict.fromkeys(row.method for row in best)
    }
    return [
        Row("worst of all", row.setting, m, BEST_F1, row.measured, claimed=WORST.get(m),
            seeds=row.seeds)
        for m, row in lowest.items()
    ]  # fmt: skip


def _on_the_same(setting: Setting, heard: Sequence[Heard]) -> list[Row]:
    """F1 of ours on the targets that the paper's methods were asked about."""
    asked: dict[int, list[float]] = {}
    for one in heard:
        theirs = {p.target for p in one.points if p.method != OURS}
        for p in one.points:
            if p.method == OURS and p.target in theirs:
                asked.setdefault(p.round, []).append(p.f1)
    measure = "F1, the others' targets"
    return [
        mean_row(setting.words, f"round {t}", OURS, measure, values)
        for t, values in sorted(asked.items())
    ]


EFFECTS = ((0.0, 3.0), (3.0, 4.5), (4.5, np.inf))


def _by_effect(setting: Setting, mine: Sequence[Point]) -> list[Row]:
    """F1 of ours at round 50 by how far the target stands out from a client's other records."""
    at = [p for p in mine if p.round == min(50, max(q.round for q in mine))]
    rows = []
    for low, high in EFFECTS:
        inside = [p.f1 for p in at if low <= p.effect < high]
        if inside:
            label = f"effect {low:g} to {high:g}, round {at[0].round}"
            rows.append(mean_row(setting.words, label, OURS, "F1 by effect size", inside))
    return rows


def reliability(words: str, points: Sequence[Point]) -> list[Row]:
    """In each bin of the probability that ours gave, the share of clients that had the property."""
    given = np.concatenate([point.probabilities for point in points])
    real = np.concatenate([point.positive for point in points])
    return reliability_rows(words, OURS, given, real, "clients")
