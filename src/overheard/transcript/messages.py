"""One round's messages in one safetensors file, readable client by client.

The container is the safetensors format (8 bytes of header length, a JSON header, raw
little-endian arrays). It is written here array by array so that the arrays of one message lie
side by side: reading one client's message is one seek and one read, checked by its own digest,
and touches nobody else's bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.files import write_durably
from overheard.foreign.files import opened
from overheard.foreign.limits import check
from overheard.foreign.shown import short
from overheard.transcript.ledger import INDEX, Entry, listed_file

Arrays = Mapping[str, NDArray[Any]]
Layout = list[list[Any]]  # [name, safetensors dtype, shape] of each array of a message
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
TOTAL = ("total", "")
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
MAX_ROUND = 10**15
MAX_NAME = 1000  # letters in an array's name
MAX_SIDES = 16  # of an array
MAX_SIDE = 1 << 53


@dataclass(frozen=True)
class Round:
    """A checked index line: which messages a round's file holds and where each lies.

    ``participants``: who took part; None where only a total was heard and nobody said of whom.
    ``own``: the layouts of messages that differ from the first, as releases of programs may.
    """

    number: int
    file: Entry
    head: int
    layout: Layout
    spans: Mapping[tuple[str, str], tuple[int, int, str]]
    weights: Mapping[str, float]
    participants: tuple[str, ...] | None = ()
    own: Mapping[tuple[str, str], Layout] = field(default_factory=dict)

    @property
    def aggregated(self) -> bool:
        """Whether it holds a total in place of what each client returned."""
        return TOTAL in self.spans

    def arrays(self, key: tuple[str, str], raw: bytes) -> dict[str, NDArray[Any]]:
        """The named arrays of one of its messages."""
        layout = self.own[key] if key in self.own else layout_for(self.layout, key[0])
        return dict(message_arrays(layout, raw))

    def renamed(self, names: Mapping[str, str]) -> Round:
        """The same round, its clients called otherwise; the messages lie where they lay."""
        who = self.participants
        return replace(
            self,
            spans={(way, names.get(c, c)): span for (way, c), span in self.spans.items()},
            own={(way, names.get(c, c)): layout for (way, c), layout in self.own.items()},
            weights={names.get(c, c): weight for c, weight in self.weights.items()},
            participants=None if who is None else tuple(names.get(c, c) for c in who),
        )


def check_client(client: str) -> str:
    """A client's name, if it is one that can stand in a recording."""
    if not _CLIENT.fullmatch(client):
        raise FixConfig(
            f"client name {client!r} is not allowed; use letters, digits, space, _ . + - (<= 100)"
        )
    return client


def known_client(client: object, where: object) -> str:
    """The same for a name out of a recording, which may be a stranger's."""
    if not isinstance(client, str) or not _CLIENT.fullmatch(client):
        raise FixRecording(
            f"{where}: client name {short(client)} is not allowed; letters, digits, space, "
            "_ . + - are (<= 100)"
        )
    return client


def layout_of(arrays: Arrays) -> Layout:
    """Names, types and shapes of a message's arrays, in order."""
    layout: Layout = []
    for name, array in arrays.items():
        code = _CODES.get(array.dtype.newbyteorder("<"))
        if code is None:
            raise FixData(f"array {name!r} has type {array.dtype}; allowed: {', '.join(_DTYPES)}")
        if len(name) > MAX_NAME or array.ndim > MAX_SIDES:
            raise FixData(
                f"array {short(name)} has {array.ndim} sides and a name of {len(name)} letters; "
                f"at most {MAX_SIDES} and {MAX_NAME} are allowed"
            )
        layout.append([name, code, list(array.shape)])
    return layout


