"""What does a finding look like, and who sees which arrow? Drawings as inline SVG.

A chart of findings is a list of rows, one per client, each a small SVG whose horizontal positions
are percentages: it fits a phone and a wide screen at the same letter size. So are charts of points
in a plane, whose vertical places are pixels; each has a table beside it for those who do not see
it. Attacks differ by shape, place and colour, never by colour alone. Every text goes through
`markupsafe`; there is no style attribute, because the page's Content-Security-Policy allows none.
`picture` makes a file that stands alone of such charts, with the page's own rules for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from overheard.evaluation.record import Bin, Finding
from overheard.foreign.shown import visible
from overheard.questions.question import Topic
from overheard.report import words

LANE = 18
"""Height of one attack's lane in a row, in CSS pixels; page.css has the same number."""
_MARGIN = 2.5  # per cent of the width kept free left and right, so that no marker is cut
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",  # disc
    "M-4.5,-4.5H4.5V4.5H-4.5Z",  # square
    "M0,-5.8L5.6,4.4H-5.6Z",  # triangle
    "M0,-6.2L6.2,0L0,6.2L-6.2,0Z",  # diamond
    "M0,5.8L5.6,-4.4H-5.6Z",  # triangle, point down
    "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",  # cross
)
SERIES = 2 * len(SHAPES)
"""Distinct looks: each shape filled, then each hollow; after that they repeat."""


