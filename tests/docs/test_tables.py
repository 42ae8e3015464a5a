"""Tables that are made from code and measurements are as they would be made now."""

from __future__ import annotations

import pytest
import tables
from pages import ROOT

from overheard.attacks import all_attacks


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
