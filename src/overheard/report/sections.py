"""How sure is the adversary, and how long did it have to listen? The record's fields, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.decision import topic_of
from overheard.evaluation.record import (
    Audit,
    Bin,
    Finding,
    Heard,
    KnownShare,
    Pooled,
    Sureness,
)
from overheard.questions.question import Topic
from overheard.report import curves, judging, verdict, words
from overheard.report.judging import Judged


@dataclass(frozen=True)
class SureClient:
    """One client's counts; ``rows`` are row numbers, empty unless they were asked for."""

    name: str
    number: int
    n: int
    sure: Sureness
    rows: str


@dataclass(frozen=True)
class Sure:
    """One secret: how sure the strongest attack is, over ``n`` records of all clients of which its
    probabilities hold, and client by client."""

    topic: Topic
    pooled: Pooled
    sure: Sureness
    n: int
    bars: tuple[tuple[str, Bin, Markup], ...]
    reliability: Markup
    clients: tuple[SureClient, ...]
    has_rows: bool


@dataclass(frozen=True)
class Listened:
    """One secret: what the strongest attack learned from ever more rounds."""

    topic: Topic
    attack: str
    client: str
    line: tuple[tuple[Heard, str], ...]
    figure: Markup
    majority: str
    imputation: str


@dataclass(frozen=True)
class Covered:
    """One attribute of one client: what is learned when only a share of its records is known."""

    attribute: str
    attack: str
    client: str
    line: tuple[tuple[KnownShare, str], ...]
    figure: Markup


def covered(audit: Audit) -> list[Covered]:
    """The attributes for which the record has more than one share."""
    lines: dict[tuple[str, str, str], list[KnownShare]] = {}
    for c in audit.covered:
        lines.setdefault((c.attribute, c.attack, c.client), []).append(c)
    found = []
    for (attribute, attack, client), line in lines.items():
        if len(line) > 1:
            line.sort(key=lambda c: c.coverage)
            rows = tuple((c, words.interval(c.value, c.low, c.high, 1)) for c in line)
            figure = curves.by_coverage(line, f"{attack} on {attribute}")
            found.append(Covered(attribute, attack, client, rows, figure))
    return found


def sure(
    audit: Audit, pooled: Sequence[Judged], numbers: dict[str, int], show_records: bool, most: int
) -> list[Sure]:
    """The secrets of which the record says how sure the adversary is."""
    found = []
    for topic in verdict.topics(audit):
        about = [
            j
            for j in pooled
            if j.topic == topic
            and not j.baseline
            and j.finding.sure is not None
            and not j.finding.flag
        ]
        best = judging.strongest(about)
        if best is None or best.finding.sure is None or not isinstance(best.finding, Pooled):
            continue
        row, sureness = best.finding, best.finding.sure
        asked = sum(b.n for b in sureness.bins)  # without clients where the truth contradicts it
        name = f"{row.attack} on {topic.name}"
        clients = [
            _client(f, f.sure, numbers, show_records)
            for f in audit.findings
            if f.attack == row.attack and topic_of(f) == topic and f.sure is not None and not f.flag
        ]
        clients.sort(key=lambda c: -c.sure.certain / max(c.n, 1))
        found.append(
            Sure(
                topic,
                row,
                sureness,
                asked,
                tuple((_between(b), b, curves.share_bar(b.n, asked)) for b in sureness.bins),
                curves.reliability(sureness.bins, name),
                tuple(clients[:most]),
                show_records,
            )
        )
    return found


def listened(audit: Audit) -> list[Listened]:
    """The secrets for which the record has more than one number of rounds."""
    lines: dict[tuple[Topic, str, str], list[Heard]] = {}
    for h in audit.heard:
        lines.setdefault((topic_of(h), h.attack, h.client), []).append(h)
    first: dict[tuple[Topic, str, str], Finding] = {}
    for f in audit.findings:
        first.setdefault((topic_of(f), f.attack, f.client), f)
    found = []
    for (topic, attack, client), line in lines.items():
        if len(line) < 2:
            continue
        best = first.get((topic, attack, client))
        share = topic.measure.share
        majority = best.majority if best and share else None
        imputation = best.imputation if best and share else None
        references = [(majority, "majority"), (imputation, "imputation")]
        known = [(value, kind) for value, kind in references if value is not None]
        line.sort(key=lambda h: h.rounds)
        found.append(
            Listened(
                topic,
                attack,
                client,
                tuple((h, curves.text(h)) for h in line),
                curves.by_rounds(line, known, f"{attack} on {topic.name}"),
                "" if majority is None else words.percent(majority, 1),
                "" if imputation is None else words.percent(imputation, 1),
            )
        )
    return found


def _client(found: Finding, sureness: Sureness, numbers: dict[str, int], show: bool) -> SureClient:
    rows = ", ".join(str(row) for row in sureness.rows) if show else ""
    return SureClient(found.client, numbers[found.client], found.n, sureness, rows)


def _between(one: Bin) -> str:
    if one.most == 1.0:
        return f"beyond {words.percent(one.least)}"
    return f"{100 * one.least:.0f}–{100 * one.most:.0f}%"
