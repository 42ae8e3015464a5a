"""``overheard init``: what an audit needs and no listener hears, found by replay or to fill in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from overheard import terminal
from overheard.cli.options import TrustCode, option, taking

if TYPE_CHECKING:
    from overheard.identify.recording import Found


@dataclass(frozen=True)
class Options:
    run: Annotated[Path, typer.Argument(help="A recording without side knowledge.")]
    data: Path | None = option(
        "Table of the clients' records, CSV or Parquet: how they trained is then found by replay, "
        "and nothing is left to fill in.",
        None,
    )
    client: str = option("Its column that says whose record it is.", "client")
    target: str = option("Its column that the model predicts.", "label")
    secret: list[str] = option("Its column to ask about (repeat).", list)
    drop: list[str] = option("Its column that is no input of the model (repeat).", list)
    model: str = option(
        'The torch module that was trained, "package.module:function", where it is more than dense '
        "layers; needs --trust-code.",
        "",
    )
    trust_code: TrustCode = False


@taking(Options)
def init(options: Options) -> None:
    """Write audit.toml into a recording: what an audit still needs.

    With --data the recording is asked itself: model, scaling of columns, loss, optimiser, rate,
    batch size and epochs are tried by replaying the clients' records, ranked, and the best written.
    Without, the file is to be filled in.
    """
    if options.data is None:
        from overheard.recorders.template import write_template

        file = write_template(options.run)
        terminal.wrote("fill in", file)
        content: dict[str, Any] = {"template": str(file)}
    else:
        from overheard.files import write_durably
        from overheard.recorders.describe import written
        from overheard.recorders.template import BESIDE

        found = _found(options, options.data)
        file = options.run / BESIDE
        write_durably(file, [written(found.description, remarks(found))])
        best = found.ranking[0].evidence
        rows = [(f.words, f"{f.evidence - best:.1f}", f"{f.residual:.1e}") for f in found.ranking]
        numbers = ["log evidence", "residual"]
        terminal.table(["recipe", *numbers], rows, "recipes that explain the messages", numbers)
        for line in remarks(found)[1:]:
            (terminal.complain if line.startswith("NONE") else terminal.say)(line)
        terminal.wrote("wrote", file)
        content = {
            "audit": str(file),
            "found": found.ranking[0].words,
            "open": [f.words for f in found.open],
            "fits": found.explained,
        }
    terminal.say(
        f"next       overheard audit {options.run} --with {file} --out {options.run}-audit"
    )
    terminal.emit(content)


def _found(options: Options, table: Path) -> Found:
    import os
    import tempfile

    from overheard.errors import ChooseAnotherOutput, FixConfig
    from overheard.identify.recording import identify
    from overheard.recorders.template import BESIDE
    from overheard.transcript.store import Recording

    run = options.run
    recording = Recording.open(run)
    if recording.describes_itself:
        raise FixConfig(f"{run}: describes itself already: `overheard audit {run}`")
    if not recording.rounds:
        raise FixConfig(f"{run}: no round was recorded; there is nothing to describe")
    if (run / BESIDE).exists():
        raise ChooseAnotherOutput(f"{run / BESIDE} exists already; remove it to find it anew")
    data = {"source": "file", "path": str(table.resolve()), "client": options.client}
    given: dict[str, Any] = {
        "data": {**data, "target": options.target, "drop": options.drop},
        "audit": {"attributes": options.secret},
    }
    if options.model:
        given["model"] = {"factory": options.model}
    with tempfile.TemporaryDirectory() as work, terminal.waiting("trying recipes by replay"):
        found = identify(recording, given, Path(work), options.trust_code)
    path = os.path.relpath(table.resolve(), run.resolve())
    audit = {"also_fits": tuple(other.words for other in found.open)}
    told = {
        "data": found.description.data.model_copy(update={"path": path}),
        "audit": found.description.audit.model_copy(update=audit),
    }
    return replace(found, description=found.description.model_copy(update=told))


def remarks(found: Found) -> list[str]:
    """What was found and how sure that is, in words."""
    best, checked = found.ranking[0], [r for r in found.fits if r.outcome != "cannot be checked"]
    said = [f"Found by replaying the clients' records: {best.words}."]
    if found.description.clients:
        said.append("Who is who was found by replay, too: see [clients].")
    if found.explained:
        said.append(f"The messages of {len(checked)} clients are what their records lead to so.")
    elif found.unfit:
        said.append(
            f"NONE FITS: of the recipes tried this one comes closest and leaves {best.residual:.2g}"
            f" of the messages' squares; {len(found.unfit)} of {len(checked)} clients did not train"
            " so. Correct what is wrong here: an audit under it is not measured."
        )
    else:
        said.append("No client could be checked under it.")
    if found.open:
        said.append("Still open, as the messages are explained as well by:")
        said += [f"    {other.words}" for other in found.open]
    said.append("Not tried: weight decay, clipped gradients, FedProx, defences, dropout.")
    return said