def write_round(
    folder: Path, number: int, messages: Mapping[tuple[str, str], Arrays], free: bool = False
) -> Entry:
    """Write the messages, keyed (direction, client), of one round; returns the index entry.

    ``sent`` with client ``""`` is a broadcast, ``total`` with client ``""`` the sum of the round's
    updates. All messages must have one layout, but a total is float64; or, ``free``, each its own.
    """
    layout: Layout | None = None
    header: dict[str, Any] = {}
    index: list[list[Any]] = []
    parts: list[list[memoryview]] = []
    end = 0
    for (direction, client), arrays in messages.items():
        here = layout_of(arrays)
        layout = here if layout is None else layout
        differs = here != layout_for(layout, direction)
        if differs and not free:
            raise FixData(
                f"round {number}: the message {direction} {client or 'to all'} has arrays "
                f"{_words(here)} where the first message has {_words(layout)}"
            )
        start, blobs = end, []
        for (name, code, shape), array in zip(here, arrays.values(), strict=True):
            blob = np.ascontiguousarray(array, _DTYPES[code]).reshape(-1).view(np.uint8).data
            header[f"{direction}:{client}:{name}"] = {
                "dtype": code,
                "shape": shape,
                "data_offsets": [end, end + blob.nbytes],
            }
            end += blob.nbytes
            blobs.append(blob)
        index.append([direction, client, start, end, here if differs else None])
        parts.append(blobs)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise FixData(
            f"round {number}: {len(header)} arrays need a header of {len(text)} bytes, more than "
            f"the {MAX_HEADER_BYTES} that safetensors allows; record fewer clients a round"
        )
    head = len(text).to_bytes(8, "little") + text
    name = f"round-{number:06d}.safetensors"
    # The file's digest is made while it is written, the messages' own in a second thread meanwhile.
    with ThreadPoolExecutor(1) as aside:
        digests = aside.submit(lambda: [_digest_of(blobs) for blobs in parts])
        sha256, size = write_durably(folder / name, [head, *chain.from_iterable(parts)])
    for message, digest in zip(index, digests.result(), strict=True):
        own = message.pop()
        message += [digest] if own is None else [digest, own]
    return {
        "kind": "round",
        "round": number,
        "file": name,
        "size": size,
        "sha256": sha256,
        "head": len(head),
        "layout": layout or [],
        "messages": index,
    }


