"""Recordings: ``overheard simulate``, ``import``, ``verify`` and ``share``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

import overheard
from overheard import terminal
from overheard.cli.options import Config, Grant, Out, Run, Seed, Threat
from overheard.foreign.shown import command


def simulate(config: Config, out: Out, seed: Seed = None) -> None:
    """Run a federation on this machine and record everything that it sends."""
    record(overheard.read_config(config), out, seed)
    terminal.wrote("recording", out)
    terminal.say("next       " + command("audit", out, "--out", f"{out}-audit"))
    terminal.emit({"recording": str(out)})


def record(federation: overheard.Federation, out: Path, seed: int | None) -> overheard.Federation:
    """Simulate the federation, with another seed if one is given; returns what was simulated."""
    if seed is not None:
        federation = federation.model_copy(update={"seed": seed})
    with terminal.waiting("reading the data"):
        ready = overheard.plan(federation)
    sizes, program = [len(records) for records in ready.clients.values()], ready.program
    inputs = list(dict.fromkeys(program.encoding.columns()))
    terminal.say(
        f"read       {ready.dataset.origin}: {sum(sizes):,} records of {len(sizes)} clients "
        f"({min(sizes):,} to {max(sizes):,} each)",
        f"predicts   {program.target.column} from {', '.join(inputs)}",
        f"secrets    {', '.join(ready.attributes) or 'none'}",
    )
    with terminal.steps("recording rounds") as show:
        overheard.simulate(ready, out, lambda done, total: show("", done, total))
    return federation


def import_checkpoints(
    folder: Annotated[Path, Argument(help="Folder of safetensors checkpoints.")],
    out: Out,
    pattern: Annotated[Path | None, Option(help="TOML file that says how files are named.")] = None,
) -> None:
    """Make a recording of a folder of checkpoints.

    Without a pattern: sent = "round_{round}/global.safetensors", returned =
    "round_{round}/{client}.safetensors". A pattern may also set sent_is = "after" (the global file
    is the round's result), payload and [weights].
    """
    from overheard.recorders.folder import import_folder, read_pattern

    with terminal.waiting("reading checkpoints"):
        rounds = import_folder(folder, out, None if pattern is None else read_pattern(pattern))
    terminal.wrote("recording", out)
    terminal.say(f"rounds     {rounds}", f"next       {command('init', out)}")
    terminal.emit({"recording": str(out), "rounds": rounds})


def verify(run: Run) -> None:
    """Check every byte of a recording against its index; exit 1 if anything is wrong."""
    with terminal.waiting("checking every byte"):
        found = overheard.verify(run)
    for line in found.problems:
        terminal.complain(f"damaged: {line}")
    for line in found.unfinished:
        terminal.complain(f"unfinished: {line}")
    state = "sound" if found.sound else "damaged" if found.problems else "unfinished"
    terminal.say(f"{run}: {state} ({found.files} files, {found.rounds} rounds)")
    terminal.emit({"recording": str(run), "state": state, "problems": list(found.problems)})
    if not found.sound:
        raise Exit(1)


def share(
    run: Run,
    target: Annotated[str, Option(help="The one secret that may be asked about.")],
    out: Out,
    threat: Threat = "eavesdropper",
    grant: Grant = [],
    client: Annotated[
        list[str], Option(help="Client whose link to share (repeat); default: all.")
    ] = [],
    keep: Annotated[
        list[str], Option(help="Column to keep although another target asks about it (repeat).")
    ] = [],
) -> None:
    """Write what may be handed on of a recording: one target, one threat model, no truth, no seed.

    Deleting `truth/` is not enough: each target's public records hold the other secrets.
    What the messages themselves give away stays in them.
    """
    who = overheard.threat_named(threat, grant)
    with terminal.waiting("copying what may be shared"):
        shared = overheard.share(overheard.Recording.open(run), target, who, out, client, keep)
    terminal.wrote("shared", out)
    terminal.say(f"holds      {', '.join(shared.kinds) or 'no side knowledge'}")
    terminal.say(f"clients    {len(shared.clients)}")
    for remark in shared.remarks:
        terminal.complain(f"note: {remark}")
    terminal.emit(asdict(shared) | {"shared": str(out), "holds": shared.kinds})
