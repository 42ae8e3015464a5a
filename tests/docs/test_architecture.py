"""The map of the code names places that are there: two at most for a change, eight for a walk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- test: paths -->")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", TABLE, re.MULTILINE)
CHANGES = [row for row in ROWS if row[0] != "change"]


def places(text: str) -> list[Path]:
    named = re.findall(r"`([a-z0-9_/.]+)`", text)
    return [
        ROOT / name if name.split("/")[0] in ("examples", "experiments")
        else ROOT / "src" / "overheard" / name
        for name in named
    ]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda row: row[0])
def test_a_change_is_one_file_or_two(change: tuple[str, str]) -> None:
    found = places(change[1])
    assert found
    assert all(place.exists() for place in found), found
    ours = [place for place in found if place.is_relative_to(ROOT / "src")]
    assert len(ours) <= 2


@pytest.mark.parametrize("walk", PAGE.split("<!-- test: walk -->")[1:], ids=["message", "finding"])
def test_a_walk_is_eight_files_with_these_functions(walk: str) -> None:
    walk = walk.partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_/]+\.py)` \| (.+?) \|", walk, re.MULTILINE)
    assert 0 < len(rows) <= 8
    for file, names in rows:
        source = (ROOT / "src" / "overheard" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), (file, name)


def test_every_folder_is_on_the_map() -> None:
    for folder in (ROOT / "src" / "overheard").iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert f"`{folder.name}`" in PAGE, folder.name


# the sections of the mathematics that docstrings cite are there

CITED = re.compile(r"decoders\.md\s+sections?\s+((?:\d+(?:\.\d+)?(?:,\s+|\s+and\s+)?)+)")
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_cited_sections_are_there() -> None:
    text, cited = (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8"), 0
    known = set(re.findall(r"^## (\d+(?:\.\d+)?)\.? ", text, flags=re.MULTILINE))
    for path in SOURCES:
        for match in CITED.finditer(path.read_text(encoding="utf-8")):
            numbers = set(re.findall(r"\d+(?:\.\d+)?", match[1]))
            assert numbers <= known, f"{path.name} cites {match[0]!r}; there are {sorted(known)}"
            cited += len(numbers)
    assert cited, "nobody cites the mathematics, or otherwise than this looks for"
