"""Numbers read honestly, in sentences and in tables."""

from __future__ import annotations

import pytest

from overheard.report import words


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


def test_a_recipe_is_flattened_and_long_values_are_cut() -> None:
    recipe = {"model": {"hidden": [], "bias": True}, "batch_size": None, "x": ["c" * 500]}
    lines = dict(words.settings(recipe))
    assert lines["model · hidden"] == "none"
    assert lines["model · bias"] == "yes"
    assert lines["batch size"] == "none"
    assert lines["x"].endswith("(whole in audit.json)")
    assert len(lines["x"]) < 350
