"""Which secrets are exposed, in a sentence each, and did clients train as declared?

Levels and strongest findings are the audit's (`overheard.evaluation.decision`). The sentences
about them are in ``sentences.j2``, the same for the page, Markdown and the terminal; the rule
behind the levels is on the page (`words.rules`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from overheard.evaluation.record import Audit, Replay, Secret, pooled_rate
from overheard.foreign.shown import visible
from overheard.questions.question import grouped
from overheard.report import words

NAMED = 3


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
    made.filters["secret"] = words.secret

    def marked(name: object, of: str) -> Markup:
        return Markup(marks.get(of, "{}").format(escaped(name)))  # nosec B704  # escaped

    made.filters["marked"] = marked
    return made


def plain(name: object) -> Markup:
    """On one line and without anything that hides; a page escapes it besides."""
    return name if isinstance(name, Markup) else Markup(visible(str(name)))  # nosec B704


@cache
def sentences() -> Any:
    """The macros of ``sentences.j2`` in plain text, names of secrets in backquotes."""
    text = environment({"code": "`{}`"}, plain, finalize=plain)
    return text.get_template("sentences.j2").module


@dataclass(frozen=True)
class Verdict:
    """A secret, and the sentence that answers it."""

    secret: Secret
    text: str

    @property
    def level(self) -> str:
        return self.secret.level


def verdicts(audit: Audit) -> list[Verdict]:
    """One verdict per question, or per attribute where the question is about attributes."""
    return [Verdict(s, str(sentences().verdict(audit, s))) for s in audit.secrets]


def headline(audit: Audit) -> list[str]:
    """The verdicts as plain sentences, one per question or attribute."""
    if not audit.secrets:
        return ["Nothing was measured: no attack was run."]
    return [*(verdict.text for verdict in verdicts(audit)), *guessed_orders(audit)]


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
    by = grouped(audit.replays, lambda r: r.outcome)
    fits, unchecked = by.get("fits", []), by.get("cannot be checked", [])
    unfit = [f"{r.client} ({r.reason or _off(r)})" for r in by.get("does not fit", [])]
    reasons = words.joined(words.unique(r.reason for r in unchecked), NAMED)
    counts = len(unchecked), pooled_rate(fits)
    return str(sentences().replay(len(audit.replays), fits, unfit, reasons, *counts))


def replay_lines(audit: Audit) -> list[tuple[str, str]]:
    """Each client with its outcome in words; what does not fit first."""
    order = ["does not fit", "cannot be checked", "fits"]
    return [
        (r.client, f"{r.outcome}: {r.reason or _off(r, words.count(len(r.rounds), 'round'))}")
        for r in sorted(audit.replays, key=lambda r: order.index(r.outcome))
    ]


def _off(replay: Replay, rounds: str = "") -> str:
    """off by 3.1% of its update in round 7, where replays differ by up to 4% apart"""
    text = f"off by {words.excess(replay.off or 0.0)} of its update in round {replay.round}"
    if replay.by_chance:
        text += f", where replays differ by up to {words.excess(replay.by_chance)}"
    return f"{text}; {rounds} replayed" if rounds else text
