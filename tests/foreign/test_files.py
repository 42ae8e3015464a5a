"""Only plain files are opened, nothing is waited for, no more is read than allowed; what JSON and
TOML may say, and how long it may take to find out."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.errors import FixConfig, FixRecording
from overheard.foreign.files import inside, opened, parse_json, read_bounded, read_toml


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 10)
    assert read_bounded(tmp_path / "file", "toml_bytes") == b"abc" * 10
    with opened(tmp_path / "file") as (file, size):
        assert (file.read(3), size) == (b"abc", 30)


def test_traps(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("link", "loop", "pipe", "socket", ".", "missing"):
            with pytest.raises(FixRecording, match=r"cannot be read|not a plain file"):
                read_bounded(tmp_path / name, "toml_bytes")
    with pytest.raises(FixRecording, match="not a plain file"):
        read_bounded(Path("/dev/zero"), "toml_bytes", follow=True)
    with pytest.raises(FixRecording, match="cannot be read"):
        read_bounded(Path("a\0b"), "toml_bytes")
    assert read_bounded(tmp_path / "link", "toml_bytes", follow=True) == b"abc"


def test_what_is_inside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    assert inside(tmp_path / "in", tmp_path / "in" / "a" / ".." / "b")
    assert not inside(tmp_path / "in", tmp_path / "in" / ".." / "b")
    assert not inside(tmp_path / "in", tmp_path / "in" / "out" / "b")
    assert not inside(tmp_path / "in", Path("/etc/passwd"))
    assert not inside(tmp_path / "in", Path("a\0b"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(VALUES)
def test_json_is_read_as_the_standard_library_does(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text, "x") == parse_json(text.encode(), "x") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "1e400", "9" * 4301, "[1", "", "\xff", '"\\ud800"', '{"\\uDFFF": 1}'],
)
def test_what_json_cannot_say(text: str) -> None:
    with pytest.raises(FixRecording, match="x: is not JSON"):
        parse_json(text.encode("latin-1"), "x")


def test_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERHEARD_MAX_DEPTH", "5")
    parse_json("[[[[[0]]]]]", "x")
    with pytest.raises(FixRecording, match="6 levels, and the limit is 5"):
        parse_json("[[[[[[0]]]]]]", "x")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a." * 300_000 + "a = 1",
        "[" + "a." * 300_000 + "a]",
        '"a".' * 100_000 + "a = 1",
        "'a' . " * 100_000 + "a = 1",
        "x = { " + "a." * 100_000 + "a = 1 }",
        'x = "' + '\\"' * 400_000,
        "x = " + "[" * 100_000,
        "x = " + "{a=" * 100_000,
        "[[a]]\n" * 100_000,
        "".join(f"[a{i}]\n" for i in range(80_000)),
        "a = [" + "0.5, " * 150_000 + "]",
        'a = """' + "x\\\n" * 200_000 + '"""',
    ],
    ids=range(12),
)
def test_a_megabyte_of_toml_takes_seconds(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    begin, words = time.process_time(), ""
    try:
        read_toml(tmp_path / "a.toml")
    except FixConfig as error:
        words = str(error)
    assert len(words) < 1000
    assert time.process_time() - begin < 10


def test_numbers_with_dots_are_no_long_keys(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'a = [0.5, 0.25, 1.0]\nb = "1.2.3.4.5.6.7.8.9.10.11.12"\n[c.d."e.f".g]\n'
    )
    read = read_toml(tmp_path / "a.toml")
    assert read["a"] == [0.5, 0.25, 1.0]
    assert read["c"]["d"]["e.f"]["g"] == {}
