"""What does a finding look like, and who sees which arrow? Drawings as inline SVG.

A chart of findings is a list of rows, one per client, each a small SVG whose horizontal positions
are percentages. So are charts of points in a plane, whose vertical places are pixels; each has a
table beside it for those who do not see it. Here is settled what stands where; ``charts.j2`` draws
it. `picture` makes a file that stands alone of such charts, with the page's own rules for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any

from markupsafe import Markup

from overheard.evaluation.record import Bin, Finding
from overheard.foreign.shown import visible
from overheard.questions.question import Topic
from overheard.report import words
from overheard.report.verdict import environment

HEIGHT = 190
"""Of charts of points in a plane, in CSS pixels."""
_MARGIN = 2.5  # per cent of the width kept free left and right, so that no marker is cut
Labels = Sequence[tuple[float, str]]


@cache
def drawing() -> Any:
    """The macros of ``charts.j2``."""
    return environment({}).get_template("charts.j2").module


@dataclass(frozen=True)
class Scale:
    """Where a value stands on an axis from ``begin`` to ``end``: in per cent of the width, or in
    pixels from the top. Of a logarithmic one ``least`` and ``most`` are exponents of 10."""

    least: float
    most: float
    log: bool = False
    begin: float = _MARGIN
    end: float = 100 - _MARGIN
    digits: int = 2

    def at(self, value: float) -> float:
        """Its place; what is off the axis stands at its end."""
        low, high = self.least, self.most
        if self.log:
            value = log10(value) if value > 0 else low
        place = (min(max(value, low), high) - low) / (high - low)
        return round(self.begin + place * (self.end - self.begin), self.digits)

    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels, about six of them."""
        if self.log:
            step = max(1, ceil((self.most - self.least) / 6))
            exponents = range(round(self.least), round(self.most) + 1)
            return [(10.0**e, words.power_of_ten(e)) for e in exponents if (e + 2) % step == 0]
        tenths = range(round(10 * self.least), round(10 * self.most) + 1)
        step = 2 if len(tenths) > 6 else 1
        return [(t / 10, f"{10 * t}%") for t in tenths if (tenths[-1] - t) % step == 0]


@dataclass(frozen=True)
class Lane:
    """One attack in one row: its number in the page, its look in the chart, what it found."""

    attack: int
    look: int
    found: Finding
    text: str


@dataclass(frozen=True)
class Row:
    """One client, or all of them pooled; ``client`` is its number, None for the pooled row."""

    label: str
    note: str
    client: int | None
    lanes: tuple[Lane, ...]
    majority: float | None = None
    imputation: float | None = None
    limit: float | None = None

    @property
    def values(self) -> list[float]:
        """What an axis must hold."""
        ends = [end for lane in self.lanes for end in (lane.found.low, lane.found.high)]
        return ends + [value for _, value in self.guesses]

    @property
    def guesses(self) -> list[tuple[str, float]]:
        """What takes no listening: its kind and its value."""
        values = {"majority": self.majority, "imputation": self.imputation}
        return [(kind, value) for kind, value in values.items() if value is not None]


def share_scale(values: Sequence[float]) -> Scale:
    """An axis for shares, in whole tenths, that holds all the values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    least = max(0.0, floor(10 * low - 0.2) / 10)
    most = min(1.0, ceil(10 * high + 0.2) / 10)
    return Scale(least, most) if most > least else Scale(0.0, 1.0)


def loss_scale(values: Sequence[float]) -> Scale:
    """A logarithmic axis in whole decades; what is zero or below stands at its left end."""
    positive = [v for v in values if v > 0]
    least = floor(log10(min(positive))) if positive else -6
    most = ceil(log10(max(positive))) if positive else 0
    if len(positive) < len(values):
        least -= 1
    return Scale(max(least, -16), max(most, least + 1, -15), log=True)


@dataclass(frozen=True)
class Chart:
    """Rows under each other, on one scale. ``hidden``: how many rows are not drawn."""

    rows: Sequence[Row]
    scale: Scale
    topic: Topic | None = None
    hidden: int = 0

    @property
    def attacks(self) -> list[int]:
        """Numbers of those that are drawn."""
        return list(dict.fromkeys(lane.attack for row in self.rows for lane in row.lanes))


def threat_picture(name: str) -> Markup | None:
    """The drawing of a shipped threat model; none for one that we do not know."""
    if name not in words.WORDS["actors"]:
        return None
    file = resources.files("overheard.report") / "threats" / f"{name}.svg"
    drawn = "".join(file.read_text(encoding="utf-8").splitlines())
    return Markup(drawn)  # nosec B704  # a file of this package


# ------------------------------------------------------------------------- points in a plane


_TOP, _BOTTOM = 12, 164
_LEFT, _RIGHT = 9.0, 97.0


@dataclass(frozen=True)
class Mark:
    """A point with its interval, in words and with its look."""

    x: float
    y: float
    low: float
    high: float
    text: str
    look: int = 0


class Plane:
    """Two axes, set where a chart has room for them, and what is drawn between them."""

    def __init__(self, x: Scale, y: Scale, across: Labels, upward: Labels) -> None:
        self.x = replace(x, begin=_LEFT, end=_RIGHT)
        self.y = replace(y, begin=_BOTTOM, end=_TOP, digits=1)
        self.across, self.upward = across, upward
        self.lines: list[tuple[str, str, float, float, str]] = []

    def level(self, value: float, kind: str) -> None:
        """A line across."""
        y = self.y.at(value)
        self.lines.append((f"{_LEFT}%", f"{_RIGHT}%", y, y, kind))

    def segment(self, x: tuple[float, float], y: tuple[float, float], kind: str) -> None:
        """From the first x and y to the second."""
        (x1, x2), (y1, y2) = map(self.x.at, x), map(self.y.at, y)
        self.lines.append((f"{x1}%", f"{x2}%", y1, y2, kind))

    def join(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through the points that are finite."""
        for (x1, y1), (x2, y2) in pairwise(p for p in points if isfinite(p[0]) and isfinite(p[1])):
            self.segment((x1, x2), (y1, y2), kind)

    def drawn(self, name: str, marks: Sequence[Mark]) -> Markup:
        figure: Markup = drawing().plane(self, name, marks, HEIGHT)
        return figure


