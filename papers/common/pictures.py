"""Pictures like the papers': methods by client, and lines over a size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import log10
from pathlib import Path

from markupsafe import Markup

from overheard.report.svg import Mark, Plane, Scale, look, number_scale, picture
from papers.common.rows import Reproduction, Row

Draw = Callable[[Reproduction, Path], None]
Looks = Sequence[str]
"""The methods: one has the same shape and colour in all panels of a picture."""


def marks(measure: str = "accuracy", label: str = "") -> Draw:
    """A panel per setting: a mark per client and method, a stroke the claim."""

    def panel(here: Sequence[Row], methods: Looks) -> tuple[str, Markup]:
        clients = list(dict.fromkeys(r.client for r in here))
        x = Scale(-0.5, len(clients) - 0.5)
        y = number_scale(_values(here))
        plane = Plane(x, y, list(enumerate(clients)), y.ticks())
        dots = []
        for row in here:
            at, rank = clients.index(row.client), methods.index(row.method)
            if row.majority is not None:
                plane.segment((at - 0.4, at + 0.4), (row.majority, row.majority), "majority")
            place = at + 0.7 * ((rank + 0.5) / len(methods) - 0.5)
            if row.claimed is not None:
                ends = (place - 0.06, place + 0.06)
                plane.segment(ends, (row.claimed, row.claimed), f"interval {look(rank)}")
            dots.append(_mark(place, row, rank))
        caption = f"{here[0].setting}: {label or measure} (stroke: claimed, line: majority)"
        return caption, plane.drawn(caption, dots)

    return _drawing(panel, measure)


def curves(label: str, measure: str = "", log: bool = False, line: str = "solid") -> Draw:
    """A panel per setting: a line per method over the number in the client's name, with intervals
    and the majority."""

    def panel(here: Sequence[Row], methods: Looks) -> tuple[str, Markup]:
        sizes = [number(r) for r in here]
        y = number_scale(_values(here))
        x = Scale(log10(min(sizes)), log10(max(sizes)) + 1e-9, log=True) if log else None
        x = x or number_scale(sizes)
        shown = x.ticks() if not log else [(size, f"{size:g}") for size in sorted(set(sizes))]
        plane = Plane(x, y, shown, y.ticks())
        dots = []
        for rank, method in enumerate(methods):
            mine = sorted((r for r in here if r.method == method), key=number)
            if line:
                plane.join([(number(r), r.measured) for r in mine], f"end {look(rank)}")
            dots += [_mark(number(r), r, rank) for r in mine]
        guesses = sorted({(number(r), r.majority) for r in here if r.majority is not None})
        plane.join(guesses, "limit")
        caption = f"{here[0].setting}: {here[0].measure} by {label}"
        return caption, plane.drawn(caption, dots)

    return _drawing(panel, measure)


def _mark(at: float, row: Row, rank: int) -> Mark:
    low, high = (row.measured if end is None else end for end in (row.low, row.high))
    return Mark(at, row.measured, low, high, f"{row.method}, {row.client}: {row.measured:g}", rank)


def _values(rows: Sequence[Row]) -> list[float]:
    ends = ((r.measured, r.low, r.high, r.claimed, r.majority) for r in rows)
    return [value for row in ends for value in row if value is not None]


def number(row: Row) -> float:
    """The first number in the name of its client: "round 10", "50 records"."""
    found = re.search(r"\d[\d.]*(?:e[-+]?\d+)?", row.client)
    assert found is not None, f"no number in {row.client!r}"
    return float(found[0])


def _drawing(panel: Callable[[Sequence[Row], Looks], tuple[str, Markup]], measure: str) -> Draw:
    def draw(outcome: Reproduction, path: Path) -> None:
        rows = [r for r in outcome.rows if measure in ("", r.measure)]
        methods = list(dict.fromkeys(r.method for r in rows))
        settings = dict.fromkeys(r.setting for r in rows)
        panels = [panel([r for r in rows if r.setting == s], methods) for s in settings]
        path.write_text(picture(path.stem, panels, methods), encoding="utf-8")

    return draw
