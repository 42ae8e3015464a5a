"""``overheard report`` and ``overheard compare``: an audit as a page, and two side by side."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from overheard import terminal

if TYPE_CHECKING:
    from overheard.evaluation.compare import Compared
    from overheard.report.helps import Measured


class Format(StrEnum):
    """What a report is written as."""

    html = "html"
    md = "md"
    json = "json"


AuditFile = Annotated[Path, typer.Argument(metavar="AUDIT.json", help="What an audit wrote.")]


def report(
    audit_file: AuditFile,
    out: Annotated[Path, typer.Option(help="Where to write; must not exist yet.")],
    format: Annotated[
        Format | None, typer.Option(help="Default: by the name of the file, else html.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="Another audit of the same secrets, to compare with (repeat)."),
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="Folder of a sweep: shows what would help, measured.")
    ] = None,
    show_records: Annotated[
        bool,
        typer.Option(
            "--show-records",
            help="Name the rows of the records known beyond 99%, if the audit noted them.",
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", hidden=True)] = None,
) -> None:
    """Write the report of an audit: one HTML file that opens offline, Markdown or JSON."""
    from overheard.evaluation.record import read_audit
    from overheard.report.digest import digest
    from overheard.report.html import write_new, write_report
    from overheard.report.markdown import render_markdown

    audit = read_audit(audit_file)
    measured = measured_by(sweep) if sweep else []
    known = {".md": Format.md, ".json": Format.json}
    match format or known.get(out.suffix.lower(), Format.html):
        case Format.md:
            write_new(out, render_markdown(audit, measured, show_records))
        case Format.json:
            content = json.dumps(digest(audit, show_records), indent=1, ensure_ascii=False)
            write_new(out, content + "\n")
        case _:
            others = [read_audit(path) for path in beside or []]
            write_report(audit, out, others, measured, show_records)
    if show_records and not any(f.sure and f.sure.rows for f in audit.findings):
        typer.echo(
            "note: the audit holds no row numbers; run it again with --show-records", err=True
        )
    terminal.wrote("report", out)
    terminal.emit({"report": str(out)})


def measured_by(folder: Path) -> list[Measured]:
    """A sweep's settings as the report shows them."""
    from overheard.report.helps import Measured
    from overheard.sweep.frontier import frontier
    from overheard.sweep.table import read_rows

    return [
        Measured(
            name=point.name,
            secret=point.attribute,
            attack=point.attack,
            leakage=point.leakage,
            leakage_spread=point.leakage_spread,
            utility=point.utility,
            utility_spread=point.utility_spread,
            utility_is=point.utility_is,
            seeds=point.seeds,
            best=point.best,
        )
        for point in frontier(read_rows(folder))
    ]


def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="The audit before.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="The audit after.")],
    clients: Annotated[
        bool, typer.Option("--clients", help="Compare every client alone as well.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare although data, clients or threat differ.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", hidden=True)] = None,
) -> None:
    """Show two audits side by side; exit 1 if leakage rose or what learned most before did not run
    now, 2 if they cannot be compared.

    A rise counts when the interval of the difference excludes zero.
    """
    from overheard.evaluation.compare import TOGETHER
    from overheard.evaluation.compare import compare as compared
    from overheard.evaluation.hits import HITS, read_hits
    from overheard.evaluation.record import read_audit

    one, other = read_audit(before), read_audit(after)
    hits = (read_hits(before.with_name(HITS), one), read_hits(after.with_name(HITS), other))
    found = compared(one, other, clients, hits)
    refused = bool(found.differs) and not (anyway and (found.rows or found.lost))
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
