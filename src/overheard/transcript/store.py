"""Recordings on disk: ``messages/`` (messages), ``side/`` (knowledge), ``truth/`` (secrets).

`Recorder` writes, `Recording` reads. A recording is never overwritten; a recorder that is
killed leaves one that opens, minus at most the unfinished round. FORMAT.md has the rules.

A recording that describes itself has ``side/`` and ``truth/`` beside ``messages/``. For one that
does not, they are made elsewhere: their header says by the digest of which messages they are
about, and what the clients are called. No message is copied, and nothing is written where the
messages lie.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, StrictStr, ValidationError

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.files import refuse_existing
from overheard.foreign.files import parse_json
from overheard.foreign.limits import check
from overheard.foreign.shown import first_error, short
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
from overheard.transcript.messages import (
    MAX_SIDE,
    PAYLOADS,
    TOTAL,
    Arrays,
    ClientName,
    Key,
    Round,
    check_client,
    parse_round,
    read_ahead,
    read_messages,
    releases_arrays,
    renamed,
    update_of,
    write_round,
)

SEED = "Seed"
MEMBER_COLUMN = "__member__"  # in truth/ only
POSITIVE_COLUMN = "__positive__"  # in truth/ only


class SideHeader(BaseModel):
    """What side knowledge that was made elsewhere is about.

    ``messages``: the digest of the last line of their index. ``names``: a client's name in the
    messages to its name here, where they differ. ``about``: in place of the messages' own.
    """

    messages: StrictStr
    names: dict[ClientName, ClientName] = {}
    about: dict[str, Any]


class SideWriter:
    """Writes ``side/`` and ``truth/`` into a folder; leaving it as a context closes them."""

    def __init__(self, root: Path, header: SideHeader | None = None) -> None:
        self._root = root
        self._ledgers: dict[str, LedgerWriter] = {}
        if header is not None:
            self._ledger("side").append({"kind": "header", **header.model_dump()})

    def _ledger(self, folder: str) -> LedgerWriter:
        """That of a folder, which is made when something is first written there."""
        if folder not in self._ledgers:
            self._ledgers[folder] = LedgerWriter(self._root / folder)
        return self._ledgers[folder]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.release()

    def side(self, holds_kind: str, content: Any, target: str = "") -> None:
        """Add side knowledge: a description (JSON) or a table per client."""
        _add(self._ledger("side"), holds_kind, content, target)

    def truth(self, content: Any, holds_kind: str = "Records", target: str = "") -> None:
        """Add secrets, for evaluation only: by default every client's whole records."""
        _add(self._ledger("truth"), holds_kind, content, target)

    def seed(self, seed: int) -> None:
        """Note the seed of every random choice of the federation. It is a secret: whoever has it
        draws the noise of a defence again, and takes it off the updates."""
        self.truth({"seed": str(int(seed))}, SEED)  # as text: JSON's numbers end at 2^63

    def close(self) -> None:
        """Mark the folders as finished, that of the messages last."""
        for folder in sorted(self._ledgers):
            self._ledgers[folder].close()

    def release(self) -> None:
        """Leave the folders unfinished, as a writer does that is stopped."""
        while self._ledgers:
            self._ledgers.popitem()[1].release()


def _add(ledger: LedgerWriter, kind: str, content: Any, target: str) -> None:
    number = sum(1 for _ in ledger.folder.iterdir())
    pieces = content.values() if isinstance(content, Mapping) else ()
    tables = any(isinstance(piece, Records) for piece in pieces)
    raw = write_tables(content) if tables else as_json(content).encode()
    name = f"{number:04d}-{kind.lower()}.{'safetensors' if tables else 'json'}"
    ledger.file(name, raw, kind="side", holds=kind, target=target)


