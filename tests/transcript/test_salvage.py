"""What is left of a damaged recording is sound, a part of it, and what is missing is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from overheard.errors import FixRecording
from overheard.transcript.ledger import INDEX, read_ledger
from overheard.transcript.store import Recording
from overheard.transcript.verify import salvage, verify


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def files(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_a_sound_recording_is_left_as_it_is(run: Path, tmp_path: Path) -> None:
    assert salvage(run, tmp_path / "left") == ()
    assert files(tmp_path / "left") == files(run)


@pytest.mark.parametrize("change", ["flipped", "missing", "shorter", "a link"])
def test_a_damaged_round_is_left_out(run: Path, tmp_path: Path, change: str) -> None:
    path = run / "wire" / "round-000001.safetensors"
    if change == "flipped":
        flip(path, path.stat().st_size - 1)
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.rename(tmp_path / "elsewhere")
        if change == "a link":
            path.symlink_to(tmp_path / "elsewhere")
    (said,) = salvage(run, tmp_path / "left")
    assert said.startswith("wire/round-000001.safetensors: ")
    assert said.endswith("; round 1 is left out")
    left = Recording.open(tmp_path / "left")
    assert [entry.number for entry in left.rounds] == [0, 2, 3]
    assert left.closed
    assert verify(tmp_path / "left").sound
    whole = Recording.open(run) if change != "a link" else None
    if whole is not None:
        assert left.clients == whole.clients
        assert left.truth().keys() == whole.truth().keys()


def test_a_damaged_line_costs_what_it_listed(run: Path, tmp_path: Path) -> None:
    """The digest of a line is part of the next: if that is hit, the next line goes as well."""
    index = run / "wire" / INDEX
    whole = index.read_bytes()
    second = whole.index(b"\n") + 1
    third = whole.index(b"\n", second) + 1
    for at, rounds in ((second + 100, [1, 2, 3]), (second + 3, [2, 3]), (third + 3, [0, 3])):
        changed = bytearray(whole)
        changed[at] ^= 1
        index.write_bytes(changed)
        out = tmp_path / f"left {at}"
        said = salvage(run, out)
        assert [entry.number for entry in Recording.open(out).rounds] == rounds
        assert len(said) == 4 - len(rounds)
        assert all(f"wire/{INDEX}: line " in line for line in said)
        assert verify(out).sound


def test_an_index_that_cannot_be_read_costs_its_folder(run: Path, tmp_path: Path) -> None:
    (run / "side" / INDEX).unlink()
    (said,) = salvage(run, tmp_path / "left")
    assert said.startswith("side/index.jsonl: cannot be read")
    assert Recording.open(tmp_path / "left").targets == ()
    shutil.rmtree(run / "wire")
    with pytest.raises(FixRecording, match="wire: missing; nothing can be made"):
        salvage(run, tmp_path / "none")


@pytest.mark.parametrize("at", [0, 30, 70, 90])
def test_without_its_header_nothing_can_be_made_of_it(run: Path, tmp_path: Path, at: int) -> None:
    flip(run / "wire" / INDEX, at)
    with pytest.raises(FixRecording, match="the header, is damaged"):
        salvage(run, tmp_path / "left")


def test_an_unfinished_recording_stays_unfinished(
    tmp_path: Path, make_recording: Callable[..., Path]
) -> None:
    run = make_recording(tmp_path / "run", close=False)
    flip(run / "wire" / "round-000000.safetensors", 200)
    with (run / "wire" / INDEX).open("ab") as index:
        index.write(b"0123")
    said = salvage(run, tmp_path / "left")
    assert len(said) == 2
    assert "its last line is not whole" in said[0]
    assert not read_ledger(tmp_path / "left" / "wire").closed
    assert verify(tmp_path / "left").problems == ()


def test_nothing_that_is_wrong_is_kept(run: Path, tmp_path: Path) -> None:
    """Wherever one bit is flipped: what is left is sound, and is a part of what was there."""
    rng = np.random.default_rng(8)
    whole = files(run)
    kept = set(whole.values())
    tried = 0
    for name, raw in whole.items():
        for at in rng.choice(len(raw), 6, replace=False).tolist():
            flip(run / name, at)
            out = tmp_path / f"left {tried}"
            try:
                said = salvage(run, out)
            except FixRecording:
                said = ("the header",)
            else:
                assert verify(out).problems == ()
                left = {n: b for n, b in files(out).items() if not n.endswith(INDEX)}
                assert set(left.values()) <= kept
            assert said, (name, at)
            (run / name).write_bytes(raw)
            tried += 1
    assert tried == 6 * len(whole)
