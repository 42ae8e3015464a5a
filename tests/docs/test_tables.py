"""Tables that are made from code and measurements are as they would be made now."""

from __future__ import annotations

from typing import Any

import pytest
import tables
from comparisons import COMPARISONS, Comparison, interval, shown
from pages import ROOT

from overheard.attacks import aliases, all_attacks


@pytest.mark.parametrize("page", tables.FILLED)
def test_pages_have_the_tables_of_today(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert text == tables.filled(text), f"run `make tables` and commit {page}"


def test_every_table_is_on_a_page() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in tables.FILLED]
    for name in tables.MARKED:
        assert sum(f"<!-- table: {name} -->" in text for text in texts) == 1, name


def test_every_attack_is_in_the_table() -> None:
    table = tables.attack_table()
    for name in all_attacks():
        assert f"| `{name}` |" in table
    named = [name for comparison in COMPARISONS for name in comparison.methods]
    assert len(named) == len(set(named))
    assert set(named) <= {*all_attacks(), *aliases()}


# ------------------------------------------------------------------ claimed beside measured, fairly


def row(method: str, client: str, measured: float, **more: Any) -> dict[str, Any]:
    fixed = {"setting": "s", "measure": "accuracy", "low": None, "high": None, "claimed": None}
    about = {"method": method, "client": client, "measured": measured}
    return {**fixed, "majority": 0.5, "seeds": 1, **about, **more}


def compared(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    methods = {name: name for name in dict.fromkeys(r["method"] for r in rows)}
    comparison = Comparison("x", "y", methods, **more)
    return {name: shown(comparison, name, {"rows": rows}) for name in methods}


def test_a_mean_row_is_not_averaged_with_what_it_is_a_mean_of() -> None:
    """The paper's printed mean beside ours of the same clients; their spread is the interval."""
    clients = [row("a", f"client {i}", v, claimed=0.6) for i, v in enumerate((0.7, 0.8, 0.9))]
    found = compared(*clients, row("a", "mean", 0.8, claimed=0.672))["a"]
    assert (found.claimed, found.measured) == (0.672, 0.8)
    assert (found.low, found.high) == pytest.approx((0.8 - 0.2484, 1.0), abs=1e-3)
    assert found.over == "3 × 1"


def test_both_sides_are_of_the_cells_that_the_paper_prints() -> None:
    spans = {"low": 0.1, "high": 0.9}
    rows = [row("a", at, v, claimed=c, **spans) for at, v, c in (
        ("50", 1.0, 0.9), ("100", 0.8, 0.7), ("1000", 0.0, None))]  # fmt: skip
    others = [row("ours", at, v, **spans) for at, v in (("50", 0.5), ("100", 0.7), ("1000", 0.0))]
    found = compared(*rows, *others)
    assert found["a"].claimed == pytest.approx(0.8)
    assert found["a"].measured == pytest.approx(0.9)
    assert found["ours"].claimed is None
    assert found["ours"].measured == pytest.approx(0.6)
    refused = compared(*rows, *others[:1])["ours"]
    assert refused.measured == 0.5
    assert refused.over == "1 × 1, none in 1 more"


def test_what_does_not_compare_is_left_empty() -> None:
    """Who has fewer repetitions than the others, one target, claims about other data."""
    spans = {"low": 0.1, "high": 0.9}
    rows = [row("learned", "0", 0.7, seeds=2, **spans), row("last", "0", 0.6, seeds=5, **spans)]
    found = compared(*rows)
    assert found["learned"] is None
    assert found["last"].measured == 0.6
    assert compared(row("prolin", "round 50", 0.889, claimed=0.25))["prolin"] is None
    other = compared(row("a", "0", 0.8, claimed=0.7, **spans), claims=False)["a"]
    assert (other.claimed, other.measured) == (None, 0.8)


def test_an_interval_is_made_of_repetitions_else_of_intervals_else_of_rows() -> None:
    spans = {"low": 0.5, "high": 0.9}
    twice = [row("a", c, 0.7, repetitions=[0.6, 0.7, 0.8], **spans) for c in "01"]
    assert interval(twice) == pytest.approx((0.7 - 0.2484, 0.7 + 0.2484), abs=1e-3)
    against = [twice[0], {**twice[1], "repetitions": [0.8, 0.7, 0.6]}]  # no doubt about the mean
    assert interval(against) == (0.5, 0.9)
    assert interval([row("a", c, 0.7, **spans) for c in "01"]) == (0.5, 0.9)
    rows = [row("a", str(v), v) for v in (0.6, 0.7, 0.8)]
    assert interval(rows) == pytest.approx((0.7 - 0.2484, 0.7 + 0.2484), abs=1e-3)
    assert interval(rows[:2]) is None
    assert interval([]) is None


def test_numbers_are_those_of_the_files() -> None:
    rows = tables.reproductions()["driouich2022-table1-adult"]["rows"]
    (mean,) = [
        r
        for r in rows
        if (r["method"], r["measure"], r["client"]) == ("l2_lbfgs", "accuracy", "mean")
    ]
    (line,) = [x for x in tables.attack_table().splitlines() if "`l2_lbfgs`" in x]
    assert f" | {mean['claimed']:.3f} | {mean['measured']:.3f} (" in line
    assert f" | {mean['claimed']:.3f} | {mean['measured']:.3f} (" in tables.paper_tables()


def test_the_papers_page_averages_no_mean_with_its_parts() -> None:
    rows = [row("a", f"client {i}", 0.5, claimed=0.4) for i in range(3)]
    page = tables._experiment([*rows, row("a", "mean", 0.9, claimed=0.8)])
    assert "| s | a | accuracy | 0.800 | 0.900 (" in page
    some = [row("a", "0", 0.5, claimed=0.4), row("a", "1", 0.9)]
    assert "| 0.400 | 0.500; 0.700 over all 2 |" in tables._experiment(some)


def test_the_papers_page_claims_no_probability_for_a_paper() -> None:
    """What an attack itself gave is no claim; a mean over bins is nothing at all."""
    bins = [row("a", "given 0.4", 0.5, claimed=0.4), row("a", "given 0.8", 0.9, claimed=0.8)]
    page = tables._experiment([{**one, "measure": "reliability"} for one in bins])
    assert "reliability" not in page
    assert "| reliability |" not in tables.paper_tables()


def test_a_comparison_that_matches_nothing_is_an_error() -> None:
    wrong = Comparison("xu2021-table1", "x", {"structured": "no such method"})
    with pytest.raises(ValueError, match="has no row of 'no such method'"):
        shown(wrong, "structured", tables.reproductions()["xu2021-table1"])
