"""What is known and what is secret: ``side/`` and ``truth/``, beside the messages or elsewhere.

A recording that describes itself has them beside ``wire/``. For one that does not, they are made
elsewhere: their header says by the digest of which messages they are about, and what the clients
are called. No message is copied, and nothing is written where the messages lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.foreign.files import parse_json
from overheard.foreign.limits import check
from overheard.foreign.tables import pack_columns, unpack_columns
from overheard.programs.records import Records, as_column
from overheard.transcript.ledger import (
    INDEX,
    Entry,
    LedgerWriter,
    as_json,
    read_checked,
    read_ledger,
)
from overheard.transcript.messages import check_client

SEED = "Seed"
MEMBER_COLUMN = "__member__"  # in truth/ only
POSITIVE_COLUMN = "__positive__"  # in truth/ only


@dataclass(frozen=True)
class SideHeader:
    """What side knowledge that was made elsewhere is about.

    ``wire``: the digest of the last line of the messages' index. ``names``: a client's name in the
    messages to its name here, where they differ. ``about``: in place of the messages' own.
    """

    wire: str
    names: Mapping[str, str]
    about: Mapping[str, Any]

    def entry(self) -> Entry:
        """The first line of the index of ``side/``."""
        return {"kind": "header", "wire": self.wire, "names": self.names, "about": self.about}


class SideWriter:
    """Writes ``side/`` and ``truth/`` into a folder; leaving it as a context closes them."""

    def __init__(self, root: Path, header: SideHeader | None = None) -> None:
        self._root = root
        self._side: LedgerWriter | None = None
        self._truth: LedgerWriter | None = None
        self._released = False
        if header is not None:
            self._side = LedgerWriter(root / "side")
            self._side.append(header.entry())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and not self._released:
            self.close()
        else:
            self.release()

    def side(self, holds_kind: str, content: Any, target: str = "") -> None:
        """Add side knowledge: a description (JSON) or a table per client."""
        if self._side is None:
            self._side = LedgerWriter(self._root / "side")
        _add(self._side, holds_kind, content, target)

    def truth(self, content: Any, holds_kind: str = "Records", target: str = "") -> None:
        """Add secrets, for evaluation only: by default every client's whole records."""
        if self._truth is None:
            self._truth = LedgerWriter(self._root / "truth")
        _add(self._truth, holds_kind, content, target)

    def seed(self, seed: int) -> None:
        """Note the seed of every random choice of the federation. It is a secret: whoever has it
        draws the noise of a defence again, and takes it off the updates."""
        self.truth({"seed": str(int(seed))}, SEED)  # as text: JSON's numbers end at 2^63

    def close(self) -> None:
        """Mark the folders as finished."""
        for ledger in self._ledgers():
            ledger.close()

    def release(self) -> None:
        """Leave the folders unfinished, as a writer does that is stopped."""
        self._released = True
        for ledger in self._ledgers():
            ledger.release()

    def _ledgers(self) -> list[LedgerWriter]:
        return [ledger for ledger in (self._side, self._truth) if ledger is not None]


def _add(ledger: LedgerWriter, kind: str, content: Any, target: str) -> None:
    number = sum(1 for _ in ledger.folder.iterdir())
    tables = (
        isinstance(content, Mapping)
        and bool(content)
        and all(isinstance(v, Records) for v in content.values())
    )
    raw = write_tables(content) if tables else as_json(content).encode()
    name = f"{number:04d}-{kind.lower()}.{'safetensors' if tables else 'json'}"
    ledger.file(name, [raw], kind="side", holds=kind, target=target)


