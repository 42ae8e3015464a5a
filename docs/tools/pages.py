"""What a Markdown file holds: its commands and code, in order, and tables.

A comment before a block of code says how it is tried; without one it is simply run:

- ``<!-- test: exit 1 -->``: it is expected to end with this code;
- ``<!-- test: parse -->``: it needs data or takes long; command, options and arguments are checked;
- ``<!-- test: makefile -->``: a target of the Makefile, which must be there;
- ``<!-- test: needs MODULE -->``: run where the module is installed, skipped elsewhere;
- ``<!-- test: elsewhere WHY -->``: not run here, for a reason that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- test: (?P<how>.*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<body>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its lines and how to try it."""

    language: str
    title: str
    body: str
    how: str


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        body = "\n".join(line[indent:] for line in match["body"].splitlines())
        found.append(
            Block(match["language"], match["title"] or "", body + "\n", match["how"] or "")
        )
    return found


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    cells = [heads, ["---"] * len(heads), *rows]
    safe = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)
