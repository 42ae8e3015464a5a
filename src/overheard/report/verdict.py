"""Which secrets are exposed, in a sentence each, and did clients train as declared?

Levels and strongest findings are the audit's (`overheard.evaluation.decision`). The sentences
about them are in ``sentences.j2``, the same for the page, Markdown and the terminal; the rule
behind the levels is on the page (`words.rules`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from overheard.evaluation.record import Audit, Failed, Secret, pooled_rate
from overheard.foreign.shown import visible
from overheard.questions.question import grouped
from overheard.report import words


def environment(
    marks: Mapping[str, str], escaped: Callable[[object], Any] = escape, **how: Any
) -> jinja2.Environment:
    """Templates of this folder, in which everything is escaped that is not ours. ``marks``: by what
    it is a name of, the markup around a name."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("overheard.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        **how,
    )
    made.globals |= {"words": words, "alike": alike}

    def marked(name: object, of: str) -> Markup:
        return Markup(marks.get(of, "{}").format(escaped(name)))  # nosec B704  # escaped

    made.filters |= {"secret": words.secret, "marked": marked}
    return made


def plain(name: object) -> Markup:
    """On one line and without anything that hides; a page escapes it besides."""
    return name if isinstance(name, Markup) else Markup(visible(str(name)))  # nosec B704


@cache
def sentences() -> Any:
    """The macros of ``sentences.j2`` in plain text, names of secrets in backquotes."""
    text = environment({"code": "`{}`"}, plain, finalize=plain)
    return text.get_template("sentences.j2").module


def verdict(audit: Audit, secret: Secret) -> str:
    """The sentence that answers it."""
    return str(sentences().verdict(audit, secret))


def headline(audit: Audit) -> list[str]:
    """The verdicts as plain sentences, one per question or attribute."""
    if not audit.secrets:
        return ["Nothing was measured: no attack was run."]
    return [*(verdict(audit, secret) for secret in audit.secrets), *guessed_orders(audit)]


def failures(audit: Audit) -> list[list[Failed]]:
    """What failed, together where it failed alike."""
    return list(grouped(audit.failed, lambda f: (f.attack, f.reason)).values())


def guessed_orders(audit: Audit) -> list[str]:
    """Once per seed: whose mini-batches come in an order that was guessed, and the remedy."""
    guessed = (f for f in audit.findings if f.details.get("order_guessed"))
    return [
        str(sentences().orders(", ".join(words.unique(str(f.client) for f in of)), seed))
        for seed, of in grouped(guessed, lambda f: f.details["order_guessed"]).items()
    ]


def alike(reasons: Iterable[str]) -> list[list[str]]:
    """Reasons that differ in their numbers only, together; the most frequent first."""
    groups = grouped(reasons, lambda reason: re.sub(r"[0-9][0-9.,e+-]*", "#", reason))
    return sorted(groups.values(), key=len, reverse=True)


def replay_words(audit: Audit) -> str:
    """What replaying the clients' own records under the declared training showed."""
    strange = (r for r in audit.replays if r.outcome == "does not fit")
    unfit = [f"{r.client} ({r.reason or sentences().off(r)})" for r in strange]
    return str(sentences().replay(audit.replays, unfit, pooled_rate(audit.replays)))
