"""A round is an ordinary safetensors file, and one client's message is read alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.foreign import files
from overheard.transcript import messages
from overheard.transcript.messages import (
    check_client,
    layout_of,
    parse_round,
    read_messages,
    write_round,
)

Entry = dict[str, Any]
DTYPES = ["<f8", "<f4", "<f2", "<i8", "<i4", "|u1", "|b1"]


def written(folder: Path, blocks: dict[tuple[str, str], dict[str, np.ndarray]]) -> Entry:
    return {**write_round(folder, 3, blocks), "weights": {}}


def read(folder: Path, entry: Entry, way: str, who: str) -> dict[str, np.ndarray]:
    (arrays,) = read_messages(folder, parse_round(folder, entry), [(way, who)])
    return arrays


def some_messages(rng: np.random.Generator, size: int = 50) -> dict[tuple[str, str], Any]:
    whom = [("sent", ""), ("returned", "a"), ("returned", "b"), ("returned", "c")]
    return {
        key: {"w": rng.normal(size=(size, 3)).astype(np.float32), "b": rng.normal(size=2)}
        for key in whom
    }


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    names = draw(st.lists(st.text(max_size=8), min_size=1, max_size=4, unique=True))
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return [(n, np.dtype(draw(st.sampled_from(DTYPES))), draw(shapes)) for n in names]


@given(layouts(), st.randoms(use_true_random=False))
def test_the_safetensors_library_reads_the_same_arrays(
    tmp_path_factory: pytest.TempPathFactory, layout: Any, random: Any
) -> None:
    """Whatever the types and shapes, scalars and empty arrays included, bit by bit."""
    folder = tmp_path_factory.mktemp("round")
    blocks = {
        key: {
            name: np.frombuffer(
                random.randbytes(int(np.prod(shape)) * dtype.itemsize), dtype
            ).reshape(shape)
            if dtype.kind != "b"
            else np.zeros(shape, bool)
            for name, dtype, shape in layout
        }
        for key in [("sent", ""), ("returned", "north"), ("returned", "south 2")]
    }
    entry = written(folder, blocks)
    theirs = load_file(folder / entry["file"])
    assert set(theirs) == {f"{w}:{c}:{n}" for (w, c), arrays in blocks.items() for n in arrays}
    for (way, who), arrays in blocks.items():
        ours = read(folder, entry, way, who)
        assert list(ours) == list(arrays)
        for name, array in arrays.items():
            for copy in (ours[name], theirs[f"{way}:{who}:{name}"]):
                assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
                assert copy.tobytes() == array.tobytes()


def test_any_memory_order_and_byte_order_can_be_sent(tmp_path: Path) -> None:
    straight = np.arange(12.0).reshape(3, 4)
    sent = {"a": straight.T, "b": straight.astype(">f8"), "c": straight[::-2, ::2]}
    got = read(tmp_path, written(tmp_path, {("sent", ""): sent}), "sent", "")
    for name, array in sent.items():
        assert np.array_equal(got[name], array)
        assert got[name].dtype == np.dtype("<f8")


@pytest.mark.parametrize("client", ["a", "b", "c"])
def test_a_message_needs_no_byte_of_the_others(
    tmp_path: Path, rng: np.random.Generator, client: str
) -> None:
    """Everything else in the file is destroyed, the file's own header included."""
    blocks = some_messages(rng)
    entry = written(tmp_path, blocks)
    path = tmp_path / entry["file"]
    start, end, _ = parse_round(tmp_path, entry).spans["returned", client]
    raw, head = path.read_bytes(), entry["head"]
    path.write_bytes(
        b"\xff" * (head + start)
        + raw[head + start : head + end]
        + b"\xff" * (len(raw) - head - end)
    )
    got = read(tmp_path, entry, "returned", client)
    assert np.array_equal(got["w"], blocks["returned", client]["w"])
    for key in blocks.keys() - {("returned", client)}:
        with pytest.raises(FixRecording, match=rf"round-000003.*{key[0]} {key[1] or 'to all'}"):
            read(tmp_path, entry, *key)


