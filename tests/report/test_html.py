"""The page: complete, escaped, self-contained, readable without a script, never overwritten."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from report_words import Page, section, words_of

from experiments import documentation
from overheard.errors import ChooseAnotherOutput
from overheard.evaluation.record import Audit
from overheard.report import headline, render, words, write_report

pytestmark = pytest.mark.slow

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def page(audit: Audit) -> Page:
    return Page(render(audit))


def test_every_finding_is_in_the_page(audit: Audit, page: Page) -> None:
    for f in audit.findings:
        if f.metric == "accuracy":
            assert f"{100 * f.value:.1f}" in page.words or f"{100 * f.value:.2f}" in page.words
            assert f"({100 * f.low:.1f}–{100 * f.high:.1f})" in page.words
        else:
            assert words.loss_interval(f.value, f.low, f.high) in page.words
        assert f.attack in page.words
        assert f.client in page.words
    assert "76.0% (73.0–79.0)" in page.words
    assert "3.1×10⁻⁷ (1.0×10⁻⁷ to 9.3×10⁻⁷)" in page.words
    assert "log loss 0.482" in page.words
    for sentence in headline(audit):
        assert sentence.replace("`", "") in page.words


ANSWERS = (
    "refuse", "policy, as none was given: nobody known beyond 99%, a lift of at most 5 points",
    "site 2 1,224 of 1,224 (1,220 to 1,224)", "female exposed", "The server : holds the same",
    "was given every message", "adversary who knows half of the records: female right",
    "Replay check passed for 6 of 6 clients", "a baseline without access to updates knows as",
    "Measure defences. Records and audits this federation again",
)  # fmt: skip


def test_page_one_answers_the_ten_questions_of_its_guide() -> None:
    guide = Path(__file__).parents[2] / "docs" / "read-the-report.md"
    asked = re.findall(r"^## (\d+)\. .+\?$", guide.read_text("utf-8"), re.MULTILINE)
    assert asked == [str(k) for k in range(1, 11)]
    first = words_of(section(documentation.demo_page(), "first"))
    assert [answer for answer in ANSWERS if answer not in first] == []


def test_the_policy_admits_our_style_and_script_only(page: Page) -> None:
    (policy,) = [str(m["content"]) for m in page.named("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        digest = hashlib.sha256("".join(page.raw[tag]).encode()).digest()
        assert f"{kind} 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert not [a for _, a in page.tags if "style" in a]


def test_nothing_is_loaded_from_anywhere(audit: Audit, page: Page) -> None:
    for _, attributes in page.tags:
        for key in ("src", "srcset", "data", "action", "poster", "background", "xlink:href"):
            assert key not in attributes
        target = attributes.get("href")
        assert target is None or target.startswith("#")
    assert not re.search(r"https?://|url\(|@import", render(audit))


def test_links_inside_the_page_arrive(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for key in ("href", "aria-labelledby"):
            if key in attributes:
                assert str(attributes[key]).removeprefix("#") in ids


def test_who_cannot_see_it_finds_the_way_through_headings_tables_and_charts(page: Page) -> None:
    steps = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert steps[0] == 1
    assert steps.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(steps))

    assert len(page.named("table")) == len(page.named("caption")) > 6
    assert all(th.get("scope") in {"col", "row"} for th in page.named("th"))
    drawn = [a for a in page.named("svg") if a.get("role") == "img"]
    assert len(drawn) == 4 * 7 + 1  # four charts of six clients and the pooled row, one picture
    assert all(a.get("aria-label") for a in drawn)
    hidden = [a for a in page.named("svg") if a.get("aria-hidden") == "true"]
    inside = [a for a in page.named("svg") if "class" not in a]  # markers inside a chart
    assert len(hidden) + len(drawn) + len(inside) == len(page.named("svg"))


def test_the_page_works_without_a_script(page: Page) -> None:
    """Nothing but the filter, which would do nothing, waits for the script."""
    assert [a.get("id") for _, a in page.tags if "hidden" in a] == ["controls"]
    folded = [a for a in page.named("details") if "open" not in a]
    assert {a.get("class") for a in folded} == {None, "annex"}


def test_same_audit_same_bytes_and_few_of_them(audit: Audit) -> None:
    assert len(render(audit).encode()) < 200_000
    assert render(audit) == render(Audit.model_validate_json(audit.to_json()))


def test_many_clients_fit_or_are_cut_with_a_note(large: Callable[..., Audit]) -> None:
    hundred = large(100)
    details = {f"a diagnostic of the attack, number {i}": 1.25e-7 for i in range(12)}
    wordy = tuple(f.model_copy(update={"details": details}) for f in hundred.findings)
    thousand = large(1000, attributes=1, attacks=4)
    texts = [render(a) for a in (hundred, hundred.model_copy(update={"findings": wordy}), thousand)]
    assert max(len(text.encode()) for text in texts) <= 2_000_000
    page, cut = Page(texts[0]), Page(texts[2])
    pooled_and_worst = [a for a in page.named("svg") if a.get("role") == "img"]
    assert len(pooled_and_worst) == 3 * 21 + 1
    assert "80 more" in page.words
    assert "left out here" not in page.words
    assert "2,000 findings of the least exposed clients are left out here" in cut.words
    assert "audit.json has all 1,000" in cut.words


def test_an_audit_without_some_or_all_findings(audit: Audit) -> None:
    page = Page(render(audit.model_copy(update={"findings": (), "pooled": ()})))
    assert "was not measured" in page.words
    assert "needs a classifier" in page.words
    empty = {"findings": (), "pooled": (), "skipped": (), "attacks": (), "notes": ()}
    page = Page(render(audit.model_copy(update=empty)))
    assert "Nothing was measured" in page.words
    assert "Nothing was skipped" in page.words
    page = Page(render(audit.model_copy(update={"pooled": ()})))
    assert "All clients together" not in page.words
    assert "76.0% (73.0–79.0)" in page.words


def test_the_strongest_attack_is_drawn_on_top(audit: Audit) -> None:
    backwards = audit.model_copy(update={"findings": audit.findings[::-1]})
    for text in (render(audit), render(backwards)):
        rows = re.findall(r'<ul class="values" aria-hidden="true">(.*?)</ul>', text)
        assert any(
            "76% (73–79)</li><li" in row and row.endswith("62% (59–65)</li>") for row in rows
        )


def test_a_missing_folder_is_named(audit: Audit, tmp_path: Path) -> None:
    with pytest.raises(ChooseAnotherOutput, match="cannot be written"):
        write_report(audit, tmp_path / "nowhere" / "report.html")
