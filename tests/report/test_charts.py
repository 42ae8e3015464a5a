"""Charts are well-formed, escaped, and put values where they belong."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from overheard.evaluation.record import Finding
from overheard.report import svg as charts
from overheard.report import words
from overheard.report.svg import Lane, Row, Scale

EVIL = "</svg><script>\"'&"


def lane(value: float = 0.7, attack: int = 0) -> Lane:
    found = Finding(
        attack=EVIL, paper="", question="attribute", threat="", client="c", metric="accuracy",
        value=value, low=value - 0.05, high=value + 0.05, n=10, seconds=0, seed=0,
    )  # fmt: skip
    return Lane(attack, attack, found, f"{value:.0%}")


def test_a_row_is_well_formed_whatever_the_names() -> None:
    row = Row(EVIL, "10 records", 0, (lane(), lane(0.6, 1)), 0.5, 0.6, 0.01)
    root = ElementTree.fromstring(charts.drawing().row(row, Scale(0.4, 1.0)))
    assert root.get("role") == "img"
    assert root.get("aria-label") == EVIL
    assert root.findtext("title") == EVIL
    assert "70%" in str(root.findtext("desc"))
    assert not list(root.iter("script"))
    assert not [e for e in root.iter() if "style" in e.attrib]


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
    scale = Scale(0.0, 1.0)
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


# --- numbers read honestly, in sentences and in tables


@pytest.mark.parametrize(
    ("said", "text"),
    [
        # a percentage never rounds to a certainty
        *((words.percent(share), text) for share, text in (
            (0.762, "76%"), (0.0, "0%"), (1.0, "100%"), (0.9997, "99.97%"), (0.996, "99.6%"),
            (0.0004, "0.04%"), (0.999999, "99.9999%"))),
        (words.interval(0.762, 0.731, 0.79), "76% (73–79)"),
        (words.interval(0.762, 0.731, 0.79, 1), "76.2% (73.1–79.0)"),
        (words.interval(0.9997, 0.97, 1.0), "99.97% (97–100)"),
        # an excess loss in a sentence; where it vanishes it has no interval
        *((words.excess(value), text) for value, text in (
            (0.123, "12%"), (12.5, "1,250%"), (3.1e-5, "0.0031%"), (0.012, "1.2%"),
            (5867783.85, "more than 100,000%"), (2e-9, "less than 0.0001%"), (0.0, "0%"),
            (-1e-12, "0%"), (-0.5, "0%"))),
        (words.excess_interval(2e-9, 1e-9, 3e-9), "less than 0.0001%"),
        (words.excess_interval(2e-9, -1e-4, 1e-4), "less than 0.0001% (at most 0.010%)"),
        (words.excess_interval(0.012, 0.004, 0.036), "1.2% (0.40% to 3.6%)"),
        # a loss in a table
        *((words.loss(value), text) for value, text in (
            (3.1e-6, "3.1×10⁻⁶"), (0.06, "0.060"), (0.0, "0"), (-2e-7, "−2.0×10⁻⁷"),
            (155.0, "155"), (3.2e5, "3.2×10⁵"))),
        # differences are signed points
        *((words.points(value), text) for value, text in (
            (0.18, "+18.0"), (-0.021, "−2.1"), (-0.0001, "0.0"), (None, words.NOTHING))),
    ],
)  # fmt: skip
def test_numbers(said: str, text: str) -> None:
    assert said == text