def test_only_the_message_is_read(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = written(tmp_path, some_messages(rng))
    touched: list[tuple[int, int]] = []

    class Watched(io.FileIO):
        def read(self, size: int = -1, /) -> bytes:
            at = self.tell()
            got = super().read(min(size, 100)) or b""  # short reads happen; none may be lost
            touched.append((at, at + len(got)))
            return got

    monkeypatch.setattr(files, "FileIO", Watched)
    read(tmp_path, entry, "returned", "b")
    parsed = parse_round(tmp_path, entry)
    start, end, _ = parsed.spans["returned", "b"]
    assert touched[0][0] == parsed.head + start
    assert touched[-1][1] == parsed.head + end
    assert sum(b - a for a, b in touched) == end - start


def test_a_flipped_byte_of_the_message_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    entry = written(tmp_path, some_messages(rng))
    path = tmp_path / entry["file"]
    start, end, _ = parse_round(tmp_path, entry).spans["returned", "a"]
    whole = path.read_bytes()
    for at in (start, (start + end) // 2, end - 1):
        damaged = bytearray(whole)
        damaged[entry["head"] + at] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(FixRecording, match="the message returned a does not match the index"):
            read(tmp_path, entry, "returned", "a")
        read(tmp_path, entry, "returned", "b")


def test_a_message_that_is_not_there_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    entry = written(tmp_path, some_messages(rng))
    with pytest.raises(FixRecording, match="round 3 has no message returned d"):
        read(tmp_path, entry, "returned", "d")
    with pytest.raises(FixRecording, match="round 3 has no message sent a"):
        read(tmp_path, entry, "sent", "a")


@pytest.mark.parametrize(
    "array", [np.zeros(2, np.int16), np.zeros(2, complex), np.array(["a"]), np.array([None])]
)
def test_types_that_are_not_in_the_format_are_refused(array: np.ndarray) -> None:
    with pytest.raises(FixData, match=r"array 'w' has type .*; allowed: F64"):
        layout_of({"w": array})


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.zeros((3, 2))},  # another shape
        {"w": np.zeros((2, 3), np.float32)},  # another type
        {"v": np.zeros((2, 3))},  # another name
        {"w": np.zeros((2, 3)), "b": np.zeros(1)},  # one more
        {},  # none
    ],
)
def test_all_messages_of_a_round_have_one_layout(tmp_path: Path, other: dict[str, Any]) -> None:
    blocks = {("sent", ""): {"w": np.zeros((2, 3))}, ("returned", "a"): other}
    with pytest.raises(FixData, match="round 3: the message returned a has arrays"):
        write_round(tmp_path, 3, blocks)
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_no_library_would_read_is_not_written(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_HEADER_BYTES", 100)
    with pytest.raises(FixData, match="record fewer clients a round"):
        write_round(tmp_path, 3, some_messages(rng))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "../a", "é", " a", "x" * 101, "a\n"])
def test_client_names_that_could_be_mistaken_are_refused(name: str) -> None:
    with pytest.raises(FixConfig, match="is not allowed; use letters"):
        check_client(name)


def setting(**values: Any) -> Callable[[Entry], None]:
    return lambda entry: entry.update(values)


def trading_places(entry: Entry) -> None:
    """Two messages swap their positions: every byte is still covered once."""
    _, _, one, other = entry["messages"]
    one[2:4], other[2:4] = other[2:4], one[2:4]


def overlapping(entry: Entry) -> None:
    """A client's message would be read from another's bytes."""
    entry["messages"][2][2:4] = entry["messages"][1][2:4]


def dropping(key: str) -> Callable[[Entry], None]:
    return lambda entry: entry.pop(key)


@pytest.mark.parametrize(
    "change",
    [
        trading_places,
        overlapping,
        dropping("layout"),
        dropping("messages"),
        dropping("weights"),
        dropping("head"),
        dropping("round"),
        dropping("size"),
        setting(round=-1),
        setting(head=16.0),
        setting(size=10**30),
        setting(layout=[["w"]]),
        setting(layout=[["w", "F32", [50, 4]], ["b", "F64", [2]]]),
        setting(layout=[["w", "F128", [50, 3]], ["b", "F64", [2]]]),
        setting(messages=[["sent", "", 0, 616]]),
        setting(messages=[["sent", "", 8, 624, "0" * 64]]),
        setting(messages=[["sent", "", 0, 616, "0" * 64]] * 2),
        setting(messages=[["returned", "", 0, 616, "0" * 64]]),
        setting(messages=[["heard", "a", 0, 616, "0" * 64]]),
        setting(weights={"a": None}),
    ],
)
def test_a_strangers_index_line_is_checked(
    tmp_path: Path, rng: np.random.Generator, change: Callable[[Entry], None]
) -> None:
    """Beside what ``attempts/`` try."""
    entry = written(tmp_path, some_messages(rng))
    parse_round(tmp_path, entry)
    change(entry)
    with pytest.raises(FixRecording, match=r"index\.jsonl: the line of round .* is not valid"):
        parse_round(tmp_path, entry)
