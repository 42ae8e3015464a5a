"""What does a picture of numbers look like? Panels of lines and marks under each other, as one SVG.

A `Panel` is two axes and what is drawn between them, a `Series` one line, cloud or row of strokes;
`figure` sets one legend below all panels. It stands alone: no style sheet, no font but the reader's
own, no date, so that the same numbers give the same bytes. Every text goes through `markupsafe`,
and what a reader would not see in a name is spelled out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from overheard.foreign.shown import visible

# colour-blind safe (Okabe and Ito), and every series may have a shape of its own
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A400")
GREY = "#888888"
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",  # disc
    "M-4.5,-4.5H4.5V4.5H-4.5Z",  # square
    "M0,-5.8L5.6,4.4H-5.6Z",  # triangle
    "M0,-6.2L6.2,0L0,6.2L-6.2,0Z",  # diamond
    "M0,5.8L5.6,-4.4H-5.6Z",  # triangle, point down
    "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",  # cross
)
_DASHES = {"dashed": "5 3"}
_LETTER = 5.6  # a letter's width at the size of 10, on the average
_LONGEST, _LONGEST_TURNED = 44, 24
_TOP, _LEFT, _BOTTOM, _RIGHT = 24, 70, 40, 16

Stroke = tuple[float, float, float, float]
"""From (x, y) to (x, y)."""


@dataclass(frozen=True)
class Series:
    """Points (x, y) and how they are drawn; a value that is not finite is left out.

    ``line``: "solid", "dashed" or nothing; ``mark``: the number of a shape. ``strokes``: straight
    lines of their own, such as an interval at each point or a bar, ``thick`` in pixels. ``name``:
    its words in the legend; none, and it has none.
    """

    x: Sequence[float] = ()
    y: Sequence[float] = ()
    name: str = ""
    colour: str = COLOURS[0]
    line: str = ""
    mark: int | None = None
    hollow: bool = False
    width: float = 1.4
    strokes: Sequence[Stroke] = ()
    thick: float = 0.8


@dataclass(frozen=True)
class Axis:
    """What is along it; ``least`` and ``most`` where they are not those of what is drawn.

    ``ticks``: places and words, for an axis of names; else they are numbers at round places.
    """

    label: str = ""
    log: bool = False
    least: float | None = None
    most: float | None = None
    ticks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes and what is drawn between them."""

    series: Sequence[Series]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""


