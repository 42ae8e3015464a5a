"""The tables of docs/benchmarks.md, made from benchmarks/results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results.json"
MET = {True: "yes", False: "**no**", None: ""}


def results() -> dict[str, Any]:
    """What the last full run measured."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def speed_table() -> str:
    """Every comparison: ratio with spread, goal, memory; then what to know, where it was missed."""
    content = results()
    rows = [
        (
            row["what"],
            row["opponent"],
            *(_measured(row) if not row["skipped"] else (f"not run: {row['skipped']}", "", "", "")),
            MET[row["met"]],
        )
        for row in content["comparisons"]
    ]
    heads = ["what", "opponent", "times faster (spread)", "goal", "possible", "peak MB", "met"]
    lines = [_table(heads, rows), "", *_about(content), ""]
    missed = [r for r in content["comparisons"] if r["met"] is False and (r["note"] or r["checks"])]
    for row in missed:
        lines += [f"**{row['entry']}, {row['opponent']}.** {row['note']}{_broken(row)}", ""]
    return "\n".join(lines).rstrip()


def growth_table() -> str:
    """Every growth curve: exponents beside those expected, the picture, and why."""
    lines = []
    curves = results()["growth"]
    rows = [
        (
            f"[{row['what']}](#growth-{row['growth']})",
            row["axis"],
            f"{_short(row['points'][0][row['axis']])} to {_short(row['points'][-1][row['axis']])}",
            _exponent(row["time_exponent"], row["time_expected"]),
            _exponent(row["memory_exponent"], row["memory_expected"]),
            _gigabytes(row),
            MET[row["met"]],
        )
        for row in curves
    ]
    heads = ["what", "against", "from - to", "time", "memory", "peak", "as expected"]
    lines += [_table(heads, rows), ""]
    for row in curves:
        lines += [f"### {row['what']} {{#growth-{row['growth']}}}", "", row["why"], ""]
        lines += [f"![{row['growth']}](assets/benchmarks/growth-{row['growth']}.svg)", ""]
    return "\n".join(lines).rstrip()


def pictures() -> dict[str, str]:
    """The pictures of the growth curves by their places in the site."""
    return {
        f"assets/benchmarks/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(RESULTS.parent.glob("growth-*.svg"))
    }


def _measured(row: dict[str, Any]) -> tuple[str, str, str, str]:
    if row["seconds_more_allowed"] is not None:
        ratio, goal = f"{row['seconds_more']:+.3f} s", f"≤ +{row['seconds_more_allowed']:g} s"
    else:
        ratio = f"{_times(row['ratio'])} ({_times(row['lowest'])} - {_times(row['highest'])})"
        goal = f"≥ {row['goal']:,g}" if row["goal"] else ""
    possible = _times(row["ratio_at_the_limit"]) if "limit" in row else ""
    memory = f"{row['ours']['peak_mb']:.0f} / {row['theirs']['peak_mb']:.0f}"
    return ratio, goal, possible, memory


def _about(content: dict[str, Any]) -> list[str]:
    machine = content["machine"]
    told = (
        f"Measured {content['repeats']} times each, in turn, on {machine['processors']} processors "
        f"({machine['processor']}), Python {machine['python']}, numpy {machine['numpy']}, torch "
        f"{machine['torch']}."
    )
    return [" ".join([told, *content["notes"]])]


def _broken(row: dict[str, Any]) -> str:
    broken = [says for says, held in row["checks"].items() if not held]
    return "".join(f" Did not hold: {says}." for says in broken)


def _exponent(found: float, expected: float | None) -> str:
    return f"{found:.2f}" + ("" if expected is None else f" (≤ {expected:g})")


def _gigabytes(row: dict[str, Any]) -> str:
    most = f" (≤ {row['most_gigabytes']:g})" if row["most_gigabytes"] else ""
    return f"{row['peak_gigabytes']:.2f} GB{most}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _short(number: int) -> str:
    return f"{number:,}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
