"""A small recording made by hand, and a forger who knows how to compute digests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load

from overheard.programs.records import Records
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recorder

attempting = load(Path(__file__).with_name("attempting.py"))
Lines = list[Any]
CLIENTS = ("north", "south", "east")


def small_recording(path: Path, rounds: int = 4, close: bool = True) -> Path:
    """Three clients of which two answer each round, with side knowledge and truth."""
    rng = np.random.default_rng(7)
    tables = {
        c: Records({"x": rng.normal(size=5), "s": np.array(["a", "b", "a", "b", "a"])})
        for c in CLIENTS
    }
    recorder = Recorder(path, "model", {"clients": list(CLIENTS)})
    recorder.truth(tables)
    recorder.side("AttributeDomain", {"column": "s", "values": ["a", "b"]}, "attribute.s")
    recorder.side("PublicRecords", {c: t.without("s") for c, t in tables.items()}, "attribute.s")
    for number in range(rounds):
        chosen = [CLIENTS[number % 3], CLIENTS[(number + 1) % 3]]
        recorder.round(
            number,
            {"w": np.full((2, 3), number, np.float32), "b": np.float32([number, 1])},
            {
                c: {"w": rng.normal(size=(2, 3)).astype(np.float32), "b": np.float32([number, k])}
                for k, c in enumerate(chosen)
            },
            dict.fromkeys(chosen, 5.0),
        )
    (recorder.close if close else recorder.release)()
    return path


@pytest.fixture
def make_recording() -> Callable[..., Path]:
    return small_recording


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_recording(tmp_path / "run")


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
