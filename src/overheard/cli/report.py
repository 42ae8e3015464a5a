"""``overheard report`` and ``overheard compare``: audits as pages, and two side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

import overheard
from overheard import terminal
from overheard.cli.options import Out
from overheard.errors import ChooseAnotherOutput

if TYPE_CHECKING:
    from overheard.evaluation.compare import Compared


def report(
    audit_file: Annotated[Path, Argument(help="What an audit wrote.", metavar="AUDIT.json")],
    out: Out,
    sweep: Annotated[
        Path | None, Option(help="Folder of a sweep: shows what would help, measured.")
    ] = None,
) -> None:
    """Write the report of an audit, by the ending of OUT: a page that opens offline (.html), the
    same on paper (.pdf, which needs Chromium), Markdown (.md) or JSON (.json)."""
    from overheard.report import html
    from overheard.report.digest import digest
    from overheard.sweep.frontier import for_audit

    audit = overheard.read_audit(audit_file)
    measured = for_audit(sweep, audit) if sweep else []
    made = {
        ".html": lambda: html.render(audit, measured).encode(),
        ".pdf": lambda: html.printed(html.render(audit, measured)),
        ".md": lambda: html.render_markdown(audit, measured).encode(),
        ".json": lambda: json.dumps(digest(audit), indent=1, ensure_ascii=False).encode() + b"\n",
    }
    if out.suffix.lower() not in made:
        raise ChooseAnotherOutput(f"{out}: a report ends in {', '.join(made)}; name one of these")
    html.write_new(out, made[out.suffix.lower()]())
    terminal.wrote("report", out)
    terminal.emit({"report": str(out)})


def compare(
    before: Annotated[Path, Argument(help="The audit before.", metavar="A.json")],
    after: Annotated[Path, Argument(help="The audit after.", metavar="B.json")],
    clients: Annotated[
        bool, Option("--clients", help="Compare every client alone as well.")
    ] = False,
    anyway: Annotated[
        bool, Option("--anyway", help="Compare although data, clients or threat differ.")
    ] = False,
) -> None:
    """Show two audits side by side; exit 1 if leakage rose or the strongest attack before gave no
    reliable answer now, 2 if they cannot be compared.

    A rise counts when the interval of the difference excludes zero.
    """
    from overheard.evaluation import compare as comparing

    one, other = overheard.read_audit(before), overheard.read_audit(after)
    found = comparing.compare(one, other, clients)
    refused = bool(found.differs) and not (anyway and (found.rows or found.lost))
    terminal.emit(found.model_dump(mode="json") | {"comparable": not refused})
    if refused:
        remedy = "audit the same data and clients under the same threat model"
        remedy += ", or add --anyway" if found.rows or found.lost else ""
        terminal.complain(f"error: not comparable: {'; '.join(found.differs)}; {remedy}")
        raise Exit(2)
    if found.changed:
        terminal.table(["setting", "before", "after"], found.changed, title="What was changed")
    terminal.table(
        ["secret", "client", "before", "by", "after", "by", "leaks more by", "interval", ""],
        [_cells(row) for row in found.rows],
        f"What leaks, strongest attack each; all intervals hold at {comparing.TOGETHER:.0%}",
    )
    terminal.say(*(f"note: {n}" for n in found.differs))
    risen = [
        r.secret + (f" of {r.client}" if r.client else "") for r in found.rows if r.change == "rose"
    ]
    terminal.say(f"leakage rose: {', '.join(risen)}" if risen else "no rise of leakage was shown")
    for line in found.lost:
        terminal.complain(f"not measured now: {line}")
    if risen or found.lost:
        raise Exit(1)


def _cells(row: Compared) -> list[str]:
    from overheard.report.words import some, value

    both = (row.before, row.after)
    sides = [text for side in both for text in (value(side) + some(side), side.attack)]
    scale, form, unit = (100, "+.1f", " points") if row.before.measure.share else (1, "+.2g", "")
    more, low, high = (format(scale * x, form) for x in (row.difference, row.low, row.high))
    return [row.secret, row.client or "all", *sides, more + unit, f"{low} to {high}", row.change]
