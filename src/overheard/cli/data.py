"""``overheard data list``: which sources of records there are."""

from __future__ import annotations

from dataclasses import asdict

import typer

from overheard import terminal

app = typer.Typer(no_args_is_help=True, help="List the data sources.")


@app.callback()
def data() -> None:
    """Without this, typer would take the one command below for `data` itself."""


@app.command("list", epilog="Example: `overheard data list`")
def list_sources() -> None:
    """List the data sources: what, licence, origin, where they are."""
    from overheard.data.source import sources

    known = sources().values()
    terminal.table(
        ["source", "what", "licence", "origin", "where"],
        [(k.name, k.what, k.licence, k.origin, k.where) for k in known],
        wide=True,
    )
    terminal.emit([{**asdict(k), "where": k.where} for k in known])
