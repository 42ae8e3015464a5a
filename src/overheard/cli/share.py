"""``overheard share``: what may be handed on of a recording, for one target."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from overheard import terminal
from overheard.cli.options import Grant, NoSeed, Run, option, taking


@dataclass(frozen=True)
class Options:
    run: Run
    target: str = option("The one secret that may be asked about.")
    out: Path = option("Where to write; must not exist yet.")
    threat: str = option(
        "Who will hold it: eavesdropper, server, isolating-server, ...", "eavesdropper"
    )
    grant: Grant = field(default_factory=list)
    client: list[str] = option("Client whose link to share (repeat); default: all.", list)
    keep: list[str] = option("Column to keep although another target asks about it (repeat).", list)
    seed: NoSeed = None


@taking(Options)
def share(options: Options) -> None:
    """Write what may be handed on of a recording: one target, one threat model, no truth, no seed.

    A recording without `truth/` is not that: each target's public records hold the other secrets.
    What the messages themselves give away stays in them.
    """
    from overheard.transcript.share import share as write
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import granting_named, threat_named

    adversary = granting_named(threat_named(options.threat), options.grant)
    recording, out = Recording.open(options.run), options.out
    with terminal.waiting("copying what may be shared"):
        shared = write(recording, options.target, adversary, out, options.client, options.keep)
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
