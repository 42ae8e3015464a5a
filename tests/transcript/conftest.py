"""A small recording, and a forger who knows how to compute digests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import load

from overheard.transcript.ledger import INDEX

attempting = load(Path(__file__).with_name("attempting.py"))
Lines = list[Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made: Path = attempting.sound(tmp_path / "run")
    return made


@pytest.fixture
def forge() -> Callable[[Path, Callable[[Lines], Lines | None]], None]:
    """Change an index as somebody would who can compute sha256: every digest is right again.

    Lines are entries, or text where the line is not to be JSON.
    """

    def rewrite(folder: Path, change: Callable[[Lines], Lines | None]) -> None:
        index = folder / INDEX
        entries = attempting.lines_of(index)
        changed = change(entries)
        attempting.forge(index, entries if changed is None else changed)

    return rewrite
