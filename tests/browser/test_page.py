"""The demo's report as people meet it: in a real browser, at two widths, in both themes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from overheard.report import render
from tests.report.conftest import many_clients

pytestmark = pytest.mark.slow

WIDTHS = (360, 768, 1440)
LOOKED_AT = ((360, "dark"), (1440, "light"))
"""By axe: at page one and, of six clients, at the annex, which takes it minutes with more."""
FIVE = ["Who is at risk", "From whom", "Knowing what", "How sure", "What to do"]


@pytest.fixture(scope="module")
def pages(demo_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The report of 6, 100 and 1,000 clients."""
    made = {6: demo_file}
    for clients, attacks in ((100, 6), (1000, 2)):
        made[clients] = tmp_path_factory.mktemp("pages") / f"{clients}.html"
        audit = many_clients(clients, attacks=attacks)
        made[clients].write_text(render(audit), encoding="utf-8")
    return made


@pytest.mark.parametrize("clients", [6, 100, 1000])
def test_page_one_holds_at_every_size(visit: Any, pages: Any, clients: int) -> None:
    """No complaint, no request outside, nothing cut, nothing that axe finds (of six clients in the
    annex, too); one screen of a desktop, one sheet of paper."""
    api = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    file = pages[clients]
    assert file.stat().st_size <= 3_000_000
    for width, theme in itertools.product(WIDTHS, ("light", "dark")):
        seen = visit(width, theme, file)
        page = seen.page
        assert (seen.complaints, seen.requests) == ([], [file.as_uri()])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#first h2").all_inner_texts() == FIVE
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (lightness > 128) == (theme == "light")
        assert page.locator("#first h1").is_visible()
        assert not page.locator("#exposed table").first.is_visible()
        if width == 1440:
            first = page.locator("#first").bounding_box()
            assert first["y"] + first["height"] <= 900
        if (width, theme) in LOOKED_AT:
            unfold = f"document.querySelectorAll('details').forEach(d => d.open = {clients} == 6)"
            page.evaluate(unfold)
            part = "body" if clients == 6 else "#first"
            found = api.Axe().run(page, part).response["violations"]
            assert [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found] == []
            page.evaluate(unfold.replace("== 6", "< 6"))
    page.set_viewport_size({"width": 718, "height": 1047})  # A4 without margins of a centimetre
    page.emulate_media(media="print")
    assert page.locator("#first").bounding_box()["height"] <= 1047
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.locator("#verdict").bounding_box()["height"] <= 1047  # the second sheet
    assert page.locator("#exposed table").first.is_visible()
    assert not page.locator("nav").is_visible()


def test_a_link_into_the_annex_unfolds_it(visit: Callable[..., Any], pages: Any) -> None:
    page = visit(file=pages[100]).page
    page.locator("#annex a[href='#helps']").click()
    page.locator("#helps p").first.wait_for(state="visible")  # a moment later
    assert not page.locator("#exposed table").first.is_visible()


@pytest.mark.timing
def test_it_opens_within_a_second(visit: Callable[..., Any]) -> None:
    timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert min(visit().page.evaluate(timing) for _ in range(3)) < 1000


def test_charts_are_drawn(visit: Callable[..., Any]) -> None:
    page = visit().page
    plots = page.locator("svg.plot:not(.axis)")
    assert plots.count() > 20
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg.plot .mark')].map(m => m.getBoundingClientRect())"
        ".filter(r => r.width > 0).map(r => [r.left, r.right, r.height])"
    )
    assert len(boxes) > 40
    assert all(left >= 0 and right <= 1440 and height > 3 for left, right, height in boxes)
    assert page.locator(".picture").bounding_box()["height"] > 100


def test_sorting(visit: Callable[..., Any]) -> None:
    page = visit().page
    table = page.locator("table.lifts")
    cells = "[...document.querySelectorAll('table.lifts tbody tr')].map(r => r.cells[%d].innerText)"

    def lifts() -> list[float]:
        return [float(text.replace("−", "-")) for text in page.evaluate(cells % 2)]

    first = lifts()
    assert first == sorted(first, reverse=True)
    heading = table.locator("thead th").nth(2)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert lifts() == sorted(first)
    client = table.locator("thead th").nth(0)
    client.locator("button").focus()
    page.keyboard.press("Enter")
    names = page.evaluate(cells % 0)
    assert names == sorted(names, reverse=True)
    assert heading.get_attribute("aria-sort") is None


def test_filtering(visit: Callable[..., Any]) -> None:
    page = visit().page
    page.locator("select[data-by=c]").select_option(label="site 5")
    page.locator("select[data-by=t]").select_option(label="black")
    visible = page.locator("table.lifts tbody tr:visible")
    assert visible.count() == 1
    assert "site 5" in visible.inner_text()
    assert "black" in visible.inner_text()
    assert page.locator("#filter-state").inner_text() == "Showing only site 5, black."
    page.get_by_role("button", name="Show all").click()
    assert page.locator("table.lifts tbody tr:visible").count() == 18


def test_hovering_says_what_a_mark_is(visit: Callable[..., Any]) -> None:
    page = visit().page
    mark = page.locator("#exposed .row:not(.pooled) .lane .mark").first
    mark.scroll_into_view_if_needed()
    mark.hover()
    words = page.locator(".tip").inner_text()
    for part in ("site", "max_entropy", "majority baseline", "imputation"):
        assert part in words
    page.mouse.move(2, 2)
    assert page.locator(".tip").is_hidden()


def test_keys_alone_reach_everything(visit: Callable[..., Any]) -> None:
    page = visit().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
    assert {"A", "SUMMARY", "BUTTON"} <= reached
