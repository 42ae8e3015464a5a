"""The frontier as a picture: a panel per secret, leakage to the right, utility upwards."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from overheard.foreign.shown import visible
from overheard.sweep.frontier import Point

# Names are text: a dollar in one begins no formula, and nothing is handed to TeX.
PEN: Any = {
    "svg.hashsalt": "overheard",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.usetex": False,
}
MARKS = "osD^vP*Xp<>h"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(points: Sequence[Point], title: str = "") -> str:
    """An SVG; defences differ by mark and colour, the frontier is the line."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    points = [_shown(point) for point in points]
    with rc_context(PEN):
        secrets = list(dict.fromkeys(p.attribute for p in points))
        figure = Figure(figsize=(4.6 * len(secrets) + 1.6, 4.2), layout="constrained")
        return _drawn(points, visible(title), secrets, figure)


def _shown(point: Point) -> Point:
    """The point under names that a picture, and a warning about its letters, may hold."""
    return replace(
        point,
        defence=visible(point.defence),
        attribute=visible(point.attribute),
        utility_is=visible(point.utility_is),
    )


def _drawn(points: Sequence[Point], title: str, secrets: list[str], figure: Any) -> str:
    defences = list(dict.fromkeys(p.defence for p in points))
    axes = figure.subplots(1, len(secrets), squeeze=False)[0]
    for axis, secret in zip(axes, secrets, strict=True):
        mine = [p for p in points if p.attribute == secret]
        for number, defence in enumerate(defences):
            these = [p for p in mine if p.defence == defence]
            if these:
                axis.errorbar(
                    [p.leakage for p in these],
                    [p.utility for p in these],
                    xerr=[p.leakage_spread for p in these],
                    yerr=[p.utility_spread for p in these],
                    fmt=MARKS[number % len(MARKS)],
                    color=COLOURS[number % len(COLOURS)],
                    elinewidth=0.6,
                    markersize=5,
                    label=defence,
                )
        best = sorted((p for p in mine if p.best), key=lambda p: p.leakage)
        axis.plot([p.leakage for p in best], [p.utility for p in best], "k-", lw=0.8, zorder=0)
        axis.set_xlabel("leakage: lift over the best guess")
        axis.set_ylabel(f"utility: {mine[0].utility_is} of the global model")
        axis.set_title(secret or "membership", fontsize=10)
    axes[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title:
        figure.suptitle(title, fontsize=11)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "overheard"})
    return out.getvalue()
