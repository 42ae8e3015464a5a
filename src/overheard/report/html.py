"""How does an audit become one page that opens offline?

The page is made of the typed record and of four files next to this one: a template, a style
sheet, a script and nothing from elsewhere. Its Content-Security-Policy admits that style sheet
and that script by their hashes and nothing else, so that a name which somebody chose to look like
markup stays text. No record of any client is in the audit, hence none is in the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from overheard.errors import ChooseAnotherOutput
from overheard.evaluation.record import Audit
from overheard.files import write_durably
from overheard.foreign.shown import visible
from overheard.report import advice, model, references, svg, verdict, words
from overheard.report.advice import Measured

MOST_BYTES = 2_000_000
TABLE_ROWS = (2_000, 1_000, 500, 200, 50)
"""Rows in the tables: the first of these with which the page is small enough. What is left out
is in audit.json, and the page says so."""


def render(
    audit: Audit,
    beside: Sequence[Audit] = (),
    measured: Sequence[Measured] = (),
    show_records: bool = False,
) -> str:
    """The page: one self-contained HTML document of at most 2 MB. Same audit, same bytes.

    ``beside``: audits of other federations of the same secrets, compared in a chart of their own.
    ``measured``: what a sweep found, for "What would help". ``show_records``: name the rows of the
    records known beyond 99%, if the audit noted them.
    """
    for rows in TABLE_ROWS:
        page = _render(audit, rows, beside, measured, show_records)
        if len(page.encode("utf-8")) <= MOST_BYTES:
            break
    return page


def _render(
    audit: Audit,
    rows: int,
    beside: Sequence[Audit],
    measured: Sequence[Measured],
    show_records: bool,
) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    text = _template().render(
        contents(audit, rows, beside, measured, show_records),
        style=Markup(style),  # nosec B704  # a file of this package
        script=Markup(script),  # nosec B704  # a file of this package
        policy=_policy(style, script),
        picture=svg.threat_picture(audit.run.threat),
        reference_key=svg.reference_key,
    )
    # a name may turn the direction of what stands after it: of the whole page, not of one cell
    return visible(text, keep="\n\t")


def contents(
    audit: Audit,
    rows: int,
    beside: Sequence[Audit],
    measured: Sequence[Measured],
    show_records: bool,
) -> dict[str, Any]:
    """What a template of a report may show; tables of at most so many rows."""
    return {
        "audit": audit,
        "page": model.Page(audit, rows, show_records),
        "run": audit.run,
        "words": words,
        "compared": model.compared([*beside, audit]),
        "replayed": verdict.replay_words(audit),
        "replays": verdict.replay_lines(audit)[:rows],
        "curves": model.curves(audit),
        "ladders": model.ladders(audit),
        "frontiers": advice.frontiers(measured),
        "advice": advice.ranked(audit),
        "paper": references.title,
        "bibtex": references.bibtex(audit),
    }


def environment(**how: Any) -> jinja2.Environment:
    """Templates of this folder, in which everything is escaped that is not ours."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("overheard.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        **how,
    )


@cache
def _template() -> jinja2.Template:
    """Compiled once: that takes longer than filling it in."""
    return environment().get_template("page.html.j2")


def write_report(
    audit: Audit,
    path: str | Path,
    beside: Sequence[Audit] = (),
    measured: Sequence[Measured] = (),
    show_records: bool = False,
) -> Path:
    """Write the page to a new file, whole or not at all; an existing file is never replaced."""
    return write_new(path, render(audit, beside, measured, show_records))


def write_new(path: str | Path, text: str) -> Path:
    """Write a text to a new file, whole or not at all; an existing file is never replaced."""
    file = Path(path)
    try:
        write_durably(file, [text.encode("utf-8")])
    except OSError as error:
        raise ChooseAnotherOutput(
            f"{file}: cannot be written ({error.strerror}); choose an existing, writable folder "
            "with room"
        ) from error
    return file


def _asset(name: str) -> str:
    return (resources.files("overheard.report") / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    hashed = [
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src {hashed[0]}; script-src {hashed[1]}; "
        "base-uri 'none'; form-action 'none'"
    )
