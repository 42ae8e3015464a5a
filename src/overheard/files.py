"""Files that are there whole or not at all, and folders with one writer at a time.

Both survive ``kill -9``: what a killed process leaves behind is a file ``NAME.part`` or a lock that
nobody holds, and the next writer takes either over. What a living process holds is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from overheard.errors import ChooseAnotherOutput

LOCK = ".lock"
OPEN, PRIVATE = 0o666, 0o600  # files for everybody whom the umask admits, and for their owner only
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems that cannot


def write_durably(path: Path, pieces: Iterable[bytes | memoryview], mode: int = OPEN) -> None:
    """Write a new file so that it exists whole or not at all.

    ``mode``: who may read it, as the umask allows.

    An existing ``path`` is kept and refused, also one that appears meanwhile. A failure (a full
    disk, an interrupt) removes the temporary file ``NAME.part``; only a killed process leaves one
    behind, which the next writer of the same name removes.
    """
    refuse_existing(path)
    with _part(path, pieces, mode) as temporary:
        try:
            os.link(temporary, path)
        except OSError:  # the name is taken, or the file system has no links
            refuse_existing(path)
            temporary.rename(path)
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def replace_durably(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of a file, if there is one: a reader sees the old or the new."""
    with _part(path, [content], OPEN) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def _part(path: Path, pieces: Iterable[bytes | memoryview], mode: int) -> Iterator[Path]:
    """The pieces on the disk under a temporary name, which a failure removes."""
    temporary = path.with_name(path.name + ".part")
    busy = f"{temporary}: another process is writing this file; wait for it or choose another path"
    with suppress(FileNotFoundError), _held(temporary, os.O_RDONLY | os.O_NONBLOCK, busy):
        temporary.unlink()  # of a killed process
    with _held(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, busy, mode) as handle:
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
            yield temporary
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)
            raise


def sync_folder(folder: Path) -> None:
    """Make a new or renamed name in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def new_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder that must not exist, and those above it, so that it survives a power cut.

    ``mode`` is the folder's own; those above it are as the umask says.
    """
    above = next(parent for parent in folder.absolute().parents if parent.is_dir())
    try:
        folder.mkdir(mode, parents=True)
    except FileExistsError as error:
        refuse_existing(folder)
        raise ChooseAnotherOutput(
            f"{error.filename}: is in the way and no folder; choose another path"
        ) from error
    for parent in folder.absolute().parents:
        sync_folder(parent)
        if parent == above:
            break


@contextmanager
def sole_writer(folder: Path, doing: str) -> Iterator[None]:
    """This process as the only writer of a folder that is there; another one is refused.

    ``doing`` says what writes there ("another sweep"). The lock ends with the process that holds
    it, however that ends.
    """
    busy = f"{folder}: {doing} is writing there; wait for it or choose another folder"
    if not folder.is_dir():  # the other one finished, and took it away
        raise ChooseAnotherOutput(busy)
    with _held(folder / LOCK, os.O_RDWR | os.O_CREAT, busy):
        yield


def refuse_existing(path: str | Path) -> None:
    """Nothing is ever overwritten."""
    if os.path.lexists(path):
        raise ChooseAnotherOutput(f"{path} exists already; choose another path or remove it")


@contextmanager
def _held(path: Path, flags: int, busy: str, mode: int = OPEN) -> Iterator[int]:
    """An open file that no other process holds; else ``busy`` says so."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW, mode)
    except FileExistsError as error:  # another one made it just now
        raise ChooseAnotherOutput(busy) from error
    try:
        if not _locked(handle, path):
            raise ChooseAnotherOutput(busy)
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int, path: Path) -> bool:
    """Whether this process holds the open file now, and it is still the one of that name."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    with suppress(FileNotFoundError):  # another process took it away
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False
