"""Pictures like the papers': methods by client, lines over a size, points over a ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from overheard.plot import COLOURS, GREY, Axis, Panel, Series, figure, placed
from papers.common.rows import Reproduction, Row


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every panel of a picture."""

    colour: str
    mark: int
    hollow: bool


def looks(rows: Sequence[Row]) -> dict[str, Look]:
    """Every method's look; shapes and colours take turns of different lengths."""
    methods = dict.fromkeys(row.method for row in rows)
    return {
        method: Look(COLOURS[i % len(COLOURS)], i % 6, i % 12 >= 6)
        for i, method in enumerate(methods)
    }


def by_client(outcome: Reproduction, path: Path, label: str, measure: str = "accuracy") -> None:
    """One panel per setting: a mark per client and method, claimed numbers as short lines."""
    rows = [r for r in outcome.rows if r.measure == measure]
    known = looks(rows)
    panels = []
    for setting in dict.fromkeys(r.setting for r in rows):
        here = [r for r in rows if r.setting == setting]
        clients = list(dict.fromkeys(r.client for r in here))
        ticks = [(float(at), client) for at, client in enumerate(clients)]
        series = [*_majorities(here, clients), *_marks(here, clients, known)]
        title = f"{setting} (dashed: majority; short line: claimed)"
        panels.append(Panel(series, Axis(ticks=ticks), Axis(label), title))
    _write(panels, path, 230)


def _majorities(here: Sequence[Row], clients: Sequence[str]) -> Iterator[Series]:
    for at, client in enumerate(clients):
        majority = next((r.majority for r in here if r.client == client), None)
        if majority is not None:
            ends = [at - 0.4, at + 0.4]
            yield Series(ends, [majority, majority], colour=GREY, line="dashed", width=1.0)


def _marks(here: Sequence[Row], clients: Sequence[str], known: dict[str, Look]) -> Iterator[Series]:
    methods = list(dict.fromkeys(r.method for r in here))
    for rank, method in enumerate(methods):
        look, mine = known[method], [r for r in here if r.method == method]
        x = [clients.index(r.client) + placed(rank, len(methods)) for r in mine]
        for at, row in zip(x, mine, strict=True):
            if row.claimed is not None:
                ends = [at - 0.06, at + 0.06]
                yield Series(ends, [row.claimed] * 2, colour=look.colour, line="solid", width=2.2)
        yield Series(
            x, [r.measured for r in mine], method, look.colour, mark=look.mark, hollow=look.hollow
        )


def lines(
    outcome: Reproduction, path: Path, x: Callable[[Row], float], label: str, log: bool = False
) -> None:
    """One panel per setting: a line per method over ``x``, with intervals and the majority."""
    known = looks(outcome.rows)
    panels = []
    for setting in dict.fromkeys(r.setting for r in outcome.rows):
        here = [r for r in outcome.rows if r.setting == setting]
        series = []
        for method in dict.fromkeys(r.method for r in here):
            mine = sorted((r for r in here if r.method == method), key=x)
            look = known[method]
            series.append(
                Series(
                    [x(r) for r in mine],
                    [r.measured for r in mine],
                    method,
                    look.colour,
                    "solid",
                    look.mark,
                    look.hollow,
                    low=[r.measured if r.low is None else r.low for r in mine],
                    high=[r.measured if r.high is None else r.high for r in mine],
                )
            )
        majority = sorted({(x(r), r.majority) for r in here if r.majority is not None})
        if majority:
            at, value = zip(*majority, strict=True)
            series.append(Series(at, value, "majority", GREY, "dashed"))
        panels.append(Panel(series, Axis(label, log=log), Axis(here[0].measure), setting))
    _write(panels, path, 210)


def scatter(
    outcome: Reproduction, path: Path, x: Callable[[Row], float], label: str, log: bool = False
) -> None:
    """A point per row."""
    series = []
    for method, look in looks(outcome.rows).items():
        mine = [r for r in outcome.rows if r.method == method]
        at, value = [x(r) for r in mine], [r.measured for r in mine]
        series.append(Series(at, value, method, look.colour, mark=look.mark, hollow=look.hollow))
    _write([Panel(series, Axis(label, log=log), Axis(outcome.rows[0].measure))], path, 260)


def _write(panels: Sequence[Panel], path: Path, height: int) -> None:
    path.write_text(figure(panels, size=(620, height)), encoding="utf-8")
