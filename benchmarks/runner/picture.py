"""A growth curve as a picture: time and memory against size, all logarithmic."""

from __future__ import annotations

from typing import Any

from overheard.plot import COLOURS, Axis, Panel, Series, figure


def draw(row: dict[str, Any]) -> str:
    """An SVG with the points and, dashed, the power law fitted to them."""
    panels = [
        _panel(row, "cpu", "processor seconds", "time", COLOURS[0]),
        _panel(row, "extra_mb", "memory beyond the start (MB)", "memory", COLOURS[1]),
    ]
    return figure(panels, row["what"], size=(400, 200))


def _panel(row: dict[str, Any], field: str, label: str, kind: str, colour: str) -> Panel:
    slope, expected = row[f"{kind}_exponent"], row[f"{kind}_expected"]
    sizes = [point[row["axis"]] for point in row["points"]]
    values = [max(point[field], 1e-3) for point in row["points"]]
    middle = len(sizes) // 2
    fitted = [values[middle] * (size / sizes[middle]) ** slope for size in sizes]
    told = f"exponent {slope:.2f}" + ("" if expected is None else f", expected ≤ {expected:g}")
    series = [
        Series(sizes, fitted, colour="#555555", line="dashed", width=0.9),
        Series(sizes, values, colour=colour, line="solid", mark=0),
    ]
    return Panel(series, Axis(row["axis"], log=True), Axis(label, log=True), told)
