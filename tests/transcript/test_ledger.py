"""An index in which every byte is accounted for, and file names that lead nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixData, FixRecording
from overheard.transcript.ledger import INDEX, LedgerWriter, read_checked, read_ledger

pytestmark = pytest.mark.slow

Forge = Callable[[Path, Callable[[list[Any]], list[Any] | None]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed folder with two files."""
    writer = LedgerWriter(tmp_path / "folder")
    writer.append({"kind": "header", "about": "Zürich \ufffd"})
    writer.file("one.bin", b"first file", kind="side")
    writer.file("two.bin", b"second file", kind="side")
    writer.close()
    return tmp_path / "folder"


def test_what_is_written_is_read(folder: Path) -> None:
    found = read_ledger(folder)
    assert [e["kind"] for e in found.entries] == ["header", "side", "side", "end"]
    assert found.entries[0]["about"] == "Zürich \ufffd"
    assert found.closed
    assert not found.rest
    assert [read_checked(folder, e) for e in found.entries[1:3]] == [b"first file", b"second file"]
    assert sorted(p.name for p in folder.iterdir()) == [INDEX, "one.bin", "two.bin"]


def test_cut_at_any_byte_the_whole_lines_remain(folder: Path) -> None:
    whole = (folder / INDEX).read_bytes()
    entries = read_ledger(folder).entries
    for length in range(len(whole)):
        (folder / INDEX).write_bytes(whole[:length])
        found = read_ledger(folder)
        lines = whole[:length].count(b"\n")
        assert found.entries == entries[:lines]
        assert bool(found.rest) == (length > 0 and not whole[:length].endswith(b"\n"))
        assert not found.closed


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_a_flipped_byte_is_noticed_wherever_it_is(folder: Path, mask: int) -> None:
    whole = (folder / INDEX).read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= mask
        (folder / INDEX).write_bytes(damaged)
        if at == len(whole) - 1:  # the last newline: the last line is no longer whole
            assert not read_ledger(folder).closed
            assert read_ledger(folder).rest
        else:
            line = whole[:at].count(b"\n") + 1
            with pytest.raises(FixRecording, match=rf"index\.jsonl: line {line} is damaged"):
                read_ledger(folder)


def test_removed_repeated_and_reordered_lines_are_noticed(folder: Path) -> None:
    lines = (folder / INDEX).read_text().splitlines(keepends=True)
    for order, line in (([0, 2, 1, 3], 2), ([0, 2, 3], 2), ([0, 1, 1, 2, 3], 3)):
        (folder / INDEX).write_text("".join(lines[i] for i in order))
        with pytest.raises(FixRecording, match=f"line {line} is damaged"):
            read_ledger(folder)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no json", "line 5: is not JSON"),
        ("[1]", "line 5 has no kind"),
        ('{"kind": "side"}', "line 5 follows the end"),
    ],
)
def test_a_line_with_the_right_digest_may_still_be_wrong(
    folder: Path, forge: Forge, text: str, complaint: str
) -> None:
    forge(folder, lambda entries: [*entries, text])
    with pytest.raises(FixRecording, match=complaint):
        read_ledger(folder)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_only_json_is_listed(tmp_path: Path, value: object) -> None:
    writer = LedgerWriter(tmp_path / "folder")
    with pytest.raises(FixData, match="not JSON"):
        writer.append({"kind": "header", "value": value})
    writer.append({"kind": "header"})
    writer.close()
    assert read_ledger(tmp_path / "folder").closed


def test_a_line_that_failed_half_way_is_taken_back(tmp_path: Path) -> None:
    """Or the next one would be written after half a line, and all would be called damaged."""
    import resource

    writer = LedgerWriter(tmp_path / "folder")
    writer.append({"kind": "header"})
    before, whole = resource.getrlimit(resource.RLIMIT_FSIZE), (tmp_path / "folder" / INDEX)
    there = whole.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(there) + 70, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            writer.append({"kind": "round", "round": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(whole)
    assert whole.read_bytes() == there
    writer.append({"kind": "round", "round": 2})
    writer.close()
    entries = read_ledger(tmp_path / "folder").entries
    assert [entry.get("round") for entry in entries] == [None, 2, None]
    assert read_ledger(tmp_path / "folder").closed