def tag(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """One element; names of attributes lose a trailing underscore, the others become hyphens."""
    inside = "".join(escape(child) for child in children)
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{inside}</{name}>")  # nosec B704  # escaped two lines above


def figure(panels: Sequence[Panel], title: str = "", size: tuple[int, int] = (620, 260)) -> str:
    """The whole picture as the text of an SVG file; ``size`` is that of a panel's inside."""
    wide, high = size
    width, y = _LEFT + wide + _RIGHT, 30 if title else 8
    white = tag("rect", width="100%", height="100%", fill="#ffffff")
    parts = [white, _text(title, width / 2, 19, size=13)]
    for panel in panels:
        inside = _panel(panel, wide, high)
        parts.append(tag("g", *inside, transform=f"translate({_LEFT},{y + _TOP})"))
        y += _TOP + high + _under(panel.x)
    legend, more = _legend(panels, width - 2 * _RIGHT)
    parts.append(tag("g", *legend, transform=f"translate({_RIGHT},{y + 4})"))
    whole = tag(
        "svg", tag("title", visible(title or panels[0].title if panels else title)), *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {y + 4 + more}",
        width=width, height=y + 4 + more, role="img", font_family="sans-serif", font_size=10,
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'


# ------------------------------------------------------------------------------------------ axes


@dataclass(frozen=True)
class _Scale:
    """From values to pixels: 0 to ``length``, or backwards where it is negative."""

    least: float
    most: float
    length: float
    log: bool

    def at(self, value: float) -> float | None:
        """The pixel, None where there is none for this value."""
        if not isfinite(value) or (self.log and value <= 0):
            return None
        value = log10(value) if self.log else value
        place = (value - self.least) / (self.most - self.least)
        return round((place if self.length > 0 else place - 1) * self.length, 2)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round values, some four to eight."""
        if self.log:
            decades = range(floor(self.least), ceil(self.most) + 1)
            every = max(1, ceil(len(decades) / 8))
            between = (1, 2, 5) if self.most - self.least < 2 else (1,)
            values = [m * 10.0**d for d in decades if d % every == 0 for m in between]
        else:
            raw = (self.most - self.least) / 6
            power = 10.0 ** floor(log10(raw))
            step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
            whole = range(ceil(self.least / step - 1e-9), floor(self.most / step + 1e-9) + 1)
            values = [k * step for k in whole]
        for value in values:
            if -0.01 <= (self.at(value) or 0.0) <= abs(self.length) + 0.01:
                plain = value == 0 or 1e-3 <= abs(value) < 1e6
                yield value, f"{value:,.10g}" if plain else f"{value:.0e}"


def _scale(axis: Axis, values: Iterable[float], length: float) -> _Scale:
    found = [v for v in values if isfinite(v) and not (axis.log and v <= 0)]
    found += [place for place, _ in axis.ticks]
    low = axis.least if axis.least is not None else min(found, default=1.0 if axis.log else 0.0)
    high = axis.most if axis.most is not None else max(found, default=1.0)
    if axis.log:
        low, high = log10(low), log10(high)
    room = 0.5 if axis.ticks and not axis.log else 0.04 * ((high - low) or abs(low) or 1.0)
    low -= 0 if axis.least is not None else room
    high += 0 if axis.most is not None else room
    return _Scale(low, high if high > low else low + 1.0, length, axis.log)


def _turned(axis: Axis) -> bool:
    """Whether the names along an axis are written slanting, for want of room."""
    return max((len(word) for _, word in axis.ticks), default=0) * len(axis.ticks) > 90


def _under(axis: Axis) -> int:
    """Pixels that an axis needs below a panel."""
    if not _turned(axis):
        return _BOTTOM
    longest = max(len(_cut(word, _LONGEST_TURNED)) for _, word in axis.ticks)
    return _BOTTOM + ceil(0.87 * _LETTER * longest)


# --------------------------------------------------------------------------------------- drawing


def _panel(panel: Panel, wide: int, high: int) -> Iterator[Markup]:
    ends = [stroke for series in panel.series for stroke in series.strokes]
    along = chain(*(s.x for s in panel.series), *(stroke[::2] for stroke in ends))
    up = chain(*(s.y for s in panel.series), *(stroke[1::2] for stroke in ends))
    x, y = _scale(panel.x, along, wide), _scale(panel.y, up, -high)
    turned = _turned(panel.x)
    for value, words in panel.x.ticks or x.ticks():
        if (at := x.at(value)) is not None:
            yield _line(at, at, high, 0 if not panel.x.ticks else high + 3)
            where = f"translate({at},{high + 14})" + (" rotate(-60)" if turned else "")
            shown = _cut(words, _LONGEST_TURNED) if turned else words
            yield _text(shown, 0, 0, anchor="end" if turned else "middle", transform=where)
    for value, words in panel.y.ticks or y.ticks():
        if (at := y.at(value)) is not None:
            yield _line(0, wide, at, at)
            yield _text(words, -6, at + 3.5, anchor="end")
    yield tag("rect", width=wide, height=high, fill="none", stroke="#444444", stroke_width=0.8)
    for series in panel.series:
        yield tag("g", *_series(series, x, y), fill="none", stroke=series.colour)
    yield _text(panel.title, wide / 2, -8, size=11)
    yield _text(panel.x.label, wide / 2, high + _under(panel.x) - 8)
    yield _text(panel.y.label, 0, 0, transform=f"translate({16 - _LEFT},{high / 2}) rotate(-90)")


def _series(series: Series, x: _Scale, y: _Scale) -> Iterator[Markup]:
    if series.name:
        yield tag("title", visible(series.name))
    points = _inside(zip(series.x, series.y, strict=True), x, y)
    for stroke in series.strokes:
        ends = _inside([stroke[:2], stroke[2:]], x, y)
        if len(ends) == 2:
            (x1, y1), (x2, y2) = ends
            yield _line(x1, x2, y1, y2, series.colour, series.thick)
    if series.line:
        corners = " ".join(f"{a},{b}" for a, b in points)
        dash = _DASHES.get(series.line)
        yield tag("polyline", points=corners, stroke_width=series.width, stroke_dasharray=dash)
    yield from (_mark(series, a, b) for a, b in points if series.mark is not None)


def _inside(
    points: Iterable[tuple[float, float]], x: _Scale, y: _Scale
) -> list[tuple[float, float]]:
    places = [(x.at(a), y.at(b)) for a, b in points]
    return [(a, b) for a, b in places if a is not None and b is not None]


def _mark(series: Series, a: float, b: float) -> Markup:
    fill = "none" if series.hollow else series.colour
    shape = SHAPES[(series.mark or 0) % len(SHAPES)]
    return tag("path", d=shape, fill=fill, transform=f"translate({a},{b}) scale(0.7)")


def _line(
    x1: float, x2: float, y1: float, y2: float, stroke: str = "#dddddd", width: float = 0.6,
    dash: str | None = None,
) -> Markup:  # fmt: skip
    return tag("line", x1=x1, x2=x2, y1=y1, y2=y2, stroke=stroke, stroke_width=width,
               stroke_dasharray=dash)  # fmt: skip


def _text(
    words: str, x: float, y: float, anchor: str = "middle", size: int | None = None,
    transform: str | None = None,
) -> Markup:  # fmt: skip
    return tag("text", _cut(words, 2 * _LONGEST), x=x, y=y, text_anchor=anchor, font_size=size,
               transform=transform)  # fmt: skip


def _cut(words: str, longest: int = _LONGEST) -> str:
    words = visible(words)
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def _legend(panels: Sequence[Panel], width: float) -> tuple[list[Markup], int]:
    """The looks that have a name, each once, in as many lines as they take; and their height."""
    named: dict[str, Series] = {}
    for series in (s for panel in panels for s in panel.series if s.name):
        named.setdefault(series.name, series)
    parts, x, y = [], 0.0, 12
    for name, series in named.items():
        words = _cut(name)
        room = 34 + _LETTER * len(words)
        if x and x + room > width:
            x, y = 0.0, y + 16
        look = [_text(words, 26, 0, anchor="start")]
        if series.line or series.mark is None:
            wide = series.width if series.line else min(series.thick, 9)
            look.append(_line(0, 20, -3.5, -3.5, series.colour, wide, _DASHES.get(series.line)))
        if series.mark is not None:
            look.append(tag("g", _mark(series, 10, -3.5), stroke=series.colour))
        parts.append(tag("g", *look, transform=f"translate({x},{y})"))
        x += room
    return parts, y + 10 if named else 4
