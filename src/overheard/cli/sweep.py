"""``overheard sweep`` and ``overheard frontier``: which setting leaks how much, at what price?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from overheard import terminal
from overheard.cli.options import Workers
from overheard.files import replace_durably


def sweep(
    config: Annotated[Path, Argument(help="TOML file that describes the sweep.")],
    out: Annotated[Path, Option(help="Folder of the results; an unfinished one goes on.")],
    workers: Workers = "",
    again: Annotated[bool, Option("--again", help="Run cells that failed again.")] = False,
) -> None:
    """Record and audit a grid of federations; killed at any moment, the same command goes on."""
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
    terminal.say(f"next       overheard frontier {out}")
    terminal.emit({"table": str(path), "cells": len({r["cell"] for r in rows}), "failed": failed})


def frontier(
    folder: Annotated[Path, Argument(help="Folder of a sweep.")],
    out: Annotated[
        Path | None, Option(help="The picture (SVG); default: in the sweep's folder.")
    ] = None,
) -> None:
    """Draw leakage against utility, per defence, and say which settings are not dominated."""
    from overheard.sweep.frontier import draw
    from overheard.sweep.frontier import frontier as points_of
    from overheard.sweep.run import read_described, read_rows

    points, rows = points_of(read_rows(folder)), []
    for p in sorted(points, key=lambda p: (p.attribute, -p.utility, p.leakage)):
        lift, bits = f"{p.leakage:.3f} ± {p.leakage_spread:.3f}", f"{p.bits or 0:.3f}"
        utility = f"{p.utility:.3f} ± {p.utility_spread:.3f}"
        state = "decoder failed" if p.doubtful else "yes" if p.best else ""
        known = "" if p.bits is None else bits
        rows.append((p.attribute or "membership", p.name, p.attack, lift, known, utility, state))
    columns = "secret,setting,worst attack,lift,bits a record,utility,not dominated"
    terminal.table(columns.split(","), rows)
    picture = out or folder / "frontier.svg"
    replace_durably(picture, draw(points, folder.name).encode())
    terminal.wrote("picture", picture)
    command = f"overheard sweep {folder.name}.toml --out {folder.name}"
    about = {"command": command, "sweep": read_described(folder).model_dump(mode="json")}
    terminal.emit({"picture": str(picture), "points": [asdict(p) for p in points], **about})
