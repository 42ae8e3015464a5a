"""An append-only list of what a folder holds, in which every byte is accounted for.

Each line is ``<sha256> <json>``; the digest covers the previous line's digest and this line's
JSON, so that a changed, removed or reordered line is noticed. A writer that is killed leaves at
most one line without a final newline; readers drop it. See FORMAT.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from overheard.errors import FixData, FixRecording
from overheard.files import OPEN, PRIVATE, new_folder, sync_folder, write_durably
from overheard.foreign.files import opened, parse_json, read_bounded
from overheard.foreign.limits import check
from overheard.foreign.shown import short

INDEX = "index.jsonl"
FOLDERS = ("messages", "side", "truth")
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
Entry = dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """The whole lines of an index, and the torn one that followed them: ``rest``."""

    entries: tuple[Entry, ...]
    last_digest: str
    rest: bytes

    @property
    def closed(self) -> bool:
        return bool(self.entries) and self.entries[-1]["kind"] == "end"


def digest_line(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}{text}".encode()).hexdigest()


def read_ledger(folder: Path) -> Ledger:
    """Read and check an index; raises `FixRecording` naming the first line that is wrong.

    A folder that is still empty is what a writer leaves that is killed before its first line.
    """
    path = folder / INDEX
    try:
        if not any(folder.iterdir()):
            return Ledger((), "", b"")
        path.lstat()
    except OSError as error:
        raise FixRecording(
            f"{path}: cannot be read ({error.strerror}); is this a recording?"
        ) from error
    if folder.is_symlink():
        raise FixRecording(f"{folder}: is a symbolic link, and these are not followed")
    raw = read_bounded(path, "index_bytes")
    values = sum(raw.count(mark) for mark in (b"[", b"{", b","))
    check("json_values", values, path)
    check("rounds", raw.count(b"\n"), path)
    *whole, rest = raw.split(b"\n")
    previous = ""
    entries: list[Entry] = []
    for number, line in enumerate(whole, 1):
        digest, _, text = line.decode("utf-8", "replace").partition(" ")
        if digest != digest_line(previous, text):
            raise FixRecording(f"{path}: line {number} is damaged; restore the file from a copy")
        entry = parse_json(text, f"{path}: line {number}")
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise FixRecording(f"{path}: line {number} has no kind")
        if entries and entries[-1]["kind"] == "end":
            raise FixRecording(f"{path}: line {number} follows the end; a closed index never grows")
        entries.append(entry)
        previous = digest
    return Ledger(tuple(entries), previous, rest)


class LedgerWriter:
    """Appends to the index of a new folder.

    ``messages/`` is as open as the umask says. Other folders hold what somebody knows, or may not
    know, about the clients: they are made for their owner only (0700), and so are the files (0600).
    """

    def __init__(self, folder: Path) -> None:
        self._mode = OPEN if folder.name == "messages" else PRIVATE
        new_folder(folder, 0o777 if self._mode == OPEN else 0o700)
        self.folder = folder
        self._previous, self._size = "", 0
        self._file = FileIO(folder / INDEX, "ab", opener=self._exclusively)
        sync_folder(folder)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns. One that fails is taken back whole."""
        text = as_json(entry)
        digest = digest_line(self._previous, text)
        line = f"{digest} {text}\n".encode()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            with suppress(OSError):
                self._file.truncate(self._size)
            if not self._size:  # without a header there is no writer to let go of it
                self.release()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(self.folder / INDEX)
            raise
        self._previous, self._size = digest, self._size + len(line)

    def file(self, name: str, content: bytes, **about: Any) -> None:
        """Write a file under a temporary name, make it durable, rename it, then list it."""
        write_durably(self.folder / name, [content], self._mode)
        digest = hashlib.sha256(content).hexdigest()
        self.append({"file": name, "size": len(content), "sha256": digest, **about})

    def close(self) -> None:
        """Write the last line."""
        self.append({"kind": "end"})
        self.release()

    def release(self) -> None:
        """Let go of the file and leave the index open-ended, as a killed writer would."""
        self._file.close()

    def _exclusively(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_EXCL, self._mode)


def as_json(content: Any) -> str:
    """Compact JSON with sorted keys; what JSON cannot hold is refused."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        if "\\ud" in text:  # half a pair of surrogates is no text, and no reader takes it
            json.dumps(content, ensure_ascii=False).encode()
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise FixData(f"not JSON: {error}; use text, finite numbers, lists and mappings") from error


@contextmanager
def listed_file(folder: Path, entry: Entry) -> Iterator[tuple[BufferedReader, Path]]:
    """A listed file of the size listed, and its path; refuses names that lead anywhere else."""
    name = entry.get("file")
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name) or name.endswith(".part"):
        raise FixRecording(f"{folder / INDEX}: {short(name)} is not an allowed file name")
    path = folder / name
    with opened(path) as (file, size):
        if size != entry.get("size"):
            raise FixRecording(
                f"{path}: has {size} bytes where the index says {short(entry.get('size'))}; it is "
                "truncated or was changed; restore it from a copy"
            )
        check("file_bytes", size, path)
        yield BufferedReader(file, 1), path  # whole pieces are read, past no buffer


def damaged(path: Path) -> FixRecording:
    """What is raised of a file that is not what its index says."""
    return FixRecording(f"{path}: its bytes do not match the index; restore it from a copy")


def read_checked(folder: Path, entry: Entry, bound: str = "table_bytes") -> bytes:
    """The bytes of a listed file within a limit, checked against its digest."""
    with listed_file(folder, entry) as (file, path):
        check(bound, entry["size"], path)
        raw = file.read(entry["size"])
    if hashlib.sha256(raw).hexdigest() != entry.get("sha256"):
        raise damaged(path)
    return raw