@dataclass(frozen=True)
class Shelf:
    """``side/`` or ``truth/``, opened for reading; each file is checked when it is read, once.

    A folder that is not there holds nothing.
    """

    folder: Path
    entries: tuple[Entry, ...]
    header: SideHeader | None = None
    _read: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def open(folder: Path) -> Shelf:
        """What a folder holds, by its index."""
        listed = read_ledger(folder).entries if folder.is_dir() else ()
        entries = tuple(e for e in listed if e["kind"] == "side")
        for entry in entries:
            if not all(isinstance(entry.get(key), str) for key in ("file", "holds", "target")):
                raise FixRecording(
                    f"{folder / INDEX}: a line lacks its file, what it holds or its target"
                )
        first = listed[0] if listed and listed[0]["kind"] == "header" else None
        return Shelf(folder, entries, None if first is None else _header(folder / INDEX, first))

    def find(self, holds_kind: str, *targets: str) -> Entry | None:
        """The first file of a kind for any of these targets, if there is one."""
        mine = (e for e in self.entries if e["holds"] == holds_kind and e["target"] in targets)
        return next(mine, None)

    def content(self, entry: Entry) -> Any:
        """What a file holds: tables by client, or what its JSON says."""
        name = str(entry["file"])
        if name not in self._read:  # a table holds all clients, and each asks for it
            file = self.folder / name
            self._read[name] = (
                read_tables(read_checked(self.folder, entry), file)
                if file.suffix == ".safetensors"
                else parse_json(read_checked(self.folder, entry, "json_bytes"), file)
            )
        return self._read[name]


def _header(index: Path, entry: Entry) -> SideHeader:
    wire, names, about = (entry.get(key) for key in ("wire", "names", "about"))
    if not isinstance(wire, str) or not isinstance(names, dict) or not isinstance(about, dict):
        raise FixRecording(
            f"{index}: its header needs the digest of the messages (wire), names and an about"
        )
    check("clients", len(names), index)
    known = {check_client(old, index): check_client(new, index) for old, new in names.items()}
    return SideHeader(wire, known, about)


_CLIENT_COLUMN = "__client__"


def write_tables(tables: Mapping[str, Records]) -> bytes:
    """One table for all clients, one after the other."""
    first: list[str] | None = None
    for client, records in tables.items():
        kinds = [f"{name} ({_kind(values)})" for name, values in records.columns.items()]
        first = kinds if first is None else first
        if kinds != first:
            raise FixData(
                f"client {client!r} has columns {', '.join(kinds)} where the first client has "
                f"{', '.join(first)}; give all clients the same columns"
            )
    sizes = [len(records) for records in tables.values()]
    names = np.repeat(np.array([check_client(client) for client in tables], dtype=str), sizes)
    columns = {_CLIENT_COLUMN: names}
    for name in next(iter(tables.values())).columns if len(names) else ():
        columns[name] = np.concatenate([_plain(records[name]) for records in tables.values()])
    return pack_columns(columns)


def _plain(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    return array if array.ndim > 1 else as_column(array)


def _kind(values: Any) -> str:
    plain = _plain(values)
    size = f" x {plain.shape[1]}" if plain.ndim > 1 else ""
    return "text" if plain.dtype.kind == "U" else f"{plain.dtype}{size}"


def read_tables(raw: bytes, where: object = "table") -> dict[str, Records]:
    """The inverse of `write_tables`; ``where`` names the table in errors."""
    found = unpack_columns(raw, where)
    names = found.pop(_CLIENT_COLUMN, None)
    if names is None or names.dtype.kind != "U":
        raise FixRecording(
            f"{where}: cannot be read as a table of clients: it has no text column "
            f"{_CLIENT_COLUMN!r}"
        )
    columns = {
        name: values if values.ndim > 1 else as_column(values) for name, values in found.items()
    }
    clients, first, which = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.bincount(which, minlength=len(clients)).cumsum())[:-1]
    for client in clients.tolist():
        check_client(client, where)
    rows = dict(zip(clients.tolist(), parts, strict=True))
    whole = Records(columns)
    # copies, not slices: nobody who holds one client's rows can reach the others' through them
    return {client: whole.take(rows[client]) for client in clients[np.argsort(first)].tolist()}
