"""One member out of a stranger's archive: bounded, and nothing is ever written under its name.

Only the member that is asked for is unpacked. Links are not followed, since only a plain file of
exactly this name is the member. What lies before it in a tar archive has to be unpacked to be
skipped, hence the bounds. Heads of tar entries are read here because the standard library takes the
length of a "long name" on trust, and reads it into memory.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import mmap
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from overheard.errors import FixData
from overheard.foreign.files import opened
from overheard.foreign.limits import beyond, check, limit

CHUNK = 1 << 20
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    RuntimeError,
    OSError,
    ValueError,
    OverflowError,
)
_CENTRAL = b"PK\x01\x02"
_BLOCK = 512


class Readable(Protocol):
    """What can be read from, a piece at a time."""

    def read(self, size: int = -1, /) -> bytes: ...


@contextmanager
def member_of(archive: Path, name: str, kind: str = "") -> Iterator[Readable]:
    """A member of an archive, for reading; KeyError if there is none.

    ``kind``: of a package from a registry (a wheel, an npm tarball, the data of a Debian package);
    left out, by the file's name a zip archive or a tar archive, packed in any of the usual ways.
    """
    with opened(archive, True, FixData) as (_, size):
        check("archive_bytes", size, archive, FixData)
    if kind == "pypi" or (not kind and archive.suffix == ".zip"):
        if size:
            check("archive_entries", _count(archive, _CENTRAL), archive, FixData)
        with zipfile.ZipFile(archive) as content, content.open(name) as member:
            yield member
        return
    with archive.open("rb") as file:
        if kind == "debian":
            _seek_data(file, archive)
        with _unpacked(file) as stream:
            yield _Member(stream, _find(stream, name, archive))


def _count(archive: Path, word: bytes) -> int:
    """How often the word is there; beyond the limit it is enough to know that."""
    with archive.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as raw:
        most, found, at = limit("archive_entries"), 0, raw.find(word)
        while at >= 0 and found <= most:
            found, at = found + 1, raw.find(word, at + len(word))
    return found


class _Member:
    """The next bytes of a stream, so many of them."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        raw = self._stream.read(wanted)
        if wanted and not raw:
            raise EOFError("the archive ends within the member")
        self._left -= len(raw)
        return raw


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """The stream behind a gzip, bzip2 or xz head, or the file itself."""
    start = file.tell()
    head = file.read(6)
    file.seek(start)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    return file


def _find(stream: IO[bytes], name: str, archive: Path) -> int:
    """Stand at the member's first byte; its size."""
    most, entries, passed = limit("unpacked_bytes"), limit("archive_entries"), 0
    for _ in range(entries):
        head = _exactly(stream, _BLOCK)
        if not head.strip(b"\0"):
            raise KeyError(name)
        entry = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        if entry.size < 0:
            raise tarfile.ReadError("an entry of negative size")
        if entry.isreg() and entry.name == name:
            return entry.size
        # the head's size counts for every kind of entry that has content
        size = 0 if entry.type in (b"1", b"2", b"3", b"4", b"5", b"6") else entry.size
        passed += _BLOCK + size
        if passed > most:
            raise beyond("unpacked_bytes", archive, FixData, passed)
        _skip(stream, -(-size // _BLOCK) * _BLOCK)
    raise beyond("archive_entries", archive, FixData)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    raw = b""
    while len(raw) < size:
        piece = stream.read(size - len(raw))
        if not piece:
            raise EOFError("the archive ends too early")
        raw += piece
    return raw


def _skip(stream: IO[bytes], size: int) -> None:
    while size:
        piece = stream.read(min(size, CHUNK))
        if not piece:
            raise EOFError("the archive ends too early")
        size -= len(piece)


def _seek_data(file: IO[bytes], archive: Path) -> None:
    """Stand at the start of a Debian package's data, the ar member ``data.tar.*``."""
    if file.read(8) != b"!<arch>\n":
        raise tarfile.ReadError(f"{archive.name} is not a Debian package")
    while len(head := file.read(60)) == 60 and head.endswith(b"`\n"):
        if head.startswith(b"data.tar"):
            return
        size = head[48:58].strip()
        if not size.isdigit():
            break
        file.seek(int(size) + int(size) % 2, os.SEEK_CUR)
    raise tarfile.ReadError(f"{archive.name} has no data")