@dataclass(frozen=True)
class SideFolder:
    """``side/`` or ``truth/``, opened for reading; each file is checked when it is read, once.

    A folder that is not there holds nothing.
    """

    folder: Path
    entries: tuple[Entry, ...]
    header: SideHeader | None = None
    _read: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def open(folder: Path) -> SideFolder:
        """What a folder holds, by its index."""
        listed = read_ledger(folder).entries if folder.is_dir() else ()
        entries = tuple(e for e in listed if e["kind"] == "side")
        for entry in entries:
            if not all(isinstance(entry.get(key), str) for key in ("file", "holds", "target")):
                raise FixRecording(
                    f"{folder / INDEX}: a line lacks its file, what it holds or its target"
                )
        if not listed or listed[0]["kind"] != "header":
            return SideFolder(folder, entries)
        try:
            header = SideHeader.model_validate(listed[0])
        except ValidationError as error:
            raise FixRecording(f"{folder / INDEX}: its header: {first_error(error)}") from error
        check("clients", len(header.names), folder / INDEX)
        return SideFolder(folder, entries, header)

    def find(self, holds_kind: str, *targets: str) -> Entry | None:
        """The first file of a kind for any of these targets, if there is one."""
        mine = (e for e in self.entries if e["holds"] == holds_kind and e["target"] in targets)
        return next(mine, None)

    def content(self, entry: Entry) -> Any:
        """What a file holds: tables by client, or what its JSON says."""
        name = str(entry["file"])
        if name not in self._read:  # a table holds all clients, and each asks for it
            file, table = self.folder / name, name.endswith(".safetensors")
            raw = read_checked(self.folder, entry, "table_bytes" if table else "json_bytes")
            self._read[name] = read_tables(raw, file) if table else parse_json(raw, file)
        return self._read[name]


_CLIENT_COLUMN = "__client__"


def write_tables(tables: Mapping[str, Records]) -> bytes:
    """One table for all clients, one after the other."""
    kinds = {c: {n: _kind(v) for n, v in table.columns.items()} for c, table in tables.items()}
    first = next(iter(kinds.values()))
    for client, other in kinds.items():
        if list(other.items()) != list(first.items()):
            raise FixData(
                f"client {client!r} has the columns {other} where the first client has {first}; "
                "give all clients the same columns"
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
    return "text" if plain.dtype.kind == "U" else f"{plain.dtype} {plain.shape[1:]}"


def read_tables(raw: bytes, where: object = "table") -> dict[str, Records]:
    """The inverse of `write_tables`; ``where`` names the table in errors."""
    found = unpack_columns(raw, where)
    names = found.pop(_CLIENT_COLUMN, None)
    if names is None or names.dtype.kind != "U":
        raise FixRecording(
            f"{where}: cannot be read as a table of clients: it has no text column "
            f"{_CLIENT_COLUMN!r}"
        )
    whole = Records({name: _plain(values) for name, values in found.items()})
    clients, first, which = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.bincount(which, minlength=len(clients)).cumsum())[:-1]
    named = zip(clients.tolist(), parts, strict=True)
    rows = {check_client(client, where): part for client, part in named}
    # copies, not slices: nobody who holds one client's rows can reach the others' through them
    return {client: whole.take(rows[client]) for client in clients[np.argsort(first)].tolist()}


FORMAT = "overheard 1"


