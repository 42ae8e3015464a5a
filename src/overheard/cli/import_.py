"""``overheard import``: recordings of federations that ran elsewhere, and what describes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from overheard import terminal
from overheard.cli.options import Out

if TYPE_CHECKING:
    from overheard.transcript.store import Recording


def import_checkpoints(
    folder: Annotated[Path, typer.Argument(help="Folder of safetensors checkpoints.")],
    out: Out,
    pattern: Annotated[
        Path | None,
        typer.Option(
            help="TOML file that says how files are named. Default: sent = "
            '"round_{round}/global.safetensors", returned = '
            '"round_{round}/{client}.safetensors". Also: sent_is = "after" if the global file '
            "is what the round ended in, payload, [weights]."
        ),
    ] = None,
) -> None:
    """Make a recording of a folder of checkpoints."""
    from overheard.recorders.folder import import_folder, read_pattern

    with terminal.waiting("reading checkpoints"):
        rounds = import_folder(folder, out, None if pattern is None else read_pattern(pattern))
    terminal.wrote("recording", out)
    terminal.say(f"rounds     {rounds}", f"next       overheard init {out}")
    terminal.emit({"recording": str(out), "rounds": rounds})


@contextmanager
def described(
    run: Path, given: Path | None, trust_code: bool, work: Path, beside: Path
) -> Iterator[Recording]:
    """The recording; what the TOML file adds lies in ``work`` for the time being.

    ``beside``: the folder that may hold that file; the recording's, or that of the damaged one
    of which ``run`` is what is left.
    """
    import shutil

    from overheard.errors import FixConfig, GrantKnowledge
    from overheard.federation.federation import read_config
    from overheard.foreign.shown import short
    from overheard.recorders.describe import describe
    from overheard.recorders.template import BESIDE
    from overheard.transcript.store import Recording

    recording = Recording.open(run)
    if not recording.rounds:
        raise FixConfig(f"{run}: no round was recorded; there is nothing to audit")
    file = given if given is not None else beside / BESIDE
    if recording.describes_itself:
        if given is not None:
            raise FixConfig(f"{run}: describes itself already; leave --with {given} out")
        yield recording
        return
    if given is None and not file.is_file():
        raise FixConfig(
            f"{run}: has no training recipe, without which nothing can be scored; `overheard init "
            f"{run}` writes {file} for you to fill in"
        )
    folder = work / "described"
    shutil.rmtree(folder, ignore_errors=True)  # of an audit that was stopped here
    description = read_config(file, recorded=True, confined=given is None)
    if trust_code and given is None and (code := description.model.code()):
        raise GrantKnowledge(
            f"{file}: came with the recording and names code to import "
            f"({short(code[0])}); --trust-code does not cover a file that you "
            f"did not give: if you wrote or checked it, say so with --with {file}"
        )
    for remark in describe(recording, description, folder, trust_code and given is not None):
        terminal.complain(remark)
    yield recording.described_in(folder)
