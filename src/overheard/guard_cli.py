"""``overheard preflight``: what would my update reveal, before it is sent?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from overheard import terminal
from overheard.data_cli import DataDir


def preflight(
    config: Annotated[Path, typer.Argument(help="TOML file, as simulate reads it.")],
    client: Annotated[str, typer.Option(help="Your client; default: the only one.")] = "",
    limit: Annotated[float, typer.Option(help="Bits a record that may leak.", min=0.0)] = 0.1,
    rounds: Annotated[int, typer.Option(help="Rounds that are listened to.", min=1)] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the figures there, as JSON.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Decode your own update before you send it; exit 1 if it leaks more than the limit."""
    import json
    from dataclasses import asdict

    from overheard.federation.config import read_config
    from overheard.files import write_durably
    from overheard.guard.preflight import preflight as run

    with terminal.progress() as bar:
        task = bar.add_task("preflight", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=what.partition("(")[0])

        found = run(read_config(config), client, limit, rounds, show)
    content = asdict(found) | {"passes": found.passes}
    terminal.emit(content)
    terminal.table(
        "attribute,known,interval,a guess,sure of,bits a record,rank,unknowns".split(","),
        [
            (
                e.attribute,
                f"{e.accuracy:.1%}",
                f"{e.low:.1%} - {e.high:.1%}",
                f"{e.majority:.1%}",
                f"{e.sure} of {e.records}",
                f"{e.bits:.3f}",
                f"{e.rank}",
                f"{e.unknowns}",
            )
            for e in found.found
        ],
        f"what the update of {found.client} reveals ({found.rounds} round(s))",
    )
    for e in found.found:
        if e.warning:
            terminal.say(f"- {e.attribute}: {e.warning}")
    if found.changes:
        terminal.table(
            ("change", "bits a record left", "below the limit"),
            [
                (
                    c.words,
                    f"{c.bits:.3f}",
                    "decoder failed" if c.doubtful else "yes" if c.enough(limit) else "no",
                )
                for c in found.changes
            ],
            "what would help",
        )
    if any(change.doubtful for change in found.changes):
        terminal.say("- where the decoder failed, what leaks is not known: it proves no privacy")
    if out is not None:
        write_durably(out, [(json.dumps(content, indent=1) + "\n").encode()])
        terminal.wrote("figures", out)
    if found.passes:
        terminal.say(f"ok: at most {limit:g} bits a record leak")
        return
    much = f"too much: more than {limit:g} bits a record leak"
    if all(not e.exceeds(limit) for e in found.found):
        much = "not known: the decoder failed on your update, which proves no privacy"
    helps = "; ".join(c.words for c in found.smallest()) or "nothing that was tried is enough"
    terminal.say(f"{much}. Smallest change: {helps}")
    raise typer.Exit(1)