class Recorder(SideWriter):
    """Writes a new recording. Use as a context manager: leaving it closes the recording."""

    def __init__(
        self, path: str | Path, payload: str = "model", about: Mapping[str, Any] | None = None
    ):
        root = Path(path)
        refuse_existing(root)
        if payload not in PAYLOADS:
            raise FixConfig(f"payload {payload!r} is not one of {', '.join(PAYLOADS)}")
        self._free = releases_arrays(payload)
        header: Entry = {"kind": "header", "format": FORMAT, "payload": payload}
        header["about"] = dict(about or {})
        as_json(header)  # refuse what cannot be written before anything is
        super().__init__(root)
        self._before: Round | None = None
        self._ledger("messages").append(header)

    def round(
        self,
        number: int,
        sent: Arrays | Mapping[str, Arrays],
        returned: Mapping[str, Arrays],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Record one round: the broadcast (or one model per client) and what came back."""
        messages: dict[Key, Arrays] = {}
        if sent and all(isinstance(v, Mapping) for v in sent.values()):
            messages |= {("sent", check_client(c)): a for c, a in sent.items()}  # type: ignore[misc]
        else:
            messages["sent", ""] = sent  # type: ignore[assignment]
        messages |= {("returned", check_client(c)): a for c, a in returned.items()}
        known = {check_client(c): float(w) for c, w in (weights or {}).items() if np.isfinite(w)}
        if wrong := [c for c, w in known.items() if not 0 <= w <= MAX_SIDE]:
            raise FixData(
                f"round {number}: client {wrong[0]!r} reports {known[wrong[0]]:g} records; a count "
                "is not negative"
            )
        self.messages(int(number), messages, {"weights": known})

    def aggregated(
        self, number: int, sent: Arrays, total: Arrays, participants: Iterable[str]
    ) -> None:
        """Record one round under secure aggregation: the broadcast, the sum over the participants
        of sent minus returned (or of their gradients), and who they were."""
        who = [check_client(client) for client in participants]
        if not who or len(set(who)) < len(who):
            raise FixData(
                f"round {number}: the participants {who} must be different clients, at least one"
            )
        wide = {name: np.asarray(array, np.float64) for name, array in total.items()}
        messages: dict[Key, Arrays] = {("sent", ""): sent, TOTAL: wide}
        self.messages(int(number), messages, {"weights": {}, "participants": who})

    def messages(self, number: int, messages: Mapping[Key, Arrays], about: Entry) -> None:
        """Record the messages of one round, as they are, and what the index says about it."""
        before, folder = self._before, self._root / "messages"
        last = before.number if before else -1
        if number <= last:
            raise FixData(f"round {number} comes after round {last}; rounds must increase")
        entry = {**write_round(folder, number, messages, before, self._free), **about}
        self._ledger("messages").append(entry)
        self._before = parse_round(folder, entry, before, self._free)


@dataclass(frozen=True)
class Recording:
    """A recording opened for reading. Its index is checked on opening, files when read.

    ``shared``: pieces that are the same for every client, so that they are read once.
    """

    path: Path
    header: Entry
    rounds: tuple[Round, ...]
    closed: bool
    digest: str
    beside: Path
    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def open(path: str | Path, beside: str | Path | None = None) -> Recording:
        """The recording in a folder; an error says what is missing or damaged.

        ``beside``: a folder with the ``side/`` and ``truth/`` to read in place of its own.
        """
        root = Path(path)
        if not root.is_dir():
            raise FixRecording(f"{root}: no such recording; `overheard simulate` makes one")
        ledger = read_ledger(root / "messages")
        if not ledger.entries or ledger.entries[0]["kind"] != "header":
            raise FixRecording(
                f"{root / 'messages' / INDEX}: has no header line; the recorder was stopped before "
                "it recorded anything: remove the folder and record again"
            )
        header = ledger.entries[0]
        if header.get("format") != FORMAT:
            raise FixRecording(
                f"{root}: is of format {short(header.get('format'))}, and this version reads "
                f"{FORMAT} only; record again, or use the version that recorded it"
            )
        if header.get("payload") not in PAYLOADS or not isinstance(header.get("about"), dict):
            raise FixRecording(
                f"{root / 'messages' / INDEX}: the header needs a payload ({' or '.join(PAYLOADS)})"
                " and an about"
            )
        free = releases_arrays(header["payload"])
        rounds: list[Round] = []
        for line in ledger.entries:
            if line["kind"] == "round":
                before = rounds[-1] if rounds else None
                rounds.append(parse_round(root / "messages", line, before, free))
        if len({entry.line["file"] for entry in rounds}) < len(rounds):
            raise FixRecording(f"{root / 'messages' / INDEX}: two rounds have one file")
        opened = Recording(root, header, tuple(rounds), ledger.closed, ledger.last_digest, root)
        check("participations", len(opened.clients) * len(rounds), root)
        return opened if beside is None else opened.described_in(Path(beside))

    def described_in(self, folder: Path) -> Recording:
        """The same messages with the side knowledge and the truth of another folder, and with the
        names that it has for the clients."""
        header = SideFolder.open(folder / "side").header
        if header is None or header.messages != self.digest:
            raise FixRecording(
                f"{folder / 'side' / INDEX}: is not about the messages in {self.path}, or these "
                "have grown since; describe them again"
            )
        names = {client: header.names.get(client, client) for client in self.clients}
        if len(set(names.values())) < len(names):
            raise FixRecording(f"{folder / 'side' / INDEX}: gives two clients one name")
        about = {**self.header, "about": dict(header.about)}
        rounds = tuple(renamed(self.rounds, names))
        return replace(self, header=about, rounds=rounds, beside=folder, shared={})

    @property
    def side_folder(self) -> Path:
        """Where the side knowledge lies."""
        return self.beside / "side"

    @property
    def payload(self) -> str:
        """What clients return: models, gradients or the releases of a program."""
        return str(self.header["payload"])

    @property
    def about(self) -> Mapping[str, Any]:
        """What the recorder noted: the data's name and origin, the clients."""
        return dict(self.header["about"])

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """Every client that returned something or is named in the side knowledge."""
        observed = {who: None for e in self.rounds for who in e.participants}
        listed = self.about.get("clients", [])
        index = self.path / "messages" / INDEX
        if not isinstance(listed, list):
            raise FixRecording(f"{index}: about.clients is {short(listed)}; it must be a list")
        check("clients", len(listed) + len(observed), index)
        described = dict.fromkeys(check_client(who, index) for who in listed)
        return tuple(described | observed)

    def releases(self, client: str) -> Iterator[tuple[Round, Arrays, Arrays]]:
        """Each round in which a client answered: what it was sent and returned, the arrays as they
        were, whatever their names and shapes."""
        key = ("returned", client)
        mine = [entry for entry in self.rounds if key in entry.spans]
        lengths = (entry.spans[key].end - entry.spans[key].begin for entry in mine)
        check("message_bytes", 2 * sum(lengths), self.path / "messages")
        for entry, later in zip_longest(mine, mine[1:]):
            if later is not None:
                read_ahead(self.path / "messages", later, [sent_to(client, later), key])
            sent, returned = self.messages(entry, [sent_to(client, entry), key])
            yield entry, sent, returned

    def aggregates(self) -> Iterator[tuple[Round, dict[str, NDArray[Any]], dict[str, Any]]]:
        """Each round's broadcast and the sum of its updates (see `Recorder.aggregated`), one round
        after the other. Where single returns were recorded they are summed here."""
        for entry in self.rounds:
            if ("sent", "") not in entry.spans:
                raise FixRecording(
                    f"{self.path / 'messages' / INDEX}: round {entry.number} has no broadcast: "
                    "every client was sent its own model, so the sum of their updates says nothing"
                )
            singles = [("returned", who) for who in entry.participants]
            observed = self.messages(
                entry, [("sent", ""), *([TOTAL] if entry.aggregated else singles)]
            )
            sent = next(observed)
            if entry.aggregated:
                yield entry, sent, next(observed)
                continue
            total = {name: np.zeros(array.shape) for name, array in sent.items()}
            for arrays in observed:
                for name, array in arrays.items():
                    total[name] += update_of(self.payload, sent[name], array)
            yield entry, sent, total

    def messages(self, entry: Round, wanted: Collection[Key]) -> Iterator[dict[str, NDArray[Any]]]:
        """The arrays of these messages of a round, one after the other, each checked when it is
        read."""
        checked = self.shared.setdefault("checked", set())
        return read_messages(self.path / "messages", entry, wanted, checked)

    @cached_property
    def _side(self) -> SideFolder:
        return SideFolder.open(self.side_folder)

    @property
    def _truth(self) -> SideFolder:
        return SideFolder.open(self.beside / "truth")

    def side(self, kind: str, target: str = "") -> Any | None:
        """Side knowledge of a kind for a target (or for every target); None if there is none."""
        entry = self._side.find(kind, target, "")
        return None if entry is None else self._side.content(entry)

    def described(self, target: str) -> Iterator[tuple[str, Any, str]]:
        """Every piece of side knowledge for a target or for all: kind, content, target."""
        for entry in self._side.entries:
            if entry["target"] in (target, ""):
                yield entry["holds"], self._side.content(entry), entry["target"]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets for which side knowledge was written out."""
        return tuple(dict.fromkeys(e["target"] for e in self._side.entries if e["target"]))

    @property
    def seed(self) -> int | None:
        """The federation's own seed, if ``truth/`` has it."""
        entry = self._truth.find(SEED, "")
        content = None if entry is None else self._truth.content(entry)
        found = str(content.get("seed")) if isinstance(content, dict) else ""
        return int(found) if re.fullmatch(r"-?[0-9]{1,1000}", found) else None

    def holds_truth(self, holds_kind: str, target: str = "") -> bool:
        """Whether `truth` has this secret."""
        return self._truth.find(holds_kind, target) is not None

    def truth(self, holds_kind: str = "Records", target: str = "") -> dict[str, Records]:
        """A secret per client, by default its whole records. No view holds this."""
        truth = self._truth
        entry = truth.find(holds_kind, target)
        if entry is None or str(entry["file"]).endswith(".json"):
            lacking = f"lists no {holds_kind.lower()}{f' for {target!r}' if target else ''}"
            why = lacking if truth.folder.is_dir() else "missing"
            raise FixRecording(
                f"{truth.folder}: {why}, so nothing can be scored; attacks can still run"
            )
        content: dict[str, Records] = truth.content(entry)
        return content


def sent_to(client: str, entry: Round) -> Key:
    """The message that a client was sent in a round: its own, or the broadcast."""
    own = ("sent", client)
    return own if own in entry.spans else ("sent", "")
