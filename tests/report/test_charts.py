"""Charts are well-formed, escaped, and put values where they belong."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from overheard.evaluation.record import Finding
from overheard.report import svg as charts
from overheard.report.svg import Lane, Row, Scale

EVIL = "</svg><script>\"'&"


def lane(value: float = 0.7, attack: int = 0, bound: float | None = None) -> Lane:
    found = Finding(
        attack=EVIL, paper="", question="attribute", threat="", client="c", metric="accuracy",
        value=value, low=value - 0.05, high=value + 0.05, bound=bound, n=10, seconds=0, seed=0,
    )  # fmt: skip
    return Lane(attack, attack, found, f"{value:.0%}")


def test_a_row_is_well_formed_whatever_the_names() -> None:
    row = Row(EVIL, "10 records", 0, (lane(), lane(0.6, 1, bound=0.55)), 0.5, 0.6, 0.01)
    root = ElementTree.fromstring(charts.row_figure(row, Scale(0.4, 1.0)))
    assert root.get("role") == "img"
    assert root.get("aria-label") == EVIL
    assert root.findtext("title") == EVIL
    assert "70%" in str(root.findtext("desc"))
    assert not list(root.iter("script"))
    assert not [e for e in root.iter() if "style" in e.attrib]


def test_a_row_draws_every_lane_and_reference() -> None:
    lanes = tuple(lane(0.6 + 0.05 * i, i) for i in range(4))
    root = ElementTree.fromstring(charts.row_figure(Row("x", "", 0, lanes, 0.5, 0.6), Scale(0, 1)))
    kinds = [e.get("class") for e in root.iter()]
    assert kinds.count("mark") == kinds.count("interval") == 4
    assert kinds.count("majority") == kinds.count("imputation") == 2  # a line and its head
    assert kinds.count("free") == 1
    assert int(root.get("height", "0")) >= 4 * charts.LANE


def test_a_bound_that_is_off_the_axis_is_not_drawn() -> None:
    for bound, drawn in ((0.3, 0), (0.55, 1)):
        svg = charts.row_figure(Row("x", "", 0, (lane(bound=bound),)), Scale(0.4, 1.0))
        kinds = [e.get("class") for e in ElementTree.fromstring(svg).iter()]
        assert kinds.count("bound") == drawn


def test_positions_grow_with_the_value_and_stay_inside() -> None:
    scale = Scale(0.4, 1.0)
    places = [scale.at(v) for v in (-1.0, 0.4, 0.5, 0.99, 1.0, 2.0)]
    assert places == sorted(places)
    assert 0 < places[0] == places[1]
    assert places[-1] == places[-2] < 100


def test_the_axis_of_losses_holds_zero_and_the_negative() -> None:
    scale = charts.loss_scale([0.0, -1e-9, 1e-6, 0.3])
    assert scale.at(0.0) == scale.at(-1.0) < scale.at(1e-6) < scale.at(0.3)
    assert 4 <= len(scale.ticks()) <= 8


@pytest.mark.parametrize(
    "values", [[], [0.0], [0.5], [1.0], [0.0, 1.0], [0.999, 1.0], [1e-300], [1e9], [5e-324, 1e300]]
)
def test_an_axis_is_never_empty(values: list[float]) -> None:
    losses = charts.loss_scale(values)
    assert losses.least < losses.most
    assert 0 < losses.at(1e-3) < 100
    shares = charts.share_scale([v for v in values if v <= 1])
    assert 0 <= shares.least < shares.most <= 1
    assert len(shares.ticks()) >= 2


@pytest.mark.parametrize("name", ["eavesdropper", "server", "isolating-server", "secure-server"])
def test_threat_models_are_drawn(name: str) -> None:
    root = ElementTree.fromstring(str(charts.threat_picture(name)))
    assert root.findtext("title")
    assert root.findtext("desc")
    assert "listens here" in "".join(root.itertext())
    assert charts.threat_picture("ghost") is None


def test_a_picture_that_stands_alone() -> None:
    """Points stand where their numbers are, names are text and not too long, no date is in it."""
    scale = Scale(0.0, 1.0, share=False)
    plane = charts.Plane(scale, scale, scale.ticks(), scale.ticks())
    plane.join([(0.0, 0.0), (0.5, float("nan")), (1.0, 1.0)], "end s0")
    drawn = plane.drawn("x", [charts.Mark(0.5, 0.25, 0.2, 0.3, EVIL)])
    evil = f"{EVIL}\x1b{'y' * 500}"
    made = charts.picture(evil, [(evil, drawn)], [evil])
    assert made == charts.picture(evil, [(evil, drawn)], [evil])
    root = ElementTree.fromstring(made)
    names = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert names == {"svg", "title", "desc", "style", "rect", "line", "text", "path", "g"}
    shown = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]
    assert shown.count(shown[0]) == 2  # the caption and the legend
    assert shown[0].startswith(f"{EVIL}\\x1b")
    assert len(shown[0]) == 110
    (line,) = [e for e in root.iter() if e.get("class") == "end s0"]
    assert [line.get(end) for end in ("x1", "x2", "y1", "y2")] == ["9.0%", "97.0%", "164.0", "12.0"]
    assert ".s0 {" in made  # the page's own rules for charts
