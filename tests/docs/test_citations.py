"""The sections of the mathematics that docstrings cite are there, in the repository."""

from __future__ import annotations

import re

from experiments.pages import ROOT

CITED = re.compile(r"decoders\.md\s+sections?\s+((?:\d+(?:\.\d+)?(?:,\s+|\s+and\s+)?)+)")
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def sections() -> set[str]:
    text = (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8")
    return set(re.findall(r"^## (\d+(?:\.\d+)?)\.? ", text, flags=re.MULTILINE))


def test_cited_sections_are_there() -> None:
    known, cited = sections(), 0
    for path in SOURCES:
        for match in CITED.finditer(path.read_text(encoding="utf-8")):
            numbers = set(re.findall(r"\d+(?:\.\d+)?", match[1]))
            assert numbers <= known, f"{path.name} cites {match[0]!r}; there are {sorted(known)}"
            cited += len(numbers)
    assert cited, "nobody cites the mathematics, or otherwise than this looks for"
