"""``python -m papers``: which experiments there are, and running one of them again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from overheard import terminal

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(epilog="Example: `python -m papers xu2021-table1 --out papers/xu2021 --quick`")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Experiment; leave out for the list.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for NAME.json and NAME.svg.")] = Path(
        "papers-out"
    ),
    quick: Annotated[bool, typer.Option(help="A small version that ends within a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Repetitions; default: the paper's.")] = None,
    dataset: Annotated[str, typer.Option(help="Only on this data (kerkouche2023).")] = "",
    size: Annotated[int, typer.Option(min=0, help="Records of a client (kerkouche2023).")] = 0,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds to record (kerkouche2023).")] = 0,
    shadows: Annotated[
        int | None,
        typer.Option(min=0, help="Simulated updates a round; 0: ours alone (kerkouche2023)."),
    ] = None,
    clients: Annotated[int, typer.Option(min=0, help="How many (kerkouche2023).")] = 0,
    every: Annotated[int, typer.Option(min=0, help="Rounds between points (kerkouche2023).")] = 0,
) -> None:
    """Run a paper's experiment again and write claimed beside measured numbers."""
    from papers.common.catalogue import experiment_named, experiments
    from papers.common.rows import Choice, free_paths, write_reproduction

    if name is None:
        known = list(experiments().values())
        terminal.table(
            ["experiment", "paper", "what it shows"], [(e.name, e.paper, e.words) for e in known]
        )
        terminal.emit([{"name": e.name, "paper": e.paper, "words": e.words} for e in known])
        return
    experiment = experiment_named(name)
    free_paths(experiment.name, out)  # said before the work, not after
    with terminal.steps(f"{name}:") as show:
        part = Choice(dataset, size, rounds, shadows, clients, every)
        outcome = experiment.measure(quick, seeds or experiment.seeds, show, part)
    paths = write_reproduction(experiment, outcome, out)
    rows = []
    for row in outcome.rows:
        span = "" if row.low is None or row.high is None else f"{row.low:.3g} - {row.high:.3g}"
        claimed = "" if row.claimed is None else f"{row.claimed:.3g}"
        cells = (row.setting, row.client, row.method, row.measure, claimed)
        rows.append((*cells, f"{row.measured:.4g}", span))
    heads = ["setting", "client", "method", "measure", "claimed", "measured", "interval"]
    terminal.table(heads, rows)
    for note in outcome.notes:
        terminal.say(f"- {note}")
    for path in paths:
        terminal.wrote("wrote", path)
    terminal.emit({"wrote": [str(path) for path in paths]})
