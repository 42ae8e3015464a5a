"""Opening a file by a name that may be a trap: a device, a pipe, a link, a hole of a petabyte."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from overheard.errors import FixRecording, OverheardError
from overheard.foreign.limits import beyond, check

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@contextmanager
def opened(
    path: Path, follow: bool = False, error: type[OverheardError] = FixRecording
) -> Iterator[tuple[FileIO, int]]:
    """A plain file, unbuffered, and its size; anything else is refused and never waited for.

    ``follow``: a symbolic link is taken for what it leads to, as for a path that the user named.
    """
    try:
        handle = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({_why(path, problem)})") from problem
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise error(f"{path}: is not a plain file; only plain files are read")
        with FileIO(handle, closefd=False) as file:
            yield file, state.st_size
    finally:
        os.close(handle)


def read_bounded(
    path: Path,
    bound: str,
    follow: bool = False,
    error: type[OverheardError] = FixRecording,
) -> bytes:
    """The bytes of a plain file no larger than the limit of this name."""
    with opened(path, follow, error) as (file, size):
        check(bound, size, path, error)
        pieces = []
        left = size
        try:
            while left and (piece := file.read(min(left, 1 << 24))):
                pieces.append(piece)
                left -= len(piece)
            if not left and file.read(1):
                raise beyond(bound, path, error)  # it grows while it is read
        except OSError as problem:
            raise error(f"{path}: cannot be read ({problem.strerror})") from problem
    return b"".join(pieces)


def inside(root: Path, path: Path) -> bool:
    """Whether a path, every link resolved, is the folder or lies in it."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links; a NUL in the name
        return False


def _why(path: Path, problem: Exception) -> str:
    if isinstance(problem, OSError) and path.is_symlink():
        return "it is a symbolic link, and these are not followed here"
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
