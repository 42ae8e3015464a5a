"""Whole or not at all, and one writer at a time, whatever became of the writer before."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overheard import files
from overheard.errors import ChooseAnotherOutput
from overheard.files import new_folder, replace_durably, sole_writer, write_durably


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, [b"mine"])
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        write_durably(path, [b"yours"])
    assert path.read_bytes() == b"mine"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        write_durably(tmp_path / "link", [b"yours"])


def test_what_a_killed_writer_left_is_no_way_into_another_file(tmp_path: Path) -> None:
    """A name ``*.part`` that is a second name of somebody's file is removed, never written to."""
    (tmp_path / "precious").write_bytes(b"mine")
    os.link(tmp_path / "precious", tmp_path / "file.part")
    write_durably(tmp_path / "file", [b"whole"])
    assert (tmp_path / "precious").read_bytes() == b"mine"
    (tmp_path / "other.part").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"):
        write_durably(tmp_path / "other", [b"whole"])
    assert (tmp_path / "precious").read_bytes() == b"mine"


@pytest.mark.parametrize("write", [lambda p: write_durably(p, [b"x"]),
                                   lambda p: replace_durably(p, b"x")])  # fmt: skip
def test_what_a_writer_left_is_taken_over_once_it_is_dead(tmp_path: Path, write: Any) -> None:
    with (tmp_path / "file.part").open("wb") as held:
        held.write(b"half, and longer than the whole")
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ChooseAnotherOutput, match=r"file\.part: another process is writing"):
            write(tmp_path / "file")
        assert (tmp_path / "file.part").exists()
    write(tmp_path / "file")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"x"}


@pytest.mark.parametrize("cannot_link", [True, False])
def test_a_file_system_without_links_or_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cannot_link: bool
) -> None:
    def cannot(*args: Any) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    def pieces() -> Iterator[bytes]:
        yield b"another"
        (tmp_path / "file").write_bytes(b"theirs")

    monkeypatch.setattr(fcntl, "flock", cannot)
    if cannot_link:
        monkeypatch.setattr("os.link", cannot)
    write_durably(tmp_path / "file", [b"whole"])
    assert (tmp_path / "file").read_bytes() == b"whole"
    (tmp_path / "file").unlink()
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        write_durably(tmp_path / "file", pieces())
    assert (tmp_path / "file").read_bytes() == b"theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_killed_between_two_steps_a_writer_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its temporary name, of which who comes next rids itself without a look into it."""
    monkeypatch.setattr(Path, "unlink", lambda *args, **how: os._exit(9))
    if not (child := os.fork()):
        write_durably(tmp_path / "file", [b"whole"])
    os.waitpid(child, 0)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        "file": b"whole",
        "file.part": b"whole",
    }
    replace_durably(tmp_path / "file", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_every_new_folder_is_made_durable_in_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    new_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        new_folder(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        new_folder(tmp_path / "file" / "a" / "b")


def test_one_writer_of_a_folder(tmp_path: Path) -> None:
    with (
        sole_writer(tmp_path, "another audit"),
        pytest.raises(ChooseAnotherOutput, match="another audit is writing there; wait"),
        sole_writer(tmp_path, "another audit"),
    ):
        raise AssertionError("two writers")
    with sole_writer(tmp_path, "another audit"):
        pass


def test_who_waited_at_a_folder_that_was_taken_away_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first writer ends, and removes the folder, between our opening the lock and taking it."""
    real = fcntl.flock

    def late(handle: int, how: int) -> None:
        (tmp_path / files.LOCK).unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    for folder in (tmp_path, tmp_path / "gone"):
        with (
            pytest.raises(ChooseAnotherOutput, match="is writing there"),
            sole_writer(folder, "another audit"),
        ):
            raise AssertionError("a lock on a file, or in a folder, that is gone")
