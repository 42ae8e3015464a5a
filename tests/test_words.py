"""Code, documentation and report use the words of the field, promise nothing, and are few.

Readers of the papers know an imputation baseline, an update and an overconfident answer; words of
our own would have to be translated. DIALECT stands nowhere; of the names and of what a user reads
ORDINARY is no part either, unless it is plain English there: "told apart", "by chance". *Rung*
belongs to the knowledge ladder alone.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "overheard"
DIALECT = (
    r"strangers?|beforehand|heard|climb(s|ed|ing)?|sober(ly)?|sureness|oversure|stretch(es)?|slots?|"
    r"(?<!of )courses?|rehears\w+|peel(s|ed|ing)?|wires?|tapes?|shelf|people alike|"
    r"(with|without|to|leaves?|have|has|needs) chance"
)
ORDINARY = r"told(?! apart)|said|(?<!by[ _])(?<!than )chance"
PROMISES = r"safe(ly|ty)?|anonym(ous|ised)|compliant"
KINDS = (".py", ".pyi", ".j2", ".toml", ".css", ".js", ".svg", ".md")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PLACES = {page.name: [page] for page in PAGES}
PLACES |= {p.name: [*p.rglob("*")] if p.is_dir() else [p] for p in PACKAGE.iterdir()}
LEFT = {"federation": 1, "CHANGELOG.md": 5}
"""A random stream, whose draws stay what they were; and the keys that were renamed."""
MADE = r"(?s)<!-- table: (?!configuration).*?<!-- end -->"
"""A table of results: its cells are read one by one. Pages of papers are made of them."""


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """What a file's words may not be, and the words: of Python token by token."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        plain = re.sub(r"\|\s*safe\b|\w+-items: stretch", "", text)  # Jinja's and CSS's own
        yield f"{DIALECT}|{ORDINARY}|{PROMISES}", plain
        return
    printed = f"|{ORDINARY}" if path.parent.name in ("report", "cli") else ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        more = f"|{ORDINARY}" if token.type == tokenize.NAME else f"|{PROMISES}{printed}"
        yield DIALECT + more, " ".join(token.string.split())


def dialect(path: Path) -> list[str]:
    """Where a file speaks a language of its own, names in it included."""
    found = [
        f"{path.name}: {text[max(0, each.start() - 30) : each.end() + 20]!r}"
        for words, text in texts(path)
        for each in re.finditer(rf"(?i)(?<![a-z])({words})(?![a-z])", text)
    ]
    text = path.read_text(encoding="utf-8").lower()
    return found + ["rung"] * ("rung" in text and "ladder" not in text)


@pytest.mark.parametrize("place", sorted(PLACES))
def test_the_words_are_those_of_the_field(place: str) -> None:
    found = [each for path in PLACES[place] if path.suffix in KINDS for each in dialect(path)]
    assert len(found) <= LEFT.get(place, 0), "\n".join(found)


def words(page: Path) -> int:
    text = page.read_text(encoding="utf-8")
    text = re.sub(MADE, "", text) if page.name != "README.md" else text
    text = re.sub(r"(?m)^\|.*", "", text) if page.parent.name == "papers" else text
    return len(re.findall(r"\S*\w\S*", re.sub(r"<!--.*?-->", "", text)))


def test_one_can_read_all_of_it() -> None:
    """Of README all words, of the documentation all but the cells of tables of results."""
    assert words(ROOT / "README.md") <= 1200
    assert 10_000 < sum(map(words, (ROOT / "docs").rglob("*.md"))) <= 18_000
