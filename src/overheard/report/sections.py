"""How sure is the adversary, and how long did it have to listen? The record's fields, in order, and
small charts of points joined by lines.

Drawn as in `charts`: horizontal places are percentages, vertical ones pixels, so that letters keep
their size on any screen. Every chart has a table beside it for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log10
from typing import NamedTuple

from markupsafe import Markup

from overheard.evaluation.judged import Judged, strongest
from overheard.evaluation.record import Audit, Bin, Finding, Heard, Pooled, Sureness
from overheard.plot import tag
from overheard.questions.question import Topic, grouped
from overheard.report import charts, verdict, words

HEIGHT = 190
_TOP, _BOTTOM = 12, 164
_LEFT, _RIGHT = 9.0, 97.0


class Frame(NamedTuple):
    """The plane of a chart: where values stand, in per cent of the width and in pixels from the
    top."""

    x: charts.Scale
    y: charts.Scale


def _frame(x: charts.Scale, y: charts.Scale) -> Frame:
    """These axes, set where a chart has room for them."""
    across = replace(x, begin=_LEFT, end=_RIGHT)
    return Frame(across, replace(y, begin=_BOTTOM, end=_TOP, digits=1))


@dataclass(frozen=True)
class Mark:
    x: float
    y: float
    low: float
    high: float
    text: str
    look: int = 0


def share_bar(part: int, whole: int) -> Markup:
    """A bar as long as the part is of the whole."""
    width = 100 * part / whole if whole else 0.0
    bar = tag("rect", x="0", y="2", width=f"{max(width, 0.4):.2f}%", height="12", class_="bar")
    return tag("svg", bar, class_="plot", height=16, aria_hidden="true")


def reliability(bins: Sequence[Bin], name: str) -> Markup:
    """Share guessed right against the probability claimed; on the diagonal they agree."""
    # at least the upper half: the chosen one of two values never has less than one half
    least = min([0.5, *(b.least for b in bins), *(b.low for b in bins)])
    least = int(10 * least) / 10
    axis = charts.Scale(least, 1.0)
    frame = _frame(axis, axis)
    ticks = [
        t / 10 for t in range(round(10 * least), 11) if (10 - t) % (2 if least < 0.5 else 1) == 0
    ]
    diagonal = _segment(frame, (least, least), (1.0, 1.0), "limit")
    marks = [
        Mark(
            b.confidence,
            b.right,
            b.low,
            b.high,
            f"claimed {words.percent(b.confidence, 1)}, right "
            f"{words.interval(b.right, b.low, b.high, 1)}, {words.count(b.n, 'record')}",
        )
        for b in bins
    ]
    labels = [(t, words.percent(t)) for t in ticks]
    return _plane(frame, labels, labels, marks, f"Reliability of {name}", [diagonal], join=False)


def by_rounds(line: Sequence[Heard], references: Sequence[tuple[float, str]], name: str) -> Markup:
    """What was learned against the number of rounds heard, which is logarithmic."""
    most = max(h.rounds for h in line)
    loss = not line[0].measure.share
    values = [v for h in line for v in (h.value, h.low, h.high)] + [v for v, _ in references]
    scale = charts.loss_scale(values) if loss else charts.share_scale(values)
    frame = _frame(charts.Scale(0.0, max(log10(most), 0.3), log=True), scale)
    rounds = [10**d for d in range(9) if 10**d <= most]
    ticks = [(float(r), words.count(r)) for r in rounds]
    if frame.x.at(most) - frame.x.at(rounds[-1]) > 12:
        ticks.append((float(most), words.count(most)))
    lines = [_level(frame, value, kind) for value, kind in references]
    marks = [
        Mark(
            float(h.rounds), h.value, h.low, h.high, f"{words.count(h.rounds, 'round')}: {text(h)}"
        )
        for h in line
    ]
    heights = [(value, label.partition(" ")[0]) for value, label in scale.ticks()]
    return _plane(frame, ticks, heights, marks, f"{name} by rounds heard", lines)


def text(heard: Heard) -> str:
    return heard.measure.text(heard.value, heard.low, heard.high, 1)


def scatter(marks: Sequence[Mark], y_name: str) -> Markup:
    """Leakage (horizontal, a share) against utility (vertical)."""
    values = [v for m in marks for v in (m.low, m.y, m.high)]
    low, high = min(values), max(values)
    pad = max(0.02, 0.1 * (high - low))
    most = max([0.1, *(m.x for m in marks)])
    frame = _frame(charts.Scale(0.0, 1.05 * most), charts.Scale(low - pad, high + pad))
    steps = [most * k / 4 for k in range(5)]
    heights = [low + (high - low) * k / 3 for k in range(4)] if high > low else [low]
    return _plane(
        frame,
        [(s, words.percent(s)) for s in steps],
        [(h, f"{h:.2f}".replace("-", "−")) for h in heights],
        marks,
        f"Leakage against {y_name}",
        join=False,
    )


def _plane(
    frame: Frame,
    across: Sequence[tuple[float, str]],
    upward: Sequence[tuple[float, str]],
    marks: Sequence[Mark],
    name: str,
    lines: Sequence[Markup] = (),
    join: bool = True,
) -> Markup:
    parts = [tag("title", name), tag("desc", "; ".join(m.text for m in marks))]
    for value, label in upward:
        y = frame.y.at(value)
        parts.append(_rule(f"{_LEFT}%", f"{_RIGHT}%", y, y, "grid"))
        parts.append(tag("text", label, x=f"{_LEFT - 1}%", y=y + 4, text_anchor="end"))
    for value, label in across:
        x = f"{frame.x.at(value)}%"
        parts.append(_rule(x, x, _TOP, _BOTTOM, "grid"))
        parts.append(tag("text", label, x=x, y=_BOTTOM + 18, text_anchor="middle"))
    parts += lines
    if join:
        parts += [_segment(frame, (a.x, a.y), (b.x, b.y), "join") for a, b in pairwise(marks)]
    parts += [_point(frame, mark) for mark in marks]
    return tag("svg", *parts, class_="plot plane", height=HEIGHT, role="img", aria_label=name)


def _point(frame: Frame, mark: Mark) -> Markup:
    x, y = f"{frame.x.at(mark.x)}%", frame.y.at(mark.y)
    low, high = frame.y.at(mark.low), frame.y.at(mark.high)
    shape = tag("svg", charts.shape(mark.look), x=x, y=y)
    line = _rule(x, x, low, high, "interval")
    return tag("g", tag("title", mark.text), line, shape, class_=f"lane {charts.look(mark.look)}")


def _level(frame: Frame, value: float, kind: str) -> Markup:
    y = frame.y.at(value)
    return _rule(f"{_LEFT}%", f"{_RIGHT}%", y, y, kind)


def _segment(
    frame: Frame, start: tuple[float, float], end: tuple[float, float], kind: str
) -> Markup:
    (x1, y1), (x2, y2) = start, end
    return _rule(f"{frame.x.at(x1)}%", f"{frame.x.at(x2)}%", frame.y.at(y1), frame.y.at(y2), kind)


def _rule(x1: str, x2: str, y1: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=x1, x2=x2, y1=y1, y2=y2, class_=kind)


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


def sure(
    audit: Audit, pooled: Sequence[Judged], numbers: dict[str, int], show_records: bool, most: int
) -> list[Sure]:
    """The secrets of which the record says how sure the adversary is."""
    found = []
    for topic in verdict.topics(audit):
        about = [j for j in pooled if j.topic == topic and j.reliable and j.finding.sure]
        best = strongest(about)
        if best is None or best.finding.sure is None or not isinstance(best.finding, Pooled):
            continue
        row, sureness = best.finding, best.finding.sure
        asked = sum(b.n for b in sureness.bins)  # without clients where the truth contradicts it
        name = f"{row.attack} on {topic.name}"
        clients = [
            _client(f, f.sure, numbers, show_records)
            for f in audit.findings
            if f.attack == row.attack and f.topic == topic and f.sure is not None and not f.flag
        ]
        clients.sort(key=lambda c: -c.sure.certain / max(c.n, 1))
        found.append(
            Sure(
                topic,
                row,
                sureness,
                asked,
                tuple((_between(b), b, share_bar(b.n, asked)) for b in sureness.bins),
                reliability(sureness.bins, name),
                tuple(clients[:most]),
                show_records,
            )
        )
    return found


def listened(audit: Audit) -> list[Listened]:
    """The secrets for which the record has more than one number of rounds."""
    lines = grouped(audit.heard, lambda h: (h.topic, h.attack, h.client))
    whole = grouped(audit.findings, lambda f: (f.topic, f.attack, f.client))
    found = []
    for (topic, attack, client), line in lines.items():
        if len(line) < 2:
            continue
        best = whole.get((topic, attack, client))
        share = topic.measure.share
        majority = best[0].majority if best and share else None
        imputation = best[0].imputation if best and share else None
        references = [(majority, "majority"), (imputation, "imputation")]
        known = [(value, kind) for value, kind in references if value is not None]
        line.sort(key=lambda h: h.rounds)
        found.append(
            Listened(
                topic,
                attack,
                client,
                tuple((h, text(h)) for h in line),
                by_rounds(line, known, f"{attack} on {topic.name}"),
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
