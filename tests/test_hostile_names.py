"""Names that a stranger chose reach neither the terminal, the page nor the pull request as markup.

Every text in a real audit, and every name in a recording, is replaced by one that tries everything
at once; then the real commands run on it, into a pipe and on a terminal.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from report_words import Page
from scripts import load

from overheard.evaluation.record import Audit
from overheard.foreign.shown import visible
from overheard.report import render
from overheard.report.html import render_markdown

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "docs" / "assets" / "demo" / "network.json"
EVIL = (
    "\x1b]8;;http://evil.example\x1b\\x\x1b[2J\x1b[31m\x07\x9b31m\r\n# owned\n"
    "\u202egnp.exe\u2066\u200b[red]a[/red][link=http://evil.example]b[/link][/nothing]"
    "</title></style></script><script>owned=1</script><img src=x onerror=owned=1>"
    "\"'><svg/onload=owned=1> [c](javascript:owned=1) ![d](http://evil.example/e.png) "
    "<http://evil.example> http://evil.example www.evil.example me@evil.example `f` ```\n"
    "| g | {{7*7}} {0} %s $\\frac{h}$ &lt;i \ud800"
)
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]")
KEPT = {"metric", "question", "threat", "version", "paper", "outcome", "level"}
FLAGS = {"flag", "overconfident"}  # empty where there is nothing to say against an answer


def poisoned(content: Any, key: str = "") -> Any:
    """The same with every text, names of settings included, followed by the evil one."""
    evil = EVIL.replace("\ud800", "")  # which JSON's readers refuse
    if isinstance(content, dict):
        free = key in ("recipe", "details", "software")
        return {
            (k + evil if free and key != "software" else k): poisoned(v, k)
            for k, v in content.items()
        }
    if isinstance(content, list):
        known = content if key == "needs" else []  # by these it is told who listens
        return [*known, *(poisoned(value, key) for value in content)]
    if isinstance(content, str) and key not in KEPT and (content or key not in FLAGS):
        return content + evil
    return content


@pytest.fixture(scope="module")
def evil_audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = poisoned(json.loads(DEMO.read_text(encoding="utf-8")))
    content["run"]["threat"] = "server" + EVIL.replace("\ud800", "")
    flagged = content["findings"][0]["client"]  # a flagged answer is not measured: the others are
    for finding in content["findings"]:
        if finding["client"] == flagged:
            finding["details"] = {"flag": content["run"]["threat"], **finding["details"]}
    path = tmp_path_factory.mktemp("evil") / "evil.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def acting(page: Page) -> list[str]:
    """What a browser would act on."""
    return [
        f"{tag} {name}={value}"
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name.startswith("on")
        or name in ("src", "action", "formaction", "style")
        or (name == "href" and not str(value).startswith("#"))
    ]


def test_the_page_holds_no_script_but_ours(evil_audit: Path) -> None:
    seen, clean = (
        Page(render(Audit.model_validate_json(path.read_bytes()))) for path in (evil_audit, DEMO)
    )
    assert acting(seen) == acting(clean) == []
    assert len(seen.named("script")) == len(seen.named("style")) == 1
    names, usual = ({tag for tag, _ in page.tags} for page in (seen, clean))
    assert names <= (usual | {"code"}) - {"img"}


def test_the_markdown_holds_no_link_image_or_html(evil_audit: Path) -> None:
    from markdown_it import MarkdownIt

    text = render_markdown(Audit.model_validate_json(evil_audit.read_bytes()))
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = {t.type for t in tokens} | {c.type for t in tokens for c in t.children or []}
    assert "table_open" in kinds
    acting = {"html_block", "html_inline", "link_open", "image"}
    assert [c.content for t in tokens for c in (t, *(t.children or [])) if c.type in acting] == []
    assert not STEERING.search(text)
    fenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(?<!\\)`[^`]*`", "", fenced)  # an escaped backquote begins no code
    assert len(outside) > 0.9 * len(re.sub(r"`overheard [^`]*`", "", fenced))  # but for commands
    for bare in ("http://", "www.evil", "me@evil", "javascript:o"):  # made links by some readers
        assert bare not in outside
    usual = render_markdown(Audit.model_validate_json(DEMO.read_bytes()))
    expected = _headings(MarkdownIt("commonmark").enable("table").parse(usual))
    found = _headings(tokens)
    assert [tag for tag, _ in found].count("h1") == 1
    assert found[1:] == expected[1:]  # no name makes a heading, and no section is left out


def _headings(tokens: list[Any]) -> list[tuple[str, str]]:
    places = [k for k, token in enumerate(tokens) if token.type == "heading_open"]
    return [(tokens[k].tag, tokens[k + 1].content) for k in places]


def test_pictures_hold_names_as_text() -> None:
    from overheard.report.advice import Mean, Point, frontiers
    from overheard.report.html import render_settings
    from overheard.report.svg import picture as drawn

    evil = visible("</text><script>owned=1</script>$\\frac{h}$ &lt;i \x1b[31m")
    means = Mean(0.1), None, None, Mean(0.5)
    point = Point(evil, 1.0, (), evil, evil, *means, evil, 1, 0, chosen=True)
    assert "<script>owned" not in render_settings([point], evil)
    picture = drawn(evil, [(evil, figure) for _, _, figure in frontiers([point])], [evil])
    names = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()}
    assert not names & {"script", "a", "image", "foreignObject"}
    assert "frac" in picture


@pytest.fixture
def evil_place(workplace: Any, evil_audit: Path) -> Any:
    """A folder with a recording and two audits in which every name is evil."""
    plain = EVIL.replace("\ud800", "")
    load(ROOT / "tests/transcript/attempting.py").sound(workplace.path / "evil", plain, plain)
    for name in ("one.json", "two.json"):
        (workplace.path / name).write_bytes(evil_audit.read_bytes())
    content = json.loads((workplace.path / "two.json").read_text())
    content["run"]["data"] += "!"
    (workplace.path / "two.json").write_text(json.dumps(content))
    return workplace


COMMANDS = [
    ["audit", "evil", "--out", "a", "--attack", "majority", "--no-rounds"],
    ["audit", "evil", "--out", "a", "--target", EVIL.replace("\x00", "")],
    ["verify", "evil"],
    ["compare", "one.json", "two.json"],
    ["compare", "one.json", "two.json", "--anyway", "--clients"],
    ["report", "one.json", "--out", f"a{EVIL[:40].replace('/', '')}.md"],
    ["report", "evil", "--out", "b.md"],
    ["detect", "evil", "--property", "poisoning"],
    ["init", "evil"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize("mode", [[], ["--json"], ["--debug"]], ids=["plain", "json", "debug"])
def test_the_console_is_not_steered(evil_place: Any, words: list[str], mode: list[str]) -> None:
    safe = [word.encode("utf-8", "replace").decode() for word in words]
    try:
        done = evil_place.overheard(*safe, *mode)
        said = done.stdout + done.stderr
    except Exception as error:
        assert mode == ["--debug"], error  # noqa: PT017  (raised on, for the hook to show)
        return
    assert "Traceback" not in said
    assert STEERING.search(said) is None
    if mode == ["--json"] and done.stdout:
        json.loads(done.stdout)


def test_tables_and_bars_on_a_terminal(evil_place: Any) -> None:
    """As a person sees it: rich's own colours, and nothing that came with a name."""
    module = load(Path(__file__).with_name("test_terminal.py"), "on_a_terminal")
    seen = module.on_a_terminal(
        evil_place, "audit", "evil", "--out", "a", "--attack", "majority", "--no-rounds"
    )
    assert "[red]" in seen.replace("\r\n", "")
    without_colour = re.sub(r"\x1b\[[0-9;?]*[mKhlAGJ]", "", seen)
    for steering in ("\x1b]8", "\x07", "\x9b", "\u202e", "\x1b[2J", "\x1b["):
        assert steering not in without_colour


def test_an_error_that_nobody_caught_is_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    from overheard.terminal import show_error

    try:
        raise ValueError(EVIL)
    except ValueError as error:
        show_error(ValueError, error, error.__traceback__)
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert STEERING.search(said) is None


def test_visible_says_the_same() -> None:
    assert visible("plain Grüße 漢字 ✓ −1") == "plain Grüße 漢字 ✓ −1"
    assert visible("\x1b[31m") == "\\x1b[31m"
    assert visible("a\nb", keep="\n") == "a\nb"
    assert visible("\u202e\U000e0041") == "\\u202e\\U000e0041"


def test_every_character_that_a_terminal_obeys_is_spelled_out() -> None:
    """By Unicode's own classes: controls, formats that hide or turn, separators, surrogates."""
    from unicodedata import bidirectional, category

    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(0x110000):
        character = chr(code)
        if category(character) in ("Cc", "Cs", "Zl", "Zp") or bidirectional(character) in turning:
            assert visible(character).isascii(), hex(code)
