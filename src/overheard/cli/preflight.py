"""``overheard preflight``: what would my updates reveal, before they are sent?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from overheard import terminal
from overheard.cli.options import argument, option, taking

if TYPE_CHECKING:
    from overheard.guard.preflight import Change, Preflight


@dataclass(frozen=True)
class Options:
    config: Path = argument("TOML file, as simulate reads it.")
    client: str = option("Your client; default: the only one.", "")
    limit: float = option("Bits a record that may leak.", 0.1, min=0.0)
    entropy: float = option("Share of what there is to learn that may leak.", 0.1, min=0.0)
    certain: float = option("Share of the records that may become certain.", 0.0, min=0.0)
    rounds: int | None = option(
        "Rounds that are listened to.", None, min=1, show_default="the config's"
    )
    target: list[str] = option(
        "Secret to ask about (repeat); default: all that the audit asks.", list
    )
    update: list[Path] = option(
        "A real round, as safetensors or npz with sent/NAME and returned/NAME (repeat); default: "
        "rounds are simulated.",
        list,
    )
    changes: bool = option("Look for changes that would leak less; takes longest.", True)
    out: Path | None = option("Write the figures there, as JSON.", None)


@taking(Options)
def preflight(options: Options) -> None:
    """Audit your own updates before you send them; exit 1 unless all is below the limits.

    The answer is about these attacks and, unless updates are given, about simulated ones.
    """
    import json

    from overheard.federation.federation import read_config
    from overheard.files import write_durably
    from overheard.guard.exposure import Limits
    from overheard.guard.preflight import preflight as dry_run
    from overheard.guard.preflight import preflight_updates

    limits = Limits(options.limit, options.entropy, options.certain)
    config, rounds, targets = read_config(options.config), options.rounds, options.target
    with terminal.progress() as bar:
        task = bar.add_task("preflight", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=what.partition("(")[0])

        asked = (options.client, limits, rounds, targets)
        if options.update:
            found = preflight_updates(config, options.update, *asked)
        else:
            found = dry_run(config, *asked, options.changes, show)
    content = asdict(found) | {"answer": found.answer, "passes": found.passes}
    terminal.emit(_plain(content))
    _show(found)
    if options.out is not None:
        write_durably(options.out, [(json.dumps(_plain(content), indent=1) + "\n").encode()])
        terminal.wrote("figures", options.out)
    for line in (*conclusion(found), f"took {found.seconds / found.rounds:.2g} s an update"):
        terminal.say(line)
    if not found.passes:
        raise typer.Exit(1)


def conclusion(found: Preflight) -> list[str]:
    """What it comes to, said as what it is."""
    who = f"a simulated client of this recipe ({_rounds(found)})"
    if not found.simulated:
        who = f"these updates ({_rounds(found)})"
    last = (
        "That is what the attacks tried here read, not a guarantee: another attack, or other "
        "randomness, may read more."
    )
    if found.answer == "ok":
        return [f"ok: {who} would reveal less than the limits. {last}"]
    lines = [
        f"{e.name}: {'; '.join(e.beyond(found.limits))}"
        for e in found.found
        if e.answer(found.limits) == "too much"
    ]
    much = "too much" if lines else "not known"
    lines += [
        f"{e.name}: not known: {e.unknown(found.limits)}"
        for e in found.found
        if e.doubt or e.answer(found.limits) == "not known"
    ]
    lines += [f"not known: {why}" for why in found.unasked]
    head = f"{much}: what {who} would reveal " + (
        "is beyond the limits" if much == "too much" else "is not known, which proves no privacy"
    )
    helps = "; ".join(c.words for c in found.smallest()) or "nothing that was tried is enough"
    changed = [f"Smallest change: {helps}"] if found.changes else []
    return [*(f"- {line}" for line in lines), head, *changed]


def _rounds(found: Preflight) -> str:
    plural = "round" if found.rounds == 1 else "rounds"
    more = "" if found.rounds >= found.configured else f" of the {found.configured} configured"
    return f"{found.rounds} {plural}{more}"


def _show(found: Preflight) -> None:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    terminal.table(
        "secret,measured,interval,a guess,certain,bits a record,share,attack,answer".split(","),
        [
            (
                e.name,
                f"{e.value:.4g}",
                f"{e.low:.4g} - {e.high:.4g}",
                "" if e.guess is None else f"{e.guess:.4g}",
                f"{e.certain} of {e.records}",
                "" if e.bits is None else f"{e.bits:.3f}",
                share(e.share),
                e.attack,
                e.answer(found.limits),
            )
            for e in found.found
        ],
        f"what the updates of {found.client} would reveal ({_rounds(found)}, "
        f"{'simulated' if found.simulated else 'as given'})",
    )
    for note in found.notes:
        terminal.say(f"- {note}")
    if found.changes:
        terminal.table(
            ("change", "what is left", "below the limits"),
            [(c.words, _left(c, found), _verdict(c, found)) for c in found.changes],
            "what would help",
        )


def _left(change: Change, found: Preflight) -> str:
    worst = replace(found, found=change.found).worst
    bits = "" if worst.bits is None else f" {worst.bits:.3f} bits a record,"
    return f"{worst.name}:{bits} {worst.certain} of {worst.records} certain"


def _verdict(change: Change, found: Preflight) -> str:
    words = {"ok": "yes", "too much": "no", "not known": "not known"}
    return words[change.answer(found.limits)]


def _plain(content: Any) -> Any:
    """NaN, which is no JSON, becomes null."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return None if isinstance(content, float) and content != content else content
