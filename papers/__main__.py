"""``python -m papers NAME``: run a paper's experiment again; without NAME, which there are.

``python -m papers fetch SOURCE`` brings a source's files. Any of overheard's own commands (`data
list`, `simulate`, `sweep`, ...) may follow too: the papers' data sources are known there.
"""

from __future__ import annotations

import sys

import typer

from overheard import cli, terminal
from overheard.data.source import source_named
from overheard.errors import OverheardError
from papers.command import app
from papers.data.files import fetch

if __name__ == "__main__":
    ours = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    if sys.argv[1:2] == ["fetch"] and len(sys.argv) == 3:
        try:
            terminal.say(fetch(source_named(sys.argv[2])))
        except OverheardError as error:
            sys.exit(f"error: {error}")
    elif sys.argv[1:] and sys.argv[1] in ours:
        cli.main()
    else:
        cli.run(app, "python -m papers")