def reliability(bins: Sequence[Bin], name: str) -> Markup:
    """Share guessed right against the probability claimed; on the diagonal they agree."""
    # at least the upper half: the chosen one of two values never has less than one half
    least = int(10 * min([0.5, *(b.least for b in bins), *(b.low for b in bins)])) / 10
    scale = Scale(least, 1.0)
    plane = Plane(scale, scale, scale.ticks(), scale.ticks())
    plane.segment((least, 1.0), (least, 1.0), "limit")
    marks = [
        Mark(b.confidence, b.right, b.low, b.high, f"claimed {words.percent(b.confidence, 1)}, "
             f"right {words.interval(b.right, b.low, b.high, 1)}, {words.count(b.n, 'record')}")
        for b in bins
    ]  # fmt: skip
    return plane.drawn(f"Reliability of {name}", marks)


def by_rounds(line: Sequence[Finding], name: str) -> Markup:
    """What was learned against the number of rounds observed, which is logarithmic; of shares,
    beside the guesses of the last."""
    most, last = line[-1].rounds, line[-1]
    guesses = [(last.majority, "majority"), (last.imputation, "imputation")]
    references = [(v, kind) for v, kind in guesses if v is not None and last.measure.share]
    values = [v for h in line for v in (h.value, h.low, h.high)] + [v for v, _ in references]
    y = share_scale(values) if line[0].measure.share else loss_scale(values)
    x = Scale(0.0, max(log10(most), 0.3), log=True)
    rounds = [10**d for d in range(9) if 10**d <= most]
    if x.at(most) - x.at(rounds[-1]) > 12:
        rounds.append(most)
    heights = [(value, label.partition(" ")[0]) for value, label in y.ticks()]
    plane = Plane(x, y, [(float(r), words.count(r)) for r in rounds], heights)
    for value, kind in references:
        plane.level(value, kind)
    plane.join([(h.rounds, h.value) for h in line], "join")
    labels = [f"{words.count(h.rounds, 'round')}: {words.value(h)}" for h in line]
    marks = [Mark(h.rounds, h.value, h.low, h.high, t) for h, t in zip(line, labels, strict=True)]
    return plane.drawn(f"{name} by rounds observed", marks)


def scatter(marks: Sequence[Mark], y_name: str, best: Sequence[tuple[float, float]] = ()) -> Markup:
    """Leakage (horizontal, a share) against utility (vertical); a line through the ``best``."""
    values = [v for m in marks for v in (m.low, m.y, m.high)]
    low, high = min(values), max(values)
    pad, most = max(0.02, 0.1 * (high - low)), max([0.1, *(m.x for m in marks)])
    across = [(most * k / 4, words.percent(most * k / 4)) for k in range(5)]
    heights = [low + (high - low) * k / 3 for k in range(4)] if high > low else [low]
    upward = [(h, f"{h:.2f}".replace("-", "−")) for h in heights]
    plane = Plane(Scale(0.0, 1.05 * most), Scale(low - pad, high + pad), across, upward)
    plane.join(best, "limit")
    return plane.drawn(f"Leakage against {y_name}", marks)


# ------------------------------------------------------------------ pictures that stand alone

_LONGEST = 110  # letters of a caption or name


def picture(title: str, charts: Sequence[tuple[str, Markup]], names: Sequence[str] = ()) -> str:
    """An SVG file: charts under each other, each below its caption, then the names of their looks.

    It has no style but the page's rules for charts and no date: equal numbers give equal bytes.
    """
    page = (resources.files("overheard.report") / "page.css").read_text(encoding="utf-8")
    rules = page[: page.index("@media")] + page[page.index("\n.plot {") : page.index("\n.dim {")]
    shown = [(_short(caption), drawn) for caption, drawn in charts]
    whole = drawing().picture(visible(title), rules, shown, list(map(_short, names)), HEIGHT)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'


def _short(name: str) -> str:
    """A name of somebody else as text, and not longer than its place."""
    shown = visible(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
