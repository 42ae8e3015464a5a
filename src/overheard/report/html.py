"""How does an audit become one page that opens offline, or one Markdown document?

The page is made of the typed record and of four files next to this one: a template, a style
sheet, a script and nothing from elsewhere. Its Content-Security-Policy admits that style sheet
and that script by their hashes and nothing else, so that a name which somebody chose to look like
markup stays text. No record of any client is in the audit, hence none is in the page.

Markdown, for a pull request, a wiki or a terminal, has the same contents, shorter, by a template of
its own. What it fills in is escaped unless the template says that it is ours, so that a column
called ``<script>`` stays text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess  # nosec B404  # to print
import tempfile
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
from overheard.report import advice, model, svg, verdict, words
from overheard.report.advice import Point
from overheard.report.model import First
from overheard.report.verdict import environment

MOST_BYTES = 2_000_000
TABLE_ROWS = (2_000, 1_000, 500, 200, 50)
"""Rows in the tables: the first of these with which the page is small enough. What is left out
is in audit.json, and the page says so."""


def render(audit: Audit, measured: Sequence[Point] = ()) -> str:
    """The page: one self-contained HTML document of at most 2 MB. Same audit, same bytes.

    ``measured``: what a sweep found, for "What would help".
    """
    for rows in TABLE_ROWS:
        page = _page("page.html.j2", contents(audit, rows, measured))
        if len(page.encode("utf-8")) <= MOST_BYTES:
            break
    return page


def render_settings(points: Sequence[Point], name: str) -> str:
    """The page of a sweep by itself."""
    parts = {"frontiers": advice.frontiers(points), "advice": [advice.recommended(points)]}
    return _page("settings.html.j2", {**parts, "name": name})


def _page(template: str, parts: dict[str, Any]) -> str:
    """A whole page of these parts, with its style and script."""
    style, script = _asset("page.css"), _asset("page.js")
    text = _template(template).render(
        parts,
        svg=svg,
        style=Markup(style),  # nosec B704  # a file of this package
        script=Markup(script),  # nosec B704  # a file of this package
        policy=_policy(style, script),
    )
    # a name may turn the direction of what stands after it: of the whole page, not of one cell
    return visible(text, keep="\n\t")


def contents(audit: Audit, rows: int, measured: Sequence[Point]) -> dict[str, Any]:
    """What a template of a report may show; tables of at most so many rows."""
    return {
        "audit": audit,
        "first": First(audit, measured),
        "page": model.Page(audit, rows),
        "run": audit.run,
        "replayed": verdict.replay_words(audit),
        "curves": model.curves(audit),
        "ladders": model.ladders(audit),
        "ladder_chart": model.ladder_chart,
        "frontiers": advice.frontiers(measured),
        "advice": advice.ranked(audit),
        "paper": title,
        "papers": words.unique(info.paper for info in audit.attacks if info.paper in PAPERS),
    }


_MARKS = {
    "code": "<code>{}</code>",
    "client": '<strong class="name">{}</strong>',
    "value": "<strong>{}</strong>",
    "share": '<strong class="unbroken">{}</strong>',
}


@cache
def _template(name: str) -> jinja2.Template:
    """Compiled once: that takes longer than filling it in."""
    return environment(_MARKS).get_template(name)


def write_report(audit: Audit, path: str | Path, measured: Sequence[Point] = ()) -> Path:
    """Write the page to a new file, whole or not at all; an existing file is never replaced."""
    return write_new(path, render(audit, measured).encode("utf-8"))


CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def printed(page: str) -> bytes:
    """A page on paper (A4, PDF), by a Chromium that is installed here; nothing else is asked."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise ChooseAnotherOutput(
            f"a PDF is printed by Chromium, and none of {', '.join(CHROMIUM)} is installed here; "
            "write .html and print it from a browser"
        )
    with tempfile.TemporaryDirectory(prefix="overheard-print-") as folder:
        file, sheet = Path(folder, "report.html"), Path(folder, "report.pdf")
        file.write_text(page, encoding="utf-8")
        flags = ["--headless", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        flags += [f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
        flags += ["--no-sandbox"] * (os.geteuid() == 0)  # which Chromium has none of as root
        ran = subprocess.run(  # nosec B603  # a browser of this machine, a page of ours
            [program, *flags, f"--print-to-pdf={sheet}", file.as_uri()], capture_output=True
        )
        if not sheet.is_file():
            last = ran.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise ChooseAnotherOutput(
                f"{program} printed nothing ({visible(' '.join(last))}); write .html and print it "
                "from a browser"
            )
        return sheet.read_bytes()


def write_new(path: str | Path, content: bytes) -> Path:
    """Write a new file, whole or not at all; an existing file is never replaced."""
    file = Path(path)
    try:
        write_durably(file, [content])
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


# ------------------------------------------------------------------------------- as Markdown

EVERYTHING = 10**7
_BY_ITSELF = re.compile(
    r":(?=/)|(?<=mailto):|(?<=xmpp):|(?<=javascript):|(?<=www)\.|@", re.IGNORECASE
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def render_markdown(audit: Audit, measured: Sequence[Point] = ()) -> str:
    """The report as one Markdown document."""
    markdown = environment({"code": "**{}**"}, _text, finalize=_text)
    markdown.filters["code"] = _code
    parts = contents(audit, EVERYTHING, measured)
    return markdown.get_template("report.md.j2").render(parts).rstrip() + "\n"


def _text(words: object) -> Markup:
    """Everything that Markdown or HTML would read as markup is escaped, lines are joined, and what
    would be made a link or a mention of somebody by itself is not."""
    if isinstance(words, Markup):
        return words
    escaped = _SPECIAL.sub(r"\\\1", visible(" ".join(str(words).split())))
    return Markup(_BY_ITSELF.sub(r"\\\g<0>", escaped))  # nosec B704  # escaped for Markdown


def _code(words: str) -> Markup:
    """The same between backquotes."""
    return Markup(visible(" ".join(words.replace("`", "").split())))  # nosec B704


# ------------------------------------------------------------------------------ what to cite

PAPERS = words.WORDS["papers"]


def title(short: str) -> str:
    """A paper in words, for one who does not know its short name; ours and guesses as they are."""
    if short not in PAPERS:
        ours = {"overheard": "overheard's own", "baseline": "a guess for comparison"}
        return ours.get(short, short)
    names = [author.split(",")[0] for author in PAPERS[short]["authors"].split(" and ")]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who} ({PAPERS[short]['year']}), “{PAPERS[short]['title']}”"
