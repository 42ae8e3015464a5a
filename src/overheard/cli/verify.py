"""``overheard verify``: is every byte of a recording as it was written?"""

from __future__ import annotations

import typer

from overheard import terminal
from overheard.cli.options import NoSeed, Run


def verify(run: Run, seed: NoSeed = None) -> None:
    """Check every byte of a recording against its index; exit 1 if anything is wrong."""
    from overheard.transcript.verify import verify as check

    with terminal.waiting("checking every byte"):
        found = check(run)
    for line in found.problems:
        terminal.complain(f"damaged: {line}")
    for line in found.unfinished:
        terminal.complain(f"unfinished: {line}")
    state = "sound" if found.sound else "damaged" if found.problems else "unfinished"
    terminal.say(f"{run}: {state} ({found.files} files, {found.rounds} rounds)")
    terminal.emit({"recording": str(run), "state": state, "problems": list(found.problems)})
    if not found.sound:
        raise typer.Exit(1)
