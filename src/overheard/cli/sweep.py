"""``overheard sweep`` and ``overheard frontier``: which setting leaks how much, at what price?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from overheard import terminal
from overheard.cli.options import Workers
from overheard.files import replace_durably
from overheard.foreign.shown import command

SETTINGS = "frontier.html"
"""The page of a sweep, in its folder."""


def sweep(
    config: Annotated[
        Path,
        Argument(help="TOML file of a sweep; or a federation's file or a recording (usual grid)."),
    ],
    out: Annotated[Path, Option(help="Folder of the results; an unfinished one goes on.")],
    workers: Workers = "",
    again: Annotated[bool, Option("--again", help="Run cells that failed again.")] = False,
) -> None:
    """Record and audit a grid of federations; the same command continues one that was stopped."""
    from overheard.sweep import grid, run

    described = grid.read_sweep(config)
    with terminal.steps("cells") as show:
        run.sweep(described, out, workers, again, show)
    rows = run.read_rows(out)
    failed = {row["cell"]: row["error"] for row in rows if row["error"]}
    for key, error in failed.items():
        terminal.complain(f"failed: cell {key}: {error}")
    path = run.write_table(out)
    terminal.wrote("table", path)
    terminal.say(f"next       {command('frontier', out)}")
    terminal.emit({"table": str(path), "cells": len({r["cell"] for r in rows}), "failed": failed})


def frontier(
    folder: Annotated[Path, Argument(help="Folder of a sweep.")],
    out: Annotated[
        Path | None, Option(help="The page (HTML); default: in the sweep's folder.")
    ] = None,
) -> None:
    """Compare the settings of a sweep: what leaks, what the model is worth, which to take."""
    from overheard.report.advice import recommended
    from overheard.report.html import render_settings
    from overheard.report.words import over_seeds
    from overheard.sweep.frontier import frontier as points_of
    from overheard.sweep.run import read_described, read_rows

    points = points_of(read_rows(folder))
    rows = []
    for p in sorted(points, key=lambda p: (p.attribute, -p.utility.value, p.leakage.value)):
        state = "decoder failed" if p.doubtful else "recommended" if p.chosen else ""
        promised = "none" if p.epsilon is None else f"{p.epsilon:.3g}"
        majority = "" if p.majority is None else f"{p.majority:.3f}"
        people = "" if p.people is None else f"{p.people:g}"
        figures = over_seeds(p.leakage), people, promised, over_seeds(p.utility), majority
        rows.append((p.attribute or "membership", p.name, p.attack, *figures, state))
    columns = "secret,setting,strongest attack,lift,people known,epsilon of a record's values,"
    columns += f"{points[0].utility_is},majority baseline,"
    terminal.table(columns.split(","), rows)
    advice = recommended(points)
    terminal.say(f"{advice.name}: {advice.why}")
    page = out or folder / SETTINGS
    replace_durably(page, render_settings(points, folder.name).encode())
    terminal.wrote("page", page)
    chosen = next((p.name for p in points if p.chosen), None)
    found = {"page": str(page), "recommended": chosen, "points": [asdict(p) for p in points]}
    terminal.emit(found | {"sweep": read_described(folder).model_dump(mode="json")})
