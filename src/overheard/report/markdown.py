"""The report as Markdown: for a pull request, a wiki, a terminal.

The same contents as the page, shorter, by a template of its own. What it fills in is escaped unless
the template says that it is ours, so that a column called ``<script>`` stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from overheard.evaluation.record import Audit
from overheard.foreign.shown import visible
from overheard.report.advice import Measured
from overheard.report.html import contents, environment
from overheard.report.verdict import Verdict

EVERYTHING = 10**7
_BY_ITSELF = re.compile(
    r":(?=/)|(?<=mailto):|(?<=xmpp):|(?<=javascript):|(?<=www)\.|@", re.IGNORECASE
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def render_markdown(
    audit: Audit, measured: Sequence[Measured] = (), show_records: bool = False
) -> str:
    """The report as one Markdown document."""
    markdown = environment(finalize=_text)
    markdown.filters |= {"code": _code, "sentence": _sentence}
    told = contents(audit, EVERYTHING, (), measured, show_records)
    return markdown.get_template("report.md.j2").render(told).rstrip() + "\n"


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


def _sentence(answer: Verdict) -> Markup:
    safe = {name: str(_text(said)) for name, said in answer.names.items()}
    safe |= {"secret": f"**{safe['secret']}**"}
    return Markup(answer.pattern.format(**safe))  # nosec B704  # a sentence of ours; names escaped
