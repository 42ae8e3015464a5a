"""What does a finding look like, and who sees which arrow? Drawings as inline SVG.

A chart of findings is a list of rows, one per client, each a small SVG whose horizontal positions
are percentages: it fits a phone and a wide screen at the same letter size. Attacks differ by shape,
place and colour, never by colour alone. Every text goes through `markupsafe`; there is no style
attribute, because the page's Content-Security-Policy allows none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from math import ceil, floor, log10

from markupsafe import Markup

from overheard.evaluation.record import Climbed, Finding, Pooled
from overheard.plot import SHAPES, tag
from overheard.report import words

LANE = 18
"""Height of one attack's lane in a row, in CSS pixels; page.css has the same number."""
_MARGIN = 2.5  # per cent of the width kept free left and right, so that no marker is cut
SERIES = 2 * len(SHAPES)
"""Distinct looks: each shape filled, then each hollow; after that they repeat."""


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
    found: Finding | Pooled | Climbed
    text: str

    @property
    def bound(self) -> float | None:
        """What theory promises it, where it does."""
        return self.found.bound if isinstance(self.found, Finding) else None


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
    """Rows of shares under each other, each with its drawing, and their axis."""

    name: str
    rows: tuple[tuple[Row, Markup], ...]
    axis: Markup


def shares(*named: tuple[str, Sequence[Row]]) -> list[Chart]:
    """Charts of shares with their names, all on one axis."""
    scale = share_scale([value for _, rows in named for row in rows for value in row.values])
    return [
        Chart(name, tuple((row, row_figure(row, scale)) for row in rows), axis(scale))
        for name, rows in named
    ]


def axis(scale: Scale) -> Markup:
    """The labels under the rows."""
    labels = [
        tag("text", label, x=f"{scale.at(value)}%", y="14", text_anchor="middle")
        for value, label in scale.ticks()
    ]
    return tag("svg", *labels, class_="plot axis", height=20, aria_hidden="true")


_REFERENCES = {"majority": "M-4.5,-6H4.5L0,1Z", "imputation": "M0,-6L4,-2L0,2L-4,-2Z"}
_GUESSES = {
    "majority": "always guessing the commonest value",
    "imputation": "a stranger without listening",
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
    told = [f"{row.label}, {lane.found.attack}: {lane.text}", *(t for _, _, t in row.guesses)]
    told += [] if lane.bound is None else [f"bound {words.percent(lane.bound, 1)}"]
    parts = [
        tag("title", "; ".join(told)),
        tag("line", x1=low, x2=high, y1=y, y2=y, class_="interval"),
        *(tag("line", x1=x, x2=x, y1=y - 4, y2=y + 4, class_="end") for x in (low, high)),
    ]
    if lane.bound is not None and lane.bound >= scale.least:
        bracket = tag("path", d="M4,-7H0V7H4", class_="bound")
        parts.append(tag("svg", bracket, x=f"{scale.at(lane.bound)}%", y=y))
    parts.append(tag("svg", shape(lane.look), x=f"{scale.at(lane.found.value)}%", y=y))
    return tag("g", *parts, class_=f"lane {look(lane.look)}", data_a=str(lane.attack))


_THREATS = ("eavesdropper", "server", "isolating-server", "secure-server")


def threat_picture(name: str) -> Markup | None:
    """The drawing of a shipped threat model; none for one that we do not know."""
    if name not in _THREATS:
        return None
    file = resources.files("overheard.report") / "threats" / f"{name}.svg"
    drawn = "".join(file.read_text(encoding="utf-8").splitlines())
    return Markup(drawn)  # nosec B704  # a file of this package
