"""``overheard share``: what may be handed on of a recording, for one target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from overheard import terminal


def share(
    run: Annotated[Path, typer.Argument(help="A recording.")],
    target: Annotated[str, typer.Option(help="The one secret that may be asked about.")],
    out: Annotated[Path, typer.Option(help="Where to write; must not exist yet.")],
    threat: Annotated[
        str,
        typer.Option(help="Who will hold it: eavesdropper, server, isolating-server, ..."),
    ] = "eavesdropper",
    grant: Annotated[
        list[str] | None,
        typer.Option(help='Knowledge beyond the threat model (repeat), e.g. "group counts".'),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(help="Client whose link to share (repeat); default: all.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column to keep although another target asks about it (repeat)."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", hidden=True)] = None,
) -> None:
    """Write what may be handed on of a recording: one target, one threat model, no truth, no seed.

    A recording without `truth/` is not that: each target's public records hold the other secrets.
    What the messages themselves give away stays in them.
    """
    from overheard.transcript.share import share as write
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import granting_named, threat_named

    adversary = granting_named(threat_named(threat), grant or [])
    with terminal.waiting("copying what may be shared"):
        shared = write(Recording.open(run), target, adversary, out, client or [], keep or [])
    terminal.wrote("shared", out)
    terminal.say(
        f"holds      {', '.join(shared.kinds) or 'no side knowledge'}",
        f"clients    {len(shared.clients)}",
    )
    for remark in shared.remarks:
        terminal.complain(f"note: {remark}")
    terminal.emit(
        {
            "shared": str(out),
            "holds": list(shared.kinds),
            "clients": list(shared.clients),
            "left_out": list(shared.left_out),
            "remarks": list(shared.remarks),
        }
    )
