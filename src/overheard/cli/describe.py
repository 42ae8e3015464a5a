"""``overheard init``: what an audit needs beyond the messages, found by replay or to fill in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import overheard
from overheard import terminal
from overheard.cli.options import TrustCode
from overheard.errors import ChooseAnotherOutput, FixConfig, GrantKnowledge
from overheard.files import write_durably
from overheard.foreign.shown import command, short


def init(
    run: Annotated[Path, Argument(help="A recording without side knowledge.")],
    data: Annotated[
        Path | None,
        Option(help="Table of the clients' records: how they trained is then found by replay."),
    ] = None,
    client: Annotated[str, Option(help="Column that says whose record it is.")] = "client",
    target: Annotated[str, Option(help="Column that the model predicts.")] = "label",
    secret: Annotated[list[str], Option(help="Column to ask about (repeat).")] = [],
    label: Annotated[bool, Option("--label", help="Ask about the labels, too.")] = False,
    drop: Annotated[list[str], Option(help="Column that is no input of the model (repeat).")] = [],
    missing: Annotated[
        list[str], Option(help="What stands for no value: such rows are left out (repeat).")
    ] = [],
    model: Annotated[
        str,
        Option(help='"package.module:function" of a torch module that is more than dense layers.'),
    ] = "",
    minutes: Annotated[
        float, Option(min=0, help="Minutes of processor time, then nothing new is tried.")
    ] = 10,
    trust_code: TrustCode = False,
) -> None:
    """Write audit.toml into a recording: what an audit still needs.

    With --data it is found by replay: model, scaling of columns, loss, optimiser, learning rate,
    batch size and epochs are tried on the clients' records, ranked, and the best written.
    Without, the file is to be filled in. --model needs --trust-code.
    """
    if data is None:
        from overheard.recorders.template import write_template

        file = write_template(run)
        terminal.wrote("fill in", file)
        content: dict[str, Any] = {"template": str(file)}
    else:
        table = {"source": "file", "path": str(data.resolve()), "client": client, "target": target}
        columns = {**table, "drop": drop, "missing": missing}
        given = {"data": columns, "audit": {"attributes": secret, "label": label}}
        given |= {"model": {"factory": model}} if model else {}
        file, content = _identified(run, data, given, minutes, trust_code)
    terminal.say("next       " + command("audit", run, "--with", file, "--out", f"{run}-audit"))
    terminal.emit(content)


def _identified(
    run: Path, table: Path, given: dict[str, Any], minutes: float, trust_code: bool
) -> tuple[Path, dict[str, Any]]:
    """Find out how the clients trained, show it and write it; what is description of it as JSON."""
    from overheard.identify.search import Options, identify
    from overheard.recorders.describe import as_file
    from overheard.recorders.template import BESIDE, undescribed
    from overheard.report.verdict import sentences

    recording, file = undescribed(overheard.Recording.open(run)), run / BESIDE
    if file.exists():
        raise ChooseAnotherOutput(f"{file} exists already; remove it to find it anew")
    with terminal.steps("recipes by replay") as show:
        options = Options(seconds=60 * minutes, show=show, trust_code=trust_code)
        found = identify(recording, given, options)
    path = os.path.relpath(table.resolve(), run.resolve())
    also = {"also_fits": tuple(other.words for other in found.open)}
    description = found.ranking[0].whole
    lines = str(sentences().identified(found, minutes)).splitlines()
    data, audit = (
        description.data.model_copy(update={"path": path}),
        description.audit.model_copy(update=also),
    )
    description = description.model_copy(update={"data": data, "audit": audit})
    write_durably(file, [as_file(description, lines)])
    best, most = found.ranking[0], found.ranking[0].evidence.sum()
    rows = [(f.words, f"{f.evidence.sum() - most:.1f}", f"{f.residual:.1e}") for f in found.ranking]
    numbers = ["log evidence", "residual"]
    terminal.table(["recipe", *numbers], rows, "recipes that explain the messages", numbers)
    for line in lines[1:]:
        (terminal.complain if line.startswith("NONE") else terminal.say)(line)
    terminal.wrote("wrote", file)
    content = {"audit": str(file), "found": best.words, "fits": found.explained}
    return file, content | {"open": [f.words for f in found.open]}


def described(run: Path, given: Path | None, trust_code: bool, work: Path) -> overheard.Recording:
    """The recording; what the TOML file, ``given`` or in its folder, adds lies in ``work`` for the
    time being."""
    from overheard.recorders.describe import covered, describe
    from overheard.recorders.template import BESIDE

    recording, file = overheard.Recording.open(run), given or run / BESIDE
    if not recording.rounds:
        raise FixConfig(f"{run}: no round was recorded; there is nothing to audit")
    if recording.side("ClientProgram"):
        if given is not None:
            raise FixConfig(f"{run}: describes itself already; leave --with {given} out")
        return recording
    if given is None and not file.is_file():
        raise FixConfig(
            f"{run}: has no training recipe, without which nothing can be scored; "
            f"`{command('init', run)}` writes {file} for you to fill in"
        )
    folder = work / "described"
    shutil.rmtree(folder, ignore_errors=True)  # of an audit that was stopped here
    description = overheard.read_config(file, recorded=True, confined=given is None)
    if trust_code and given is None and (code := description.model.code()):
        raise GrantKnowledge(
            f"{file}: came with the recording and names code to import "
            f"({short(code[0])}); --trust-code does not cover a file that you "
            f"did not give: if you wrote or checked it, say so with --with {file}"
        )
    recording = covered(recording, description)
    for remark in describe(recording, description, folder, trust_code and given is not None):
        terminal.complain(remark)
    return recording.described_in(folder)
