"""``overheard report``: an audit as a page, as Markdown or for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from overheard import terminal
from overheard.cli.options import NoSeed, Out, argument, option, taking

if TYPE_CHECKING:
    from overheard.report.advice import Measured


class Format(StrEnum):
    html = "html"
    md = "md"
    json = "json"


@dataclass(frozen=True)
class Options:
    out: Out
    audit_file: Path = argument("What an audit wrote.", metavar="AUDIT.json")
    format: Format | None = option("Default: by the name of the file, else html.", None)
    beside: list[Path] = option(
        "Another audit of the same secrets, to compare with (repeat).", list
    )
    sweep: Path | None = option("Folder of a sweep: shows what would help, measured.", None)
    show_records: bool = option(
        "Name the rows of the records known beyond 99%, if the audit noted them.",
        False,
        "--show-records",
    )
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
    if show_records and not any(f.calibration and f.calibration.rows for f in audit.findings):
        typer.echo(
            "note: the audit holds no row numbers; run it again with --show-records", err=True
        )
    terminal.wrote("report", out)
    terminal.emit({"report": str(out)})


def measured_by(folder: Path) -> list[Measured]:
    """A sweep's settings as the report shows them."""
    from overheard.report.advice import Measured
    from overheard.sweep.frontier import frontier
    from overheard.sweep.table import read_rows

    names = [field.name for field in fields(Measured)]
    return [Measured(**{n: getattr(p, n) for n in names}) for p in frontier(read_rows(folder))]
