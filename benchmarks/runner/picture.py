"""A growth curve as a picture: time and memory against size, all logarithmic."""

from __future__ import annotations

import io
from typing import Any

TIME, MEMORY = "#0072B2", "#D55E00"


def draw(row: dict[str, Any]) -> str:
    """An SVG with the points and, dashed, the power law fitted to them."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    sizes = [point[row["axis"]] for point in row["points"]]
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    panels = (
        ("cpu", "processor seconds", row["time_exponent"], row["time_expected"], TIME),
        ("extra_mb", "memory beyond the start (MB)", row["memory_exponent"],
         row["memory_expected"], MEMORY),
    )  # fmt: skip
    for axis, (field, label, slope, expected, colour) in zip(
        figure.subplots(1, 2), panels, strict=True
    ):
        values = [max(point[field], 1e-3) for point in row["points"]]
        axis.loglog(sizes, values, "o-", color=colour, markersize=5)
        middle = len(sizes) // 2
        line = [values[middle] * (size / sizes[middle]) ** slope for size in sizes]
        axis.loglog(sizes, line, "--", color="#555555", lw=0.9)
        told = f"exponent {slope:.2f}" + ("" if expected is None else f", expected ≤ {expected:g}")
        axis.set_title(told, fontsize=9)
        axis.set_xlabel(row["axis"])
        axis.set_ylabel(label)
        axis.grid(True, which="major", lw=0.3)
    figure.suptitle(row["what"], fontsize=10)
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "overheard", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "overheard"})
    return out.getvalue()
