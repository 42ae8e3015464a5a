"""What was recorded is what is read, and a recorder killed at any byte loses at most a round."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE

from overheard.errors import ChooseAnotherOutput, FixConfig, FixData, FixRecording
from overheard.foreign.tables import pack_columns
from overheard.programs.records import Records
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recorder, Recording, read_tables, write_tables
from overheard.transcript.verify import verify

pytestmark = pytest.mark.slow

Forge = Callable[[Path, Callable[[list[Any]], list[Any] | None]], None]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_tables_come_back(dtype: Any) -> None:
    images = (9 * np.random.default_rng(1).random((3, 6))).astype(dtype)
    tables = {
        "a": Records({"x": np.array([1.5, -0.0]), "t": np.array(["ü", ""]), "i": images[:2]}),
        "b 2": Records({"x": np.array([np.inf]), "t": np.array(["z" * 300]), "i": images[2:]}),
    }
    back = read_tables(write_tables(tables))
    assert list(back) == ["a", "b 2"]
    for client, records in tables.items():
        for name, values in records.columns.items():
            assert np.array_equal(back[client][name], values)
            assert back[client][name].dtype.kind == values.dtype.kind
        assert back[client]["i"].dtype == dtype
        assert back[client]["i"].base is None or len(back[client]["i"].base) == len(records)


def test_clients_must_have_the_same_columns() -> None:
    one, other = Records({"x": np.ones(2)}), Records({"x": np.array(["a", "b"])})
    with pytest.raises(FixData, match=r"client 'b' has the columns .*'x': 'text'.*same columns"):
        write_tables({"a": one, "b": other})


CHANGED = "round 3: the message sent to all has arrays .* where the first message has w F64 3"


@pytest.mark.parametrize(
    ("number", "sent", "complaint"),
    [
        (3, np.zeros((3, 1)), CHANGED),
        (3, np.zeros(3, np.float32), CHANGED),
        *((number, np.ones(3), f"round {number} comes after round 2") for number in (2, 1, 0, -1)),
    ],
)
def test_what_changes_or_goes_back_is_refused_and_nothing_is_lost(
    tmp_path: Path, number: int, sent: Any, complaint: str
) -> None:
    message = {"w": np.ones(3)}
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(np.int64(2), message, {"a": message})
        for name in ("w", "v") if complaint is CHANGED else ("w",):
            with pytest.raises(FixData, match=complaint):
                recorder.round(number, {name: sent}, {"a": {name: sent}})
        recorder.round(4, message, {"a": message})
    assert [e.number for e, _, _ in Recording.open(tmp_path / "run").releases("a")] == [2, 4]
    assert verify(tmp_path / "run").sound


def test_what_cannot_be_recorded_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(FixConfig, match="payload 'modle' is not one of model, gradient"):
        Recorder(tmp_path / "run", "modle")
    with pytest.raises(FixData, match="not JSON"):
        Recorder(tmp_path / "run", about={"lr": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_never_written_over(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    before = sorted((p, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())
    for path in (run, tmp_path / "file", tmp_path / "folder"):
        with pytest.raises(ChooseAnotherOutput, match="exists already; choose another path"):
            Recorder(path)
    assert before == sorted((p, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())


@pytest.mark.parametrize("begun", ["", "side", "truth"])
def test_an_error_while_recording_leaves_the_rounds_before_it(tmp_path: Path, begun: str) -> None:
    """``begun``: a folder that is there already, and its index not yet."""

    def record() -> None:
        with Recorder(tmp_path / "run") as recorder:
            recorder.round(0, {"w": np.ones(3)}, {"a": {"w": np.ones(3)}})
            raise RuntimeError("the client is gone")

    with pytest.raises(RuntimeError, match="the client is gone"):
        record()
    gc.collect()  # a file left open would warn here, and a warning is an error
    if begun:
        (tmp_path / "run" / begun).mkdir()
    recording = Recording.open(tmp_path / "run")
    assert not recording.closed
    assert len(recording.rounds) == 1
    assert (recording.side("Labels"), recording.targets) == (None, ())
    assert verify(tmp_path / "run").problems == ()
    assert verify(tmp_path / "run").unfinished


RECORD_FOREVER = """
import sys, itertools, numpy as np
from overheard.transcript.store import Recorder
with Recorder(sys.argv[1], "model", {"clients": ["a", "b"]}) as recorder:
    recorder.side("ClientProgram", {"anything": 1})
    for n in itertools.count():
        model = {"w": np.full((400, 100), n, np.float32)}
        recorder.round(n, model, {c: model for c in ("a", "b")}, {"a": n})
