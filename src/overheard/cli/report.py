"""``overheard report``: an audit as a page, as Markdown or for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from overheard import terminal
from overheard.cli.options import NoSeed, Out, taking

if TYPE_CHECKING:
    from overheard.report.helps import Measured


class Format(StrEnum):
    """What a report is written as."""

    html = "html"
    md = "md"
    json = "json"


@dataclass(frozen=True)
class Options:
    """What ``overheard report`` is asked."""

    audit_file: Annotated[Path, typer.Argument(metavar="AUDIT.json", help="What an audit wrote.")]
    out: Out
    format: Annotated[
        Format | None, typer.Option(help="Default: by the name of the file, else html.")
    ] = None
    beside: Annotated[
        list[Path],
        typer.Option(help="Another audit of the same secrets, to compare with (repeat)."),
    ] = field(default_factory=list)
    sweep: Annotated[
        Path | None, typer.Option(help="Folder of a sweep: shows what would help, measured.")
    ] = None
    show_records: Annotated[
        bool,
        typer.Option(
            "--show-records",
            help="Name the rows of the records known beyond 99%, if the audit noted them.",
        ),
    ] = False
    seed: NoSeed = None


@taking(Options)
def report(options: Options) -> None:
    """Write the report of an audit: one HTML file that opens offline, Markdown or JSON."""
    from overheard.evaluation.record import read_audit
    from overheard.report.digest import digest
    from overheard.report.html import write_new, write_report
    from overheard.report.markdown import render_markdown

    audit, out, show_records = read_audit(options.audit_file), options.out, options.show_records
    measured = measured_by(options.sweep) if options.sweep else []
    known = {".md": Format.md, ".json": Format.json}
    match options.format or known.get(out.suffix.lower(), Format.html):
        case Format.md:
            write_new(out, render_markdown(audit, measured, show_records))
        case Format.json:
            content = json.dumps(digest(audit, show_records), indent=1, ensure_ascii=False)
            write_new(out, content + "\n")
        case _:
            others = [read_audit(path) for path in options.beside]
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
