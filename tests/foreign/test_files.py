"""Only plain files are opened, nothing is waited for, and no more is read than allowed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from overheard.errors import FixRecording
from overheard.foreign.files import inside, opened, read_bounded


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