"""


@pytest.mark.parametrize("after", [1, 5])
def test_killed_for_real(tmp_path: Path, after: int) -> None:
    path = tmp_path / "run"
    index = path / "messages" / INDEX
    process = subprocess.Popen([sys.executable, "-c", RECORD_FOREVER, str(path)])
    try:
        deadline = time.monotonic() + PATIENCE
        while not index.exists() or index.read_bytes().count(b"\n") < 1 + after:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(0.003 * after)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    recording = Recording.open(path)
    found = verify(path)
    assert found.problems == ()
    assert found.unfinished
    assert not recording.closed
    observed = [*recording.releases("a")]
    assert len(observed) >= after
    for number, (entry, *messages) in enumerate(observed):
        assert number == entry.number == entry.weights["a"]
        assert all((arrays["w"] == number).all() for arrays in messages)
    # at most the round that was being written is lost
    written = {p.name.removesuffix(".part") for p in (path / "messages").glob("round-*")}
    assert len(written) - len(observed) in (0, 1)


def test_a_truth_without_records_is_named(run: Path) -> None:
    for file in (run / "truth").iterdir():
        file.unlink()
    with pytest.raises(FixRecording, match=r"truth.* lists no records"):
        Recording.open(run).truth()


def at_line(number: int, **values: Any) -> Callable[[list[Any]], None]:
    return lambda entries: entries[number].update(values)


def swapped(entries: list[Any]) -> list[Any]:
    return [*entries[:2], entries[3], entries[2], *entries[4:]]


def reshaped(entries: list[Any]) -> None:
    layout, messages = entries[1]["layout"], entries[1]["messages"]
    (name, kind, _), *others = layout
    entries[2] |= {"layout": [[name, kind, [3, 1]], *others], "messages": messages}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (at_line(0, payload="secrets"), "the header needs a payload"),
        (at_line(0, about=[]), "the header needs a payload .* and an about"),
        (at_line(0, kind="round"), "has no header line"),
        (swapped, "round 1 is not valid: it is listed after round 2"),
        (
            reshaped,
            "round 1 is not valid: its arrays differ from those of round 0",
        ),
    ],
)
def test_a_forged_index_is_refused(run: Path, forge: Forge, change: Any, complaint: str) -> None:
    forge(run / "messages", change)
    with pytest.raises(FixRecording, match=complaint):
        Recording.open(run)


def test_kinds_of_lines_from_later_versions_are_passed_over(run: Path, forge: Forge) -> None:
    forge(run / "messages", lambda entries: [entries[0], {"kind": "remark"}, *entries[1:]])
    assert len(Recording.open(run).rounds) == 4


def test_a_side_line_must_say_what_it_holds(run: Path, forge: Forge) -> None:
    forge(run / "side", at_line(0, holds=None))
    with pytest.raises(FixRecording, match="lacks its file, what it holds or its target"):
        Recording.open(run).side("AttributeDomain", "attribute.s")


def test_the_order_of_names_in_a_mapping_says_nothing(tmp_path: Path) -> None:
    w, b = np.ones(2), np.zeros(1)
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(0, {"w": w, "b": b}, {"a": {"b": b + 1, "w": w + 1}})
        recorder.round(1, {"b": b + 2, "w": w + 2}, {"a": {"w": w + 3, "b": b + 3}})
    observed = [messages for _, *messages in Recording.open(tmp_path / "run").releases("a")]
    expected = [[{"w": w + k, "b": b + k}, {"w": w + k + 1, "b": b + k + 1}] for k in (0, 2)]
    np.testing.assert_equal(observed, expected)


def test_tables_of_interleaved_clients_and_of_nobody(tmp_path: Path) -> None:
    names = np.array(["b", "a", "b", "c", "a", "b"])
    back = read_tables(pack_columns({"__client__": names, "x": np.arange(6.0)}))
    assert {c: r["x"].tolist() for c, r in back.items()} == {"b": [0, 2, 5], "a": [1, 4], "c": [3]}
    assert list(back) == ["b", "a", "c"]
    assert all(r["x"].base is None for r in back.values())  # nothing leads to the others' rows
    nobody = Records({"x": np.zeros(0)})
    assert read_tables(write_tables({"a": nobody, "b": nobody})) == {}


def test_a_side_file_is_read_and_checked_once(run: Path) -> None:
    recording = Recording.open(run)
    first = recording.side("PublicRecords", "attribute.s")
    (file,) = (run / "side").glob("*-publicrecords.safetensors")
    file.write_bytes(b"")
    assert recording.side("PublicRecords", "attribute.s") is first
    with pytest.raises(FixRecording, match=r"publicrecords\.safetensors: has 0 bytes"):
        Recording.open(run).side("PublicRecords", "attribute.s")


def test_a_line_may_say_again_what_its_round_holds(run: Path, forge: Forge) -> None:
    """The writer says it once, and what is read is the same."""
    before = [*Recording.open(run).releases("south")]

    def in_full(entries: list[Any]) -> None:
        assert all("layout" not in e and "messages" not in e for e in entries[2:])
        for entry in entries[2:-1]:
            entry |= {key: entries[1][key] for key in ("layout", "messages")}

    forge(run / "messages", in_full)
    assert verify(run).sound
    for (_, *one), (_, *other) in zip(before, Recording.open(run).releases("south"), strict=True):
        np.testing.assert_equal(one, other)
