"""A real browser opens the report of an audit in which every name tries to be more than a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import load

from overheard.evaluation.record import Audit
from overheard.report import render

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


def test_nothing_is_run_fetched_or_linked(visit: Callable[..., Any], tmp_path: Path) -> None:
    evil = load(TESTS / "test_hostile_names.py", "evil")
    source = TESTS.parent / "docs" / "assets" / "demo" / "network.json"
    content = evil.poisoned(json.loads(source.read_text(encoding="utf-8")))
    content["run"]["threat"] = "server" + evil.EVIL.replace("\ud800", "")
    audit = Audit.model_validate(content)
    file = tmp_path / "evil.html"
    file.write_text(render(audit), encoding="utf-8")
    seen = visit(file=file)
    page = seen.page
    page.evaluate("document.querySelectorAll('.annex').forEach(d => d.open = true)")
    # hover, sort and filter: the script of the page handles the names too
    page.locator(".plot g").first.hover(force=True)
    for button in page.locator("table.lifts thead button").all():
        button.click()
    for select in page.locator("#controls select").all():
        select.select_option(index=1)
    assert page.evaluate("typeof owned") == "undefined"
    assert seen.requests == [file.as_uri()]
    assert seen.complaints == []  # a violated policy would be one
    assert page.locator("script").count() == 1
    assert page.locator("img, iframe, object, embed, form, link, base").count() == 0
    assert page.evaluate(
        "[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
        ".filter(n => n.startsWith('on'))"
    ) == []  # fmt: skip
    assert "<script>owned=1</script>" in page.locator("body").inner_text()
