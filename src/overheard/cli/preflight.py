"""``overheard preflight``: what would my updates reveal, before they are sent?"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

import overheard
from overheard import terminal
from overheard.cli.options import Config
from overheard.files import write_durably

if TYPE_CHECKING:
    from overheard.guard.preflight import Preflight


def preflight(
    config: Config,
    client: Annotated[str, Option(help="Your client; default: the only one.")] = "",
    limit: Annotated[float, Option(help="Bits a record that may leak.", min=0.0)] = 0.1,
    entropy: Annotated[
        float, Option(help="Share of the secret's entropy that may leak.", min=0.0)
    ] = 0.1,
    certain: Annotated[
        float, Option(help="Share of the records that may be known beyond 99%.", min=0.0)
    ] = 0.0,
    rounds: Annotated[
        int | None,
        Option(help="Rounds that are observed.", min=1, show_default="the config's"),
    ] = None,
    target: Annotated[
        list[str], Option(help="Secret to ask about (repeat); default: all that the audit asks.")
    ] = [],
    update: Annotated[
        list[Path], Option(help="A real round, as safetensors or npz (repeat); default: simulated.")
    ] = [],
    changes: Annotated[
        bool, Option(help="Look for changes that would leak less; takes longest.")
    ] = True,
    out: Annotated[Path | None, Option(help="Write the figures there, as JSON.")] = None,
) -> None:
    """Audit your own updates before you send them; exit 1 unless all is below the limits.

    The answer is about these attacks and, unless updates are given, about simulated ones. The file
    of a real round holds sent/NAME and returned/NAME.
    """
    from pydantic import TypeAdapter

    from overheard.guard.exposure import Limits
    from overheard.report.verdict import sentences

    asked = (client, Limits(limit, entropy, certain), rounds, target)
    with terminal.steps("preflight") as show:
        if update:
            found = overheard.preflight_updates(overheard.read_config(config), update, *asked)
        else:
            found = overheard.preflight(overheard.read_config(config), *asked, changes, show)
    content = asdict(found) | {"answer": found.answer, "passes": found.answer == "ok"}
    figures = TypeAdapter(Any).dump_json(content, indent=1)  # NaN, which is no JSON, is null
    terminal.emit(json.loads(figures))
    _show(found)
    if out is not None:
        write_durably(out, [figures, b"\n"])
        terminal.wrote("figures", out)
    lines = filter(None, str(sentences().preflight(found)).splitlines())
    terminal.say(*lines, f"took {found.seconds / found.rounds:.2g} s an update")
    if found.answer != "ok":
        raise Exit(1)


def _show(found: Preflight) -> None:
    from overheard.report.verdict import sentences

    rows = []
    for e in found.exposures:
        measured = f"{e.value:.4g}", f"{e.low:.4g} - {e.high:.4g}"
        guess = "" if e.guess is None else f"{e.guess:.4g}"
        certain, bits = f"{e.certain} of {e.records}", "" if e.bits is None else f"{e.bits:.3f}"
        share = "" if e.share is None else f"{e.share:.1%}"
        answer = e.answer(found.limits)
        rows.append((e.name, *measured, guess, certain, bits, share, e.attack, answer))
    heads = "secret,measured,interval,a guess,certain,bits a record,share,attack,answer"
    how = f"{sentences().rounds(found)}, {'simulated' if found.simulated else 'as given'}"
    title = f"what the updates of {found.client} would reveal ({how})"
    terminal.table(heads.split(","), rows, title)
    terminal.say(*(f"- {note}" for note in found.notes))
    tried = []
    for change in found.changes:
        worst = replace(found, exposures=change.exposures).worst
        bits = "" if worst.bits is None else f" {worst.bits:.3f} bits a record,"
        left = f"{worst.name}:{bits} {worst.certain} of {worst.records} certain"
        verdict = {"ok": "yes", "too much": "no"}.get(change.answer(found.limits), "not known")
        tried.append((change.words, left, verdict))
    if tried:
        terminal.table(("change", "what is left", "below the limits"), tried, "what would help")
