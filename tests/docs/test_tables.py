"""Tables that are made from code and measurements are as they would be made now."""

from __future__ import annotations

from typing import Any

import pytest
import tables as made

from overheard.attacks import all_attacks

ROOT = made.ROOT


@pytest.fixture(scope="module")
def tables() -> Any:
    return made


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("README.md", "attacks"),
        ("docs/reliability.md", "reliability"),
        ("docs/benchmarks.md", "speeds"),
        ("docs/benchmarks.md", "growth"),
    ],
)
def test_pages_have_the_tables_of_today(tables: Any, page: str, table: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert page in tables.FILLED
    assert f"<!-- table: {table} -->" in text
    assert text == tables.filled(text), f"run `make tables` and commit {page}"


def test_every_attack_is_in_the_table(tables: Any) -> None:
    table = tables.attack_table()
    for name in all_attacks():
        assert f"| `{name}` |" in table
    assert {h for h in tables.HEADLINES if h not in all_attacks()} == set()


def test_numbers_are_those_of_the_files(tables: Any) -> None:
    rows = tables.reproductions()["driouich2022-table1-adult"]["rows"]
    ours = [r for r in rows if r["method"] == "max_entropy" and r["measure"] == "accuracy"]
    mean = sum(r["measured"] for r in ours) / len(ours)
    (line,) = [x for x in tables.attack_table().splitlines() if "`max_entropy`" in x]
    assert f" {mean:.3f} (majority" in line
    assert f"{mean:.3f}" in tables.paper_tables()


def test_a_headline_that_matches_nothing_is_an_error(tables: Any) -> None:
    wrong = tables.Headline("xu2021-table1", "no such method", "excess loss", "x")
    with pytest.raises(ValueError, match="matches no row"):
        tables._numbers(wrong, tables.reproductions())
