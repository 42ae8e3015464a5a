"""The tables of docs/benchmarks.md, made from benchmarks/results.json."""

from __future__ import annotations

import json
from typing import Any

from pages import ROOT, table

RESULTS = ROOT / "benchmarks" / "results.json"
MET = {True: "yes", False: "**no**", None: ""}


def results() -> dict[str, Any]:
    """What the last full run measured."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def speed_table() -> str:
    """Every comparison: ratio with spread, goal, memory; then the machine."""
    content = results()
    machine = content["machine"]
    told = (
        f"Measured {content['repeats']} times each, in turn, on {machine['processors']} processors "
        f"({machine['processor']}), Python {machine['python']}, numpy {machine['numpy']}, torch "
        f"{machine['torch']}."
    )
    heads = ["what", "opponent", "times faster (spread)", "goal", "possible", "peak MB", "met"]
    lines = [table(heads, map(_compared, content["comparisons"])), ""]
    return "\n".join([*lines, " ".join([told, *content["notes"]])])


def _compared(row: dict[str, Any]) -> list[str]:
    if row["skipped"]:
        return [row["what"], row["opponent"], f"not run: {row['skipped']}", *[""] * 4]
    if row["seconds_more_allowed"] is not None:
        ratio, goal = f"{row['seconds_more']:+.3f} s", f"≤ +{row['seconds_more_allowed']:g} s"
    else:
        ratio = f"{_times(row['ratio'])} ({_times(row['lowest'])} - {_times(row['highest'])})"
        goal = f"≥ {row['goal']:,g}" if row["goal"] else ""
    possible = _times(row["ratio_at_the_limit"]) if "limit" in row else ""
    memory = f"{row['ours']['peak_mb']:.0f} / {row['theirs']['peak_mb']:.0f}"
    return [row["what"], row["opponent"], ratio, goal, possible, memory, MET[row["met"]]]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def growth_table() -> str:
    """Every growth curve: exponents beside those expected, and the memory at its end."""
    rows = []
    for row in results()["growth"]:
        ends = [f"{row['points'][at][row['axis']]:,}" for at in (0, -1)]
        exponents = [
            f"{row[f'{what}_exponent']:.2f} (≤ {row[f'{what}_expected']:g})"
            for what in ("time", "memory")
        ]
        peak = f"{row['peak_gigabytes']:.2f} GB"
        rows.append([row["what"], row["axis"], " to ".join(ends), *exponents, peak])
    return table(["what", "against", "from - to", "time", "memory", "peak"], rows)
