"""Pictures: points where their numbers are, every name as text, the same bytes every time."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from overheard.plot import Axis, Panel, Series, figure

SVG = "{http://www.w3.org/2000/svg}"
SIZE = (100, 50)


def drawn(*series: Series, x: Axis | None = None, y: Axis | None = None) -> ET.Element:
    """The whole picture of one panel, whose inside is 100 x 50 pixels."""
    return ET.fromstring(figure([Panel(series, x or Axis(), y or Axis(), "t")], size=SIZE))


def corners(root: ET.Element, kind: str = "polyline") -> list[tuple[float, float]]:
    (shape,) = root.iter(f"{SVG}{kind}")
    pairs = [pair.split(",") for pair in shape.get("points", "").split()]
    return [(float(a), float(b)) for a, b in pairs]


def strokes(root: ET.Element) -> list[tuple[float, ...]]:
    """The ends of every line but those of the grid, which is grey."""
    lines = [e for e in root.iter(f"{SVG}line") if e.get("stroke") != "#dddddd"]
    return [tuple(float(e.get(end, -1)) for end in ("x1", "y1", "x2", "y2")) for e in lines]


def texts(root: ET.Element) -> list[str]:
    return ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]


UNIT = Axis(least=0, most=1)


def test_points_stand_where_their_numbers_are() -> None:
    root = drawn(Series([0, 0.5, 1], [0, 0.25, 1], line="solid"), x=UNIT, y=UNIT)
    assert corners(root) == [(0, 50), (50, 37.5), (100, 0)]


def test_a_logarithmic_axis_and_its_round_numbers() -> None:
    axis = Axis(log=True, least=1, most=100)
    root = drawn(Series([1, 10, 100], [0, 1, 0], line="solid"), x=axis, y=UNIT)
    assert [a for a, _ in corners(root)] == [0, 50, 100]
    assert {"1", "10", "100"} <= set(texts(root))
    narrow = drawn(Series([20, 40], [0, 1], line="solid"), x=Axis(log=True), y=UNIT)
    assert "20" in texts(narrow)  # though no power of ten is inside


def test_what_has_no_place_is_left_out() -> None:
    inf, nan = float("inf"), float("nan")
    root = drawn(Series([1, 2, 3, 4], [1, nan, inf, 1], line="solid"))
    assert len(corners(root)) == 2
    root = drawn(Series([0, -1, 10], [1, 1, 1], line="solid"), x=Axis(log=True))
    assert len(corners(root)) == 1
    assert texts(drawn(Series([], [])))  # nothing to draw is no error
    assert texts(drawn(Series([1], [5]), Series([1], [5])))  # nor is one value alone
    assert figure([]).startswith("<?xml")


def test_everything_drawn_is_inside_of_its_axes() -> None:
    spreads = [(0.5, 5, 1.5, 5), (1, 2, 1, 8), (2, 6, 2, 9)]
    root = drawn(Series([1, 2], [5, 7], line="solid", strokes=spreads))
    whiskers = strokes(root)
    assert len(whiskers) == 3
    places = [*corners(root), *(end for line in whiskers for end in (line[:2], line[2:]))]
    assert all(0 <= a <= 100 and 0 <= b <= 50 for a, b in places)


def test_points_without_their_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        drawn(Series([1, 2], [1], line="solid"))


def test_strokes_stand_where_they_are_asked_for() -> None:
    """Bars, and the spread at a point; one that goes nowhere is left out."""
    bars = [(0, 0, 0, 0.5), (1, 0, 1, 1), (1, float("nan"), 1, 1)]
    root = drawn(Series(strokes=bars), x=UNIT, y=UNIT)
    assert strokes(root) == [(0, 50, 0, 25), (100, 50, 100, 0)]


def test_the_legend_has_every_name_once_in_the_order_of_drawing() -> None:
    one, two = Series([1], [1], "one", mark=0), Series([1], [2], "two", line="dashed")
    panels = [Panel([one, two]), Panel([two, one, Series(name="three", strokes=[(1, 0, 1, 1)])])]
    root = ET.fromstring(figure(panels, "all"))
    assert [t for t in texts(root) if t in ("one", "two", "three")] == ["one", "two", "three"]


def test_names_are_text_and_long_ones_are_cut() -> None:
    evil = "</text><script>1</script>\x1b$x^2$" + "y" * 500
    ticks = [(0.0, evil), (1.0, evil)]
    panel = Panel([Series([0], [1], evil, mark=1)], Axis(evil, ticks=ticks), Axis(evil), evil)
    picture = figure([panel], evil)
    root = ET.fromstring(picture)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {
        "svg", "title", "g", "rect", "line", "text", "path"
    }  # fmt: skip
    assert "\\x1b$x^2$" in picture
    plain = re.sub(r"<title>.*?</title>", "", picture)
    assert max(len(word) for word in ET.fromstring(plain).itertext()) <= 88


def test_the_same_numbers_give_the_same_bytes() -> None:
    panels = [Panel([Series([1, 2], [3, 4], "a", line="dashed", mark=3, hollow=True)])] * 3
    assert figure(panels, "t") == figure(panels, "t")
