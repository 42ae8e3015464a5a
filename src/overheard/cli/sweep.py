"""``overheard sweep`` and ``overheard frontier``: which setting leaks how much, at what price?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from overheard import terminal
from overheard.cli.options import argument, option, taking


@dataclass(frozen=True)
class Options:
    config: Path = argument("TOML file that describes the sweep.")
    out: Path = option("Folder of the results; an unfinished one goes on.")
    workers: int = option("Processes, one thread each.", 1)
    ray: str = option("Address of a Ray cluster to run on instead.", "")
    again: bool = option("Run cells that failed, or of another version, again.", False, "--again")


@taking(Options)
def sweep(options: Options) -> None:
    """Record and audit a grid of federations; killed at any moment, the same command goes on."""
    from overheard.sweep.grid import read_sweep
    from overheard.sweep.run import sweep as run
    from overheard.sweep.table import read_rows, write_table

    described, out = read_sweep(options.config), options.out
    with terminal.steps("cells") as show:
        run(described, out, options.workers, options.ray, options.again, show)
    rows = read_rows(out)
    failed = {row["cell"]: row["error"] for row in rows if row["error"]}
    for key, error in failed.items():
        terminal.complain(f"failed: cell {key}: {error}")
    path = write_table(out)
    terminal.wrote("table", path)
    terminal.say(f"next       overheard frontier {out}")
    terminal.emit({"table": str(path), "cells": len({r["cell"] for r in rows}), "failed": failed})


def frontier(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    out: Annotated[
        Path | None, typer.Option(help="The picture (SVG); default: in the sweep's folder.")
    ] = None,
) -> None:
    """Draw leakage against utility, per defence, and say which settings are not dominated."""
    from overheard.files import replace_durably
    from overheard.sweep.frontier import draw
    from overheard.sweep.frontier import frontier as points_of
    from overheard.sweep.table import read_described, read_rows

    points = points_of(read_rows(folder))
    columns = "secret,setting,worst attack,lift,bits a record,utility,not dominated".split(",")
    terminal.table(
        columns,
        [
            (
                point.attribute or "membership",
                point.name,
                point.attack,
                f"{point.leakage:.3f} ± {point.leakage_spread:.3f}",
                "" if point.bits is None else f"{point.bits:.3f}",
                f"{point.utility:.3f} ± {point.utility_spread:.3f}",
                "decoder failed" if point.doubtful else "yes" if point.best else "",
            )
            for point in sorted(points, key=lambda p: (p.attribute, -p.utility, p.leakage))
        ],
    )
    picture = out or folder / "frontier.svg"
    replace_durably(picture, draw(points, folder.name).encode())
    terminal.wrote("picture", picture)
    terminal.emit(
        {
            "picture": str(picture),
            "sweep": read_described(folder).model_dump(mode="json"),
            "command": f"overheard sweep {folder.name}.toml --out {folder.name}",
            "points": [asdict(point) for point in points],
        }
    )
