"""docs/reliability.md quotes the committed results, and these are as good as they must be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").splitlines()
RESULTS = sorted((ROOT / "reliability").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_the_page_says_how_much_was_tried(path: Path) -> None:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    (line,) = [line for line in PAGE if f"`python -m reliability.{path.stem}`" in line]
    trials = sum(row["trials"] for row in rows)
    assert f" {trials:,} " in line


@pytest.mark.parametrize(
    "path",
    [path for path in RESULTS if path.stem not in ("chaos", "identify")],
    ids=lambda path: path.stem,
)
def test_no_bound_is_broken(path: Path) -> None:
    """``identify`` missed two of its bounds, as the page says; ``chaos`` counts kills."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["what"] for row in rows if row["faults"] or "WRONG" in row["outcome"]] == []


def test_a_reader_finishes_the_page() -> None:
    assert len(" ".join(PAGE).split()) <= 1300