def _digest_of(blobs: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for blob in blobs:
        digest.update(blob)
    return digest.hexdigest()


def layout_for(layout: Layout, direction: str) -> Layout:
    """The layout of a message that goes this way: totals are float64, whatever the wire carries."""
    return [[n, "F64", k] for n, _, k in layout] if direction == TOTAL[0] else layout


def _length(layout: Layout) -> int:
    return sum(prod(shape) * _DTYPES[code].itemsize for _, code, shape in layout)


def parse_round(folder: Path, entry: Entry) -> Round:
    """An index line of kind ``round``, every field checked: the index may be a stranger's."""
    number = entry.get("round")
    try:
        layout = _layout(entry["layout"])
        lengths = {w: _length(layout_for(layout, w)) for w in ("sent", "returned", "total")}
        spans: dict[tuple[str, str], tuple[int, int, str]] = {}
        expected = 0
        own: dict[tuple[str, str], Layout] = {}
        for way, who, start, end, digest, *differs in entry["messages"]:
            known = (way in ("sent", "total") and who == "") or (
                way in ("sent", "returned") and _CLIENT.fullmatch(who)
            )
            if not known or (way, who) in spans:
                raise ValueError(
                    f"message {short(way)} of {short(who)} is not allowed or stands twice"
                )
            if differs:
                (other,) = differs
                own[way, who] = _layout(other)
            length = _length(own[way, who]) if differs else lengths[way]
            if (start, end) != (expected, expected + length):
                raise ValueError(f"message {way!r} of {who!r} is not where its layout puts it")
            spans[way, who] = (expected, expected + length, _is_sha256(digest))
            expected += length
        head, weights = entry["head"], _weights(entry["weights"])
        if type(number) is not int or not 0 <= number <= MAX_ROUND:
            raise ValueError("its number is not a whole one of ordinary size")
        if not _is_count(head, 8 + MAX_HEADER_BYTES):
            raise ValueError(f"its head has {short(head)} bytes")
        if head < 8 or head + expected != entry["size"]:
            raise ValueError(f"messages end at {head + expected} of {short(entry['size'])} bytes")
        if not isinstance(entry["file"], str):
            raise ValueError("its file has no name")
        participants = _participants(entry, spans)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FixRecording(
            f"{folder / INDEX}: the line of round {short(number)} is not valid: {why}"
        ) from error
    file = {key: entry.get(key) for key in ("file", "size", "sha256")}
    return Round(number, file, head, layout, spans, weights, participants, own)


def _layout(given: Any) -> Layout:
    """Names, types and shapes that can be arrays."""
    check("arrays", len(given), "a message")
    layout: Layout = []
    for name, code, shape in given:
        if not isinstance(name, str) or len(name) > MAX_NAME or code not in _DTYPES:
            raise ValueError(f"{short(name)} of {short(code)} is no array of a message")
        if not isinstance(shape, list) or len(shape) > MAX_SIDES:
            raise ValueError(f"array {short(name)} has more than {MAX_SIDES} sides")
        sides = [side or 1 for side in shape if _is_count(side, MAX_SIDE)]
        if len(sides) < len(shape) or prod(sides) > MAX_SIDE:
            raise ValueError(f"array {short(name)} has the shape {short(shape)}")
        layout.append([name, code, list(shape)])
    if len({name for name, _, _ in layout}) < len(layout):
        raise ValueError("two arrays have one name")
    return layout


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_sha256(text: object) -> str:
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise ValueError(f"{short(text)} is no sha256")
    return text


def _weights(given: Any) -> dict[str, float]:
    """Record counts that clients reported, by name."""
    for client, weight in given.items():
        number = type(weight) in (int, float)
        if not _CLIENT.fullmatch(client) or not number or not 0 <= weight <= MAX_SIDE:
            raise ValueError(f"{short(client)} reports {short(weight)} records")
    return {client: float(weight) for client, weight in given.items()}


def _participants(
    entry: Entry, spans: Mapping[tuple[str, str], tuple[int, int, str]]
) -> tuple[str, ...] | None:
    """Who took part: whoever returned something or, of a total, whoever the index lists."""
    returned = tuple(who for way, who in spans if way == "returned")
    if TOTAL not in spans:
        return returned
    if returned or ("sent", "") not in spans:
        raise ValueError("a total stands beside the broadcast, without single returns")
    named = entry["participants"]
    if named is None:
        return None
    if (
        not isinstance(named, list)
        or not named
        or len(set(named)) < len(named)
        or not all(map(_CLIENT.fullmatch, named))
    ):
        raise ValueError("participants must be different clients, at least one")
    return tuple(named)


def read_message(folder: Path, entry: Round, direction: str, client: str) -> bytes:
    """The raw bytes of one message, checked against its digest; reads nothing else."""
    ((_, raw),) = read_messages(folder, entry, [(direction, client)])
    return raw


def read_messages(
    folder: Path, entry: Round, wanted: Iterable[tuple[str, str]] | None = None
) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Messages of a round with their keys (direction, client), by default all, one after the other.

    Each is checked against its digest; the disk reads the next one meanwhile.
    """
    keys = list(entry.spans) if wanted is None else list(wanted)
    for direction, client in keys:
        if (direction, client) not in entry.spans:
            raise FixRecording(
                f"{folder / INDEX}: round {entry.number} has no message {direction} "
                f"{client or 'to all'}"
            )
    path = listed_file(folder, entry.file)
    for key in keys:
        start, end, _ = entry.spans[key]
        check("message_bytes", end - start, path)
    with opened(path) as (file, _):
        if len(keys) > 1:
            _begin_reading(file.fileno(), entry, keys)
        for direction, client in keys:
            start, end, digest = entry.spans[direction, client]
            file.seek(entry.head + start)
            raw = b"".join(_chunks(file, end - start))
            if hashlib.sha256(raw).hexdigest() != digest:
                raise FixRecording(
                    f"{path}: the message {direction} {client or 'to all'} does not match the "
                    "index; restore the file from a copy"
                )
            yield (direction, client), raw


def expect(folder: Path, entry: Round, wanted: Iterable[tuple[str, str]]) -> None:
    """Have the disk begin to read these messages of a round, and nothing else, for later."""
    with opened(listed_file(folder, entry.file)) as (file, _):
        _begin_reading(file.fileno(), entry, wanted)


def _begin_reading(handle: int, entry: Round, keys: Iterable[tuple[str, str]]) -> None:
    advise = getattr(os, "posix_fadvise", None)  # not everywhere, and advice only
    for key in keys:
        if advise is not None and key in entry.spans:
            start, end, _ = entry.spans[key]
            advise(handle, entry.head + start, end - start, os.POSIX_FADV_WILLNEED)


def _chunks(file: IO[bytes], count: int) -> Iterator[bytes]:
    """The next ``count`` bytes, and not one more: no read-ahead into the neighbour's."""
    while count > 0 and (chunk := file.read(count)):
        yield chunk
        count -= len(chunk)


def message_arrays(layout: Layout, raw: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """The named arrays of a message's bytes."""
    start = 0
    for name, code, shape in layout:
        dtype = _DTYPES[code]
        count = prod(shape)
        yield name, np.frombuffer(raw, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize


def _words(layout: Layout) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, _, shape in layout)
