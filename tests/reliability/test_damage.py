"""A damaged recording is refused, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

QUICK = ["--attack", "majority", "--attack", "global_model", "--no-rounds"]
AUDIT = ["audit", "run", "--out", "out", *QUICK]


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def damaged(workplace: Any) -> Any:
    """Two rounds of eight are gone: one by its file, one by its line of the index."""
    wire = workplace.path / "run" / "wire"
    flip(wire / "round-000002.safetensors", 400)
    lines = (wire / "index.jsonl").read_bytes().splitlines(keepends=True)
    flip(wire / "index.jsonl", sum(map(len, lines[:6])) + 80)
    return workplace


def test_it_is_refused_and_nothing_is_left(damaged: Any) -> None:
    before = damaged.contents()
    done = damaged.overheard(*AUDIT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run/wire/index.jsonl: line 7 is damaged")
    assert damaged.contents() == before
