"""Pictures like the papers': methods by client, and lines over a size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from overheard.plot import COLOURS, GREY, Axis, Panel, Series, figure
from papers.common.rows import Reproduction, Row

Draw = Callable[[Reproduction, Path], None]
Looks = dict[str, dict[str, Any]]
"""Name, colour and shape of every method, the same in all panels of a picture."""


def looks(rows: Iterable[Row]) -> Looks:
    """Shapes and colours take turns of different lengths."""
    methods = dict.fromkeys(row.method for row in rows)
    return {
        name: {"name": name, "colour": COLOURS[i % 8], "mark": i % 6, "hollow": i % 12 >= 6}
        for i, name in enumerate(methods)
    }


def marks(measure: str = "accuracy", label: str = "") -> Draw:
    """A panel per setting: a mark per client and method, grey the majority, a stroke the claim."""

    def panel(here: Sequence[Row], known: Looks) -> Panel:
        clients = list(dict.fromkeys(r.client for r in here))
        methods = list(dict.fromkeys(r.method for r in here))
        guesses = {clients.index(r.client): r.majority for r in here if r.majority is not None}
        lines = [(at - 0.4, share, at + 0.4, share) for at, share in guesses.items()]
        series = [Series(name="majority", colour=GREY, strokes=lines)] if lines else []
        for rank, method in enumerate(methods):
            mine = [r for r in here if r.method == method]
            aside = 0.7 * ((rank + 0.5) / len(methods) - 0.5)
            x = [clients.index(r.client) + aside for r in mine]
            claims = [
                (at - 0.06, r.claimed, at + 0.06, r.claimed)
                for at, r in zip(x, mine, strict=True)
                if r.claimed is not None
            ]
            y = [r.measured for r in mine]
            series.append(Series(x, y, **known[method], strokes=claims, thick=2.2))
        title = f"{here[0].setting} (stroke: claimed)"
        return Panel(series, Axis(ticks=list(enumerate(clients))), Axis(label or measure), title)

    return _drawing(panel, measure)


def curves(label: str, measure: str = "", log: bool = False, line: str = "solid") -> Draw:
    """A panel per setting: a line per method over the number in the client's name, with intervals
    and the majority."""

    def panel(here: Sequence[Row], known: Looks) -> Panel:
        series = []
        for method in dict.fromkeys(r.method for r in here):
            mine = sorted((r for r in here if r.method == method), key=number)
            x, y = [number(r) for r in mine], [r.measured for r in mine]
            spans = [
                (at, r.low, at, r.high)
                for at, r in zip(x, mine, strict=True)
                if r.low is not None and r.high is not None
            ]
            series.append(Series(x, y, **known[method], line=line, strokes=spans))
        guesses = sorted({(number(r), r.majority) for r in here if r.majority is not None})
        if guesses:
            x, y = [at for at, _ in guesses], [share for _, share in guesses]
            series.append(Series(x, y, "majority", GREY, "dashed"))
        return Panel(series, Axis(label, log=log), Axis(here[0].measure), here[0].setting)

    return _drawing(panel, measure)


def number(row: Row) -> float:
    """The first number in the name of its client: "round 10", "50 records"."""
    found = re.search(r"\d[\d.]*(?:e[-+]?\d+)?", row.client)
    assert found is not None, f"no number in {row.client!r}"
    return float(found[0])


def _drawing(panel: Callable[[Sequence[Row], Looks], Panel], measure: str) -> Draw:
    def draw(outcome: Reproduction, path: Path) -> None:
        rows = [r for r in outcome.rows if measure in ("", r.measure)]
        settings = dict.fromkeys(r.setting for r in rows)
        panels = [panel([r for r in rows if r.setting == s], looks(rows)) for s in settings]
        path.write_text(figure(panels, size=(620, 220)), encoding="utf-8")

    return draw
