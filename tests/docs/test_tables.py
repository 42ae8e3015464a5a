"""Tables that are made from code and measurements are as they would be made now."""

from __future__ import annotations

import pytest

from experiments import pages


@pytest.mark.slow
def test_pages_have_the_tables_of_today() -> None:
    made = pages.files()
    changed = [p.name for p, text in made.items() if p.read_text(encoding="utf-8") != text]
    assert not changed, "run `python -m experiments pages` and commit them"
    for name in pages.gathered("TABLES"):
        assert sum(f"<!-- table: {name} -->" in text for text in made.values()) == 1, name
