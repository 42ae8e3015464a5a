"""A round is an ordinary safetensors file, whose header and index agree."""

from __future__ import annotations

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
    (arrays,) = read_messages(folder, parse_round(folder, entry), [(way, who)], set())
    return arrays


def check_round(folder: Path, entry: Entry) -> None:
    """Every message and the header."""
    found = parse_round(folder, entry)
    list(read_messages(folder, found, found.spans, set()))


@pytest.fixture
def entry(tmp_path: Path, rng: np.random.Generator) -> Entry:
    """Of four messages that are written in ``tmp_path``."""
    whom = [("sent", ""), ("returned", "a"), ("returned", "b"), ("returned", "c")]
    blocks = {
        key: {"w": rng.normal(size=(50, 3)).astype(np.float32), "b": rng.normal(size=2)}
        for key in whom
    }
    return written(tmp_path, blocks)


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"returned:a:w", b"returned:d:w"),  # another client's
        (b"returned:a:w", b"returned:a:v"),
        (b'"F32"', b'"I32"'),
        (b"[50,3]", b"[3,50]"),
        (b'{"sent', b'["sent'),
        # Python's JSON takes these for the same, and the library does not open them
        (b"[2]", b"2.0"),
        (b'{"sent::w"', b' "sent::w"'),
        (b"}}  ", b"}} }"),
    ],
)
def test_a_header_that_disagrees_with_the_index_is_unsound(
    tmp_path: Path, entry: Entry, old: bytes, new: bytes
) -> None:
    """Though the digests of all messages are right."""
    check_round(tmp_path, entry)
    path = tmp_path / entry["file"]
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new, 1))
    with pytest.raises(FixRecording, match=r"round-000003\.safetensors: its header"):
        check_round(tmp_path, entry)
    entry["size"] += path.write_bytes(raw[:8] + b" " + raw[8:]) - len(raw)
    with pytest.raises(
        FixRecording, match=r"the line of round 3 is not valid: 4 messages with 4 digests"
    ):
        check_round(tmp_path, entry)


def test_one_message_is_checked_without_the_others(tmp_path: Path, entry: Entry) -> None:
    """A flipped byte is noticed by whoever reads its message, and by nobody else."""
    path = tmp_path / entry["file"]
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1  # of the last client's
    path.write_bytes(raw)
    for way, who in (("sent", ""), ("returned", "a"), ("returned", "b")):
        read(tmp_path, entry, way, who)
    with pytest.raises(FixRecording, match="do not match the index"):
        read(tmp_path, entry, "returned", "c")
    with pytest.raises(FixRecording, match="do not match the index"):
        check_round(tmp_path, entry)


def test_a_message_that_is_not_there_is_named(tmp_path: Path, entry: Entry) -> None:
    for way, who in (("returned", "d"), ("sent", "a")):
        with pytest.raises(FixRecording, match=f"round 3 has no message {way} {who}"):
            read(tmp_path, entry, way, who)


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
        {"w": np.zeros((2, 3)), "b": np.zeros(1)},  # one more
        {},  # none
    ],
)
def test_all_messages_of_a_round_have_one_layout(tmp_path: Path, other: dict[str, Any]) -> None:
    blocks = {("sent", ""): {"w": np.zeros((2, 3))}, ("returned", "a"): other}
    with pytest.raises(FixData, match="round 3: the message returned a has arrays"):
        write_round(tmp_path, 3, blocks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "a:b", "a/b", "../a", "<b>", " a", "a ", "x" * 101, "a\n", "a\u200bb", 5]
)
def test_client_names_that_could_be_mistaken_are_refused(name: Any) -> None:
    with pytest.raises(FixConfig, match="is not allowed; use at most"):
        check_client(name)
    assert check_client("Charité 北京 (St. Mary's)") == "Charité 北京 (St. Mary's)"


def setting(**values: Any) -> Callable[[Entry], None]:
    return lambda entry: entry.update(values)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.pop("weights"),
        setting(size=10**30),
        setting(layout=[["w", "F32", [50, 4]], ["b", "F64", [2]]]),
        setting(layout=[["w", "F128", [50, 3]], ["b", "F64", [2]]]),
        setting(messages=[["sent", ""]] * 2),
        setting(messages=[["returned", ""]]),
        setting(messages=[["sent"]]),
        setting(digests=["0" * 64]),
        setting(digests=["0" * 63 + "g"] * 4),
        lambda entry: entry.pop("layout"),
        lambda entry: entry.pop("messages"),
        lambda entry: [entry.pop("layout"), entry.pop("messages")],
    ],
)
def test_a_strangers_index_line_is_checked(
    tmp_path: Path, entry: Entry, change: Callable[[Entry], None]
) -> None:
    """Beside what ``attempts/`` try."""
    parse_round(tmp_path, entry)
    change(entry)
    with pytest.raises(FixRecording, match=r"index\.jsonl: the line of round .* is not valid"):
        parse_round(tmp_path, entry)


def test_a_header_that_names_every_client_is_read_once(tmp_path: Path, entry: Entry) -> None:
    """Of an opened recording: a client's message is checked against its digest all the same."""
    found, checked = parse_round(tmp_path, entry), set[str]()
    keys = [("returned", who) for who in "ab"]
    before = list(read_messages(tmp_path, found, keys, checked))
    path = tmp_path / entry["file"]
    path.write_bytes(bytes(len(found.head)) + path.read_bytes()[len(found.head) :])
    again = list(read_messages(tmp_path, found, keys, checked))
    assert all((a["w"] == b["w"]).all() for a, b in zip(before, again, strict=True))
    with pytest.raises(FixRecording, match="header"):
        list(read_messages(tmp_path, found, keys, set()))
