"""The comparisons and growth curves as experiments, and the tables that show them."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

from experiments.pages import table
from experiments.runner import Cell, Experiment, Result, cell, results
from experiments.speed import decoding, growth, local_model, recordings, simulation, sums
from experiments.speed.measure import Comparison, Growth, compared, exponent, grown

REPEATS = 3
SLACK = 0.15
"""How far a fitted exponent may exceed the expected one: curves of few noisy points."""
MODULES = (simulation, local_model, decoding, sums, recordings)
LINES: Mapping[str, Comparison] = {line.name: line for m in MODULES for line in m.LINES}
CURVES: Mapping[str, Growth] = {curve.name: curve for curve in growth.CURVES}


def _compared(each: Cell) -> dict[str, Any]:
    """What was compared, and where it ran, as far as ratios depend on it."""
    software = {"python": platform.python_version(), **{n: version(n) for n in ("numpy", "torch")}}
    return compared(LINES[each["line"]], each["sizes"] == "small") | software


def _grown(each: Cell) -> dict[str, Any]:
    return grown(CURVES[each["curve"]], each["size"])


def _comparisons() -> list[Cell]:
    full = [(name, turn) for turn in range(REPEATS) for name in LINES]
    small = [cell(line=name, sizes="small", quick=True, cost=5) for name in LINES]
    return small + [cell(line=name, sizes="full", seed=turn, cost=60) for name, turn in full]


def _points() -> list[Cell]:
    return [
        cell(curve=curve.name, size=size, quick=size == curve.points[0], cost=min(size, 300))
        for curve in CURVES.values()
        for size in curve.points
    ]


EXPERIMENTS = (
    Experiment("speed", "ours against opponents, in turn", _compared, _comparisons, alone=True),
    Experiment("speed-growth", "time and memory against sizes", _grown, _points, alone=True),
)


# ------------------------------------------------------------------------------------- for readers


def speed_table() -> str:
    """Every comparison: ratio with spread, the ratio that is possible, and goal."""
    there = [r for r in results("speed") if r.setting["sizes"] == "full"]
    mine = {name: [r for r in there if r.setting["line"] == name] for name in LINES}
    rows = [_line(line, mine[name]) for name, line in LINES.items()]
    heads = ["what", "alternative", "times faster (spread)", "possible", "goal"]
    commits = sorted({r.commit for r in there if r.commit})
    return table(heads, rows) + f"\n\nMeasured in turn, at {', '.join(commits)}."


def _line(line: Comparison, found: Sequence[Result]) -> list[str]:
    values = [r.values for r in found if "ratio" in r.values]
    goal = f"≥ {line.goal:,g}" if line.goal else ""
    if not values:
        why = next((r.values["skipped"] for r in found), "not yet")
        return [line.what, line.theirs.name, f"not run: {why}", "", goal]
    ratios = [v["ratio"] for v in values]
    spread = f"{_times(median(ratios))} ({_times(min(ratios))} - {_times(max(ratios))})"
    possible = _times(median(v["possible"] for v in values)) if line.limit else ""
    met = median(ratios) >= line.goal and all(v["holds"] for v in values)
    missed = "" if met or not goal else " **missed**"
    return [line.what, line.theirs.name, spread, possible, goal + missed]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def growth_table() -> str:
    """Every growth curve: exponents beside those expected, and the memory at its end."""
    rows = []
    for curve in CURVES.values():
        here = [r.values for r in results("speed-growth") if r.setting["curve"] == curve.name]
        here = sorted((v for v in here if v["size"] in curve.points), key=lambda v: v["size"])
        if len(here) < len(curve.points):
            rows.append([curve.what, f"{curve.axis}: not run", "", ""])
            continue
        sizes = [v["size"] for v in here]
        expected = {"cpu": curve.time, "extra_mb": curve.memory}
        found = {name: exponent(sizes, [v[name] for v in here]) for name in expected}
        told = [
            f"{found[name]:.2f} ({'≤' if found[name] <= most + SLACK else '**not** ≤'} {most:g})"
            for name, most in expected.items()
        ]
        most = max(v["peak_mb"] for v in here) / 1024
        bound = f" ({'≤' if most <= curve.peak else '**not** ≤'} {curve.peak:g})"
        peak = f"{most:.2f} GB{bound if curve.peak else ''}"
        rows.append([curve.what, f"{curve.axis}, {sizes[0]:,} to {sizes[-1]:,}", *told, peak])
    return table(["what", "against", "time", "memory", "peak"], rows)


TABLES = {"speeds": speed_table, "growth": growth_table}
