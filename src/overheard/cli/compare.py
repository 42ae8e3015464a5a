"""``overheard compare``: two audits side by side; did leakage rise?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from overheard import terminal
from overheard.cli.options import NoSeed, argument, option, taking

if TYPE_CHECKING:
    from overheard.evaluation.compare import Compared


@dataclass(frozen=True)
class Options:
    before: Path = argument("The audit before.", metavar="A.json")
    after: Path = argument("The audit after.", metavar="B.json")
    clients: bool = option("Compare every client alone as well.", False, "--clients")
    anyway: bool = option("Compare although data, clients or threat differ.", False, "--anyway")
    seed: NoSeed = None


@taking(Options)
def compare(options: Options) -> None:
    """Show two audits side by side; exit 1 if leakage rose or what learned most before did not run
    now, 2 if they cannot be compared.

    A rise counts when the interval of the difference excludes zero.
    """
    from overheard.evaluation.compare import HITS, TOGETHER, read_hits
    from overheard.evaluation.compare import compare as compared
    from overheard.evaluation.record import read_audit

    one, other = read_audit(options.before), read_audit(options.after)
    hits = (
        read_hits(options.before.with_name(HITS), one),
        read_hits(options.after.with_name(HITS), other),
    )
    found = compared(one, other, options.clients, hits)
    refused = bool(found.differs) and not (options.anyway and (found.rows or found.lost))
    terminal.emit(found.to_dict() | {"comparable": not refused})
    if refused:
        remedy = "audit the same data and clients under the same threat model"
        remedy += ", or add --anyway" if found.rows or found.lost else ""
        terminal.complain(f"error: not comparable: {'; '.join(found.differs)}; {remedy}")
        raise typer.Exit(2)
    if found.changed:
        terminal.table(["setting", "before", "after"], found.changed, title="What was changed")
    terminal.table(
        ["secret", "client", "before", "by", "after", "by", "leaks more by", "interval", ""],
        [_cells(row) for row in found.rows],
        title=f"What leaks, strongest attack each; all rows' intervals hold at {TOGETHER:.0%}",
    )
    for line in (*found.differs, *found.cautions, *found.unpaired):
        terminal.say(f"note: {line}")
    risen = [row.secret + (f" of {row.client}" if row.client else "") for row in found.rows
             if row.change == "rose"]  # fmt: skip
    terminal.say(f"leakage rose: {', '.join(risen)}" if risen else "no rise of leakage was shown")
    for line in found.lost:
        terminal.complain(f"not measured now: {line}")
    if risen or found.lost:
        raise typer.Exit(1)


def _cells(row: Compared) -> list[str]:
    from overheard.questions.question import metric_named

    if metric_named(row.metric).share:
        sides = [f"{s.value:.1%} ({s.low:.1%} - {s.high:.1%})" for s in (row.before, row.after)]
        change = [f"{100 * row.difference:+.1f} points"]
        change += [f"{100 * row.low:+.1f} to {100 * row.high:+.1f}"]
    else:
        sides = [f"{s.value:.2g} ({s.low:.2g} - {s.high:.2g})" for s in (row.before, row.after)]
        change = [f"{row.difference:+.2g}", f"{row.low:+.2g} to {row.high:+.2g}"]
    return [
        row.secret, row.client or "all", sides[0], row.before.attack, sides[1], row.after.attack,
        *change, row.change,
    ]  # fmt: skip