def tag(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """One element; names of attributes lose a trailing underscore, the others become hyphens."""
    inside = "".join(escape(child) for child in children)
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{inside}</{name}>")  # nosec B704  # escaped two lines above


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
        return ends + [value for _, value, _ in self.guesses]

    @property
    def words(self) -> str:
        """What the row shows, for those who do not see it."""
        found = [f"{lane.found.attack} {lane.text}" for lane in self.lanes]
        return "; ".join([*found, *(text for _, _, text in self.guesses)])

    @property
    def guesses(self) -> list[tuple[str, float, str]]:
        """What takes no listening: its kind, its value, and both in words."""
        values = {"majority": self.majority, "imputation": self.imputation}
        return [
            (kind, value, f"{_GUESSES[kind]} {words.percent(value, 1)}")
            for kind, value in values.items()
            if value is not None
        ]


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


def key(number: int) -> Markup:
    """An attack's marker on its own, for the legend and for tables."""
    mark = tag("path", d=SHAPES[number % len(SHAPES)])
    return tag("svg", mark, class_=f"key {look(number)}", viewBox="-8 -8 16 16", aria_hidden="true")


def reference_key(kind: str) -> Markup:
    """A reference line on its own, for the legend."""
    line = tag("line", x1="0", x2="0", y1="-8", y2="8", class_=kind)
    shapes = (line, tag("path", d=_REFERENCES[kind], class_=kind))
    return tag("svg", *shapes, class_="key", viewBox="-8 -8 16 16", aria_hidden="true")


def row_figure(row: Row, scale: Scale) -> Markup:
    """The row's drawing: grey up to what takes no listening, then a dot and interval per attack."""
    height = LANE * len(row.lanes) + 8
    parts: list[Markup] = [tag("title", row.label), tag("desc", row.words)]
    if row.guesses:
        end = scale.at(max(value for _, value, _ in row.guesses))
        parts.append(tag("rect", x="0", y="0", width=f"{end}%", height=height, class_="free"))
    parts += [_vertical(scale.at(value), height, "grid") for value, _ in scale.ticks()]
    if row.limit is not None:
        parts.append(_vertical(scale.at(row.limit), height, "limit"))
    for kind, value, text in row.guesses:
        head = tag("path", d=_REFERENCES[kind], class_=kind)
        head = tag("svg", head, x=f"{scale.at(value)}%", y=6)
        line = _vertical(scale.at(value), height, kind)
        parts.append(tag("g", tag("title", text), line, head))
    parts += [_lane(lane, scale, 4 + LANE * i + LANE // 2, row) for i, lane in enumerate(row.lanes)]
    return tag("svg", *parts, class_="plot", height=height, role="img", aria_label=row.label)


@dataclass(frozen=True)
class Chart:
    """Rows under each other, each with its drawing, and their axis.

    ``attacks``: numbers of those that are drawn; ``hidden``: rows that are not.
    """

    name: str
    rows: tuple[tuple[Row, Markup], ...]
    axis: Markup
    topic: Topic | None = None
    hidden: int = 0

    @property
    def attacks(self) -> list[int]:
        return list(dict.fromkeys(lane.attack for row, _ in self.rows for lane in row.lanes))


def chart(
    name: str, rows: Sequence[Row], scale: Scale | None = None, topic: Topic | None = None,
    hidden: int = 0,
) -> Chart:  # fmt: skip
    """Rows on a scale; without one, of shares, on that which holds them."""
    scale = scale or share_scale([value for row in rows for value in row.values])
    drawn = tuple((row, row_figure(row, scale)) for row in rows if row.lanes)
    return Chart(name, drawn, axis(scale), topic, hidden)


def axis(scale: Scale) -> Markup:
    """The labels under the rows."""
    labels = [
        tag("text", label, x=f"{scale.at(value)}%", y="14", text_anchor="middle")
        for value, label in scale.ticks()
    ]
    return tag("svg", *labels, class_="plot axis", height=20, aria_hidden="true")


_REFERENCES = {"majority": "M-4.5,-6H4.5L0,1Z", "imputation": "M0,-6L4,-2L0,2L-4,-2Z"}
_GUESSES = {
    "majority": "the majority baseline",
    "imputation": "the imputation baseline",
}


def look(number: int) -> str:
    """The classes of a look: its colour, and whether it is hollow."""
    hollow = " hollow" if number % SERIES >= len(SHAPES) else ""
    return f"s{number % len(SHAPES)}{hollow}"


def shape(number: int) -> Markup:
    """The marker of a look."""
    return tag("path", d=SHAPES[number % len(SHAPES)], class_="mark")


def _vertical(place: float, height: int, kind: str) -> Markup:
    return tag("line", x1=f"{place}%", x2=f"{place}%", y1="0", y2=height, class_=kind)


def _lane(lane: Lane, scale: Scale, y: int, row: Row) -> Markup:
    low, high = f"{scale.at(lane.found.low)}%", f"{scale.at(lane.found.high)}%"
    labels = [f"{row.label}, {lane.found.attack}: {lane.text}", *(t for _, _, t in row.guesses)]
    parts = [
        tag("title", "; ".join(labels)),
        tag("line", x1=low, x2=high, y1=y, y2=y, class_="interval"),
        *(tag("line", x1=x, x2=x, y1=y - 4, y2=y + 4, class_="end") for x in (low, high)),
    ]
    parts.append(tag("svg", shape(lane.look), x=f"{scale.at(lane.found.value)}%", y=y))
    return tag("g", *parts, class_=f"lane {look(lane.look)}", data_a=str(lane.attack))


def threat_picture(name: str) -> Markup | None:
    """The drawing of a shipped threat model; none for one that we do not know."""
    if name not in words.WORDS["actors"]:
        return None
    file = resources.files("overheard.report") / "threats" / f"{name}.svg"
    drawn = "".join(file.read_text(encoding="utf-8").splitlines())
    return Markup(drawn)  # nosec B704  # a file of this package


# ------------------------------------------------------------------------- points in a plane


HEIGHT = 190
_TOP, _BOTTOM = 12, 164
_LEFT, _RIGHT = 9.0, 97.0
Labels = Sequence[tuple[float, str]]


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
        self.parts: list[Markup] = []
        for value, label in upward:
            self.level(value, "grid")
            y_ = self.y.at(value) + 4
            self.parts.append(tag("text", label, x=f"{_LEFT - 1}%", y=y_, text_anchor="end"))
        for value, label in across:
            x_ = f"{self.x.at(value)}%"
            self.parts.append(_line(x_, x_, _TOP, _BOTTOM, "grid"))
            self.parts.append(tag("text", label, x=x_, y=_BOTTOM + 18, text_anchor="middle"))

    def level(self, value: float, kind: str) -> None:
        """A line across."""
        y = self.y.at(value)
        self.parts.append(_line(f"{_LEFT}%", f"{_RIGHT}%", y, y, kind))

    def segment(self, x: tuple[float, float], y: tuple[float, float], kind: str) -> None:
        """From the first x and y to the second."""
        x1, x2 = (f"{self.x.at(value)}%" for value in x)
        self.parts.append(_line(x1, x2, self.y.at(y[0]), self.y.at(y[1]), kind))

    def join(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through the points that are finite."""
        for (x1, y1), (x2, y2) in pairwise(p for p in points if isfinite(p[0]) and isfinite(p[1])):
            self.segment((x1, x2), (y1, y2), kind)

    def drawn(self, name: str, marks: Sequence[Mark]) -> Markup:
        for m in marks:
            x, low, high = f"{self.x.at(m.x)}%", self.y.at(m.low), self.y.at(m.high)
            point = tag("svg", shape(m.look), x=x, y=self.y.at(m.y))
            parts = (tag("title", m.text), _line(x, x, low, high, "interval"), point)
            self.parts.append(tag("g", *parts, class_=f"lane {look(m.look)}"))
        titles = tag("title", name), tag("desc", "; ".join(m.text for m in marks))
        how = {"class_": "plot plane", "height": HEIGHT, "role": "img", "aria_label": name}
        return tag("svg", *titles, *self.parts, **how)  # type: ignore[arg-type]


def _line(x1: str, x2: str, y1: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=x1, x2=x2, y1=y1, y2=y2, class_=kind)


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


def by_rounds(
    line: Sequence[Finding], references: Sequence[tuple[float, str]], name: str
) -> Markup:
    """What was learned against the number of rounds observed, which is logarithmic."""
    most = max(h.rounds for h in line)
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

_WIDTH, _GAP = 700, 40
_LONGEST = 110  # letters of a caption or name


def picture(title: str, charts: Sequence[tuple[str, Markup]], names: Sequence[str] = ()) -> str:
    """An SVG file: charts under each other, each below its caption, then the names of their looks.

    It has no style but the page's rules for charts and no date: equal numbers give equal bytes.
    """
    page = (resources.files("overheard.report") / "page.css").read_text(encoding="utf-8")
    rules = page[: page.index("@media")] + page[page.index("\n.plot {") : page.index("\n.dim {")]
    white = tag("rect", width="100%", height="100%", fill="#ffffff")
    parts = [tag("title", visible(title)), tag("style", rules), white]
    y = 0
    for caption, drawn in charts:
        parts.append(_text(caption, "50%", y + 20, "middle"))
        parts.append(tag("svg", drawn, y=y + 26, height=HEIGHT))
        y += HEIGHT + _GAP
    for number, name in enumerate(names):
        parts.append(tag("svg", shape(number), class_=look(number), x="3%", y=y + 8))
        parts.append(_text(name, "5%", y + 12))
        y += 18
    whole = tag(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {y + 8}",
        width=_WIDTH, height=y + 8, class_="plot", role="img", font_family="sans-serif",
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'


def _text(words: str, x: str, y: float, anchor: str | None = None) -> Markup:
    """A name that anybody may have chosen is text, and not longer than its place."""
    shown = visible(words)
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return tag("text", shown, x=x, y=y, text_anchor=anchor)
