"""Files that are there whole or not at all, and folders with one writer at a time.

Both survive ``kill -9``: what a killed process leaves behind is a file ``NAME.part`` or a lock that
nobody holds, and the next writer takes either over. What a living process holds is refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from overheard.errors import ChooseAnotherOutput

LOCK = ".lock"
OPEN, PRIVATE = 0o666, 0o600  # files for everybody whom the umask admits, and for their owner only
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems that cannot
_CANNOT = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def write_durably(
    path: Path, pieces: Iterable[bytes | memoryview], mode: int = OPEN
) -> tuple[str, int]:
    """Write a new file so that it exists whole or not at all; returns its sha256 and size.

    ``mode``: who may read it, as the umask allows.

    An existing ``path`` is kept and refused, also one that appears meanwhile. A failure (a full
    disk, an interrupt) removes the temporary file ``NAME.part``; only a killed process leaves one
    behind, which the next writer of the same name removes.
    """
    refuse_existing(path)
    temporary = path.with_name(path.name + ".part")
    digest, size = hashlib.sha256(), 0

    def noted() -> Iterator[bytes | memoryview]:
        nonlocal size
        for piece in pieces:
            yield piece
            digest.update(piece)
            size += len(piece)

    with _part(temporary, path, noted(), mode):
        _publish(temporary, path)
    sync_folder(path.parent)
    return digest.hexdigest(), size


def replace_durably(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of a file, if there is one: a reader sees the old or the new."""
    temporary = path.with_name(path.name + ".part")
    with _part(temporary, path, [content]):
        temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def _part(
    temporary: Path, path: Path, pieces: Iterable[bytes | memoryview], mode: int = OPEN
) -> Iterator[None]:
    """The pieces on the disk under a temporary name, which a failure removes."""
    handle = _sole_part(temporary, mode)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
        yield
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        os.close(handle)


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
    path = folder / LOCK
    refused = ChooseAnotherOutput(
        f"{folder}: {doing} is writing there; wait for it or choose another folder"
    )
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except FileNotFoundError as error:  # the other one finished, and took the folder away
        raise refused from error
    try:
        if not _lock(handle) or not _is_still(handle, path):
            raise refused
        yield
    finally:
        os.close(handle)


def refuse_existing(path: str | Path) -> None:
    """Nothing is ever overwritten."""
    if os.path.lexists(path):
        raise ChooseAnotherOutput(f"{path} exists already; choose another path or remove it")


def _sole_part(temporary: Path, mode: int) -> int:
    """A new file under a temporary name, held by this process; one that nobody holds is removed."""
    busy = ChooseAnotherOutput(
        f"{temporary}: another process is writing this file; wait for it or choose another path"
    )
    for _ in range(100):
        try:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            _remove_left(temporary, busy)
            continue
        if not _lock(handle):
            os.close(handle)
            raise busy
        if _is_still(handle, temporary):
            return handle
        os.close(handle)
    raise busy


def _remove_left(temporary: Path, busy: ChooseAnotherOutput) -> None:
    try:
        handle = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        if not _lock(handle):
            raise busy
        if _is_still(handle, temporary):
            temporary.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_still(handle: int, path: Path) -> bool:
    """Whether the open file is the one of that name: another process may have taken it away."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name, in one step and only if that is free."""
    taken = ChooseAnotherOutput(f"{path} exists already; choose another path or remove it")
    try:
        _rename_new(temporary, path)
    except FileExistsError as error:
        raise taken from error
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        try:
            os.link(temporary, path)
        except FileExistsError as problem:
            raise taken from problem
        except OSError as problem:
            if problem.errno not in _CANNOT:
                raise
            temporary.rename(path)
        else:
            temporary.unlink()


def _rename_new(old: Path, new: Path) -> None:
    """Linux's ``renameat2`` with ``RENAME_NOREPLACE``; where there is none, ``ENOSYS``."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(new))
    at_here, no_replace = -100, 1
    if call(at_here, os.fsencode(old), at_here, os.fsencode(new), no_replace):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(new))
