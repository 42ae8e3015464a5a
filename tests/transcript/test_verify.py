"""Every byte of a recording is accounted for, what is wrong is named, and what is left of a damaged
recording is sound, a part of it, and says what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load

from overheard.errors import FixRecording
from overheard.evaluation.record import read_audit
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import FORMAT, Recording
from overheard.transcript.verify import verify

pytestmark = pytest.mark.slow

attempting = load(Path(__file__).with_name("attempting.py"))
RECORDED = Path(__file__).with_name("recorded")


def files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file())


def contents(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in files(run)}


def test_a_recording_that_was_made_elsewhere_is_audited_without_a_change(workplace: Any) -> None:
    """By `overheard simulate`: three rounds, two clients, nine people each. Another format is
    refused (``attempts/format-future.toml``)."""
    before = contents(RECORDED)
    found, recording = verify(RECORDED), Recording.open(RECORDED)
    assert found.sound, found
    assert found.rounds == 3
    assert recording.header["format"] == FORMAT
    assert recording.closed
    assert recording.targets == ("attribute.s",)
    assert {c: len(table) for c, table in recording.truth().items()} == {"site 0": 9, "site 1": 9}
    chosen = ["majority", "exact_linear", "max_entropy"]
    attacks = [word for name in chosen for word in ("--attack", name)]
    workplace.done("audit", str(RECORDED), "--out", "audit", *attacks)
    record = read_audit(workplace.path / "audit" / "audit.json")
    assert record.run.rounds == 3
    assert {f.client for f in record.findings} == {"site 0", "site 1"}
    assert {f.attack for f in record.findings} == set(chosen)
    assert contents(RECORDED) == before


def test_every_flipped_byte_is_noticed(run: Path) -> None:
    """A sample of the bytes of every file, ends included, and all of an index's last line: a
    flipped end is damage, and no recorder that was stopped."""
    rng = np.random.default_rng(3)
    missed, tried = [], 0
    for path in files(run):
        whole = path.read_bytes()
        inner = rng.choice(len(whole), min(len(whole), 60), replace=False)
        last = whole[:-1].rfind(b"\n") + 1 if path.name == INDEX else len(whole) - 1
        for at in {0, 7, 8, *range(last, len(whole)), *inner.tolist()}:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            found = verify(run)
            tried += 1
            if not any(path.name in p for p in found.problems):
                missed.append((path.name, at))
        path.write_bytes(whole)
    assert missed == []
    assert tried > 500
    found = verify(run)
    assert (found.sound, found.files, found.rounds) == (True, 17, 4)
    assert len(files(run)) == found.files + 3  # and the three indexes


@pytest.mark.parametrize("change", ["missing", "shorter", "longer", "empty"])
def test_every_file_that_is_missing_or_has_another_length_is_named(run: Path, change: str) -> None:
    for path in files(run):
        whole = path.read_bytes()
        if change == "missing":
            path.unlink()
        else:
            other = {"shorter": whole[:-1], "longer": whole + b"\n", "empty": b""}
            path.write_bytes(other[change])
        found = verify(run)
        assert not found.sound
        assert any(path.name in p for p in (*found.problems, *found.unfinished)), path
        path.write_bytes(whole)
    assert verify(run).sound


@pytest.mark.parametrize("name", ["note.txt", "round-000099.safetensors", "x.part", ".hidden"])
@pytest.mark.parametrize("folder", ["messages", "side", "truth"])
def test_a_stray_file_is_named(run: Path, folder: str, name: str) -> None:
    (run / folder / name).write_text("left behind")
    (problem,) = verify(run).problems
    assert problem.startswith(f"{run / folder / name}: is not listed in the index; remove it")


@pytest.mark.parametrize("folder", ["truth", "side"])
def test_a_recording_may_be_shared_without_its_secrets(run: Path, folder: str) -> None:
    shutil.rmtree(run / folder)
    assert verify(run).sound


def test_without_its_wire_it_is_no_recording(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "messages")
    assert any("messages" in p for p in verify(run).problems)
    with pytest.raises(FixRecording, match="no such recording"):
        verify(tmp_path / "nowhere")


def test_stopped_is_not_damaged(tmp_path: Path) -> None:
    found = verify(attempting.sound(tmp_path / "stopped", close=False))
    assert found.problems == ()
    assert len(found.unfinished) == 3
    assert all("not closed; the recorder was stopped" in u for u in found.unfinished)


def test_all_damage_is_listed_not_only_the_first(run: Path) -> None:
    for name in ("round-000001.safetensors", "round-000003.safetensors"):
        (run / "messages" / name).write_bytes(b"")
    assert len(verify(run).problems) == 2


def bare(path: Path, header: bytes | None) -> Path:
    """What a recorder leaves that is killed before its header is whole."""
    (path / "messages").mkdir(parents=True)
    if header is not None:
        (path / "messages" / INDEX).write_bytes(header)
    return path


def test_stopped_before_the_header_is_not_damaged(run: Path, tmp_path: Path) -> None:
    header = (run / "messages" / INDEX).read_bytes().partition(b"\n")[0]
    (tmp_path / "empty").mkdir()
    left = [tmp_path / "empty", bare(tmp_path / "no index", None)]
    for length in range(len(header) + 1):
        left.append(bare(tmp_path / str(length), header[:length]))
    for path in left:
        found = verify(path)
        assert found.problems == ()
        assert "the recorder was stopped before it recorded anything" in found.unfinished[0]


def test_a_lost_header_of_a_recording_is_damage(run: Path, tmp_path: Path) -> None:
    """The same index, but something was recorded: no killed recorder leaves that."""
    index = run / "messages" / INDEX
    whole = index.read_bytes()
    for length in (0, 10, 70, whole.index(b"\n")):
        index.write_bytes(whole[:length])
        assert verify(run).problems
        bare_run = bare(tmp_path / f"side {length}", whole[:length])
        shutil.copytree(run / "side", bare_run / "side")
        assert verify(bare_run).problems
    no_line = bare(tmp_path / "changed", b"x" + whole[1:20])
    assert verify(no_line).problems


def test_an_index_that_was_cut_short_is_damage_where_that_can_be_told(run: Path) -> None:
    """A recorder closes the messages last, and leaves one unlisted file at most."""
    for folder in ("side", "truth"):
        index = run / folder / INDEX
        whole = index.read_bytes()
        index.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
        (problem,) = verify(run).problems
        assert "its end is missing although the recording was finished" in problem
        index.write_bytes(whole)
    index = run / "messages" / INDEX
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(lines[:-2]))  # without its end and one round: a stopped recorder
    assert verify(run).problems == ()
    assert verify(run).unfinished
    index.write_bytes(b"".join(lines[:-3]))
    problems = verify(run).problems
    assert len(problems) == 2
    assert all("or restore the index from a copy" in p for p in problems)
