"""The frontier as a picture: a panel per secret, leakage to the right, utility upwards."""

from __future__ import annotations

from collections.abc import Sequence

from overheard.plot import COLOURS, Axis, Panel, Series, figure
from overheard.sweep.frontier import Point


def draw(points: Sequence[Point], title: str = "") -> str:
    """An SVG; defences differ by mark and colour, the frontier is the line."""
    secrets = list(dict.fromkeys(p.attribute for p in points))
    defences = list(dict.fromkeys(p.defence for p in points))
    panels = [_panel([p for p in points if p.attribute == secret], defences) for secret in secrets]
    return figure(panels, title, columns=max(len(panels), 1), size=(340, 280))


def _panel(mine: Sequence[Point], defences: Sequence[str]) -> Panel:
    best = sorted((p for p in mine if p.best), key=lambda p: p.leakage)
    series = [
        Series(
            [p.leakage for p in best],
            [p.utility for p in best],
            colour="#000000",
            line="solid",
            width=0.8,
        )
    ]
    for number, defence in enumerate(defences):
        these = [p for p in mine if p.defence == defence]
        series.append(
            Series(
                [p.leakage for p in these],
                [p.utility for p in these],
                defence,
                COLOURS[number % 7],
                mark=number,
                hollow=number % 12 >= 6,  # the shapes begin again
                x_spread=[p.leakage_spread for p in these],
                y_spread=[p.utility_spread for p in these],
            )
        )
    return Panel(
        series,
        Axis("leakage: lift over the best guess"),
        Axis(f"utility: {mine[0].utility_is} of the global model"),
        mine[0].attribute or "membership",
    )
