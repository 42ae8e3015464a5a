"""One round's messages in one safetensors file, readable client by client.

The container is the safetensors format (8 bytes of header length, a JSON header, raw
little-endian arrays). It is written here array by array so that the arrays of one message lie
side by side: reading one client's message is one seek and one read, checked by its own digest,
and touches nobody else's bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.files import write_durably
from overheard.foreign.files import opened
from overheard.foreign.limits import check
from overheard.foreign.shown import short, visible
from overheard.transcript.ledger import INDEX, Entry, listed_file

Array = NDArray[np.floating[Any]]
RELEASE = "release"
"""Named arrays of a program, of any shapes; there is no update in them."""
PAYLOADS = ("model", "gradient", RELEASE)


def returns_gradients(payload: str) -> bool:
    """Do clients return gradients, and not models?"""
    return payload == "gradient"


def releases_arrays(payload: str) -> bool:
    """Do clients return what a program names, and neither models nor gradients?"""
    return payload == RELEASE


def update_of(payload: str, sent: Array, returned: Array) -> NDArray[np.float64]:
    """What a listener sees of a client: ``sent - returned``, or the gradient that it returns."""
    wide = returned.astype(np.float64)
    return wide if returns_gradients(payload) else np.asarray(sent.astype(np.float64) - wide)


def message_of(payload: str, sent: Array, update: Array) -> Array:
    """What a client returns to say this update."""
    return update if returns_gradients(payload) else np.asarray(sent - update)


Arrays = Mapping[str, NDArray[Any]]
Key = tuple[str, str]
"""A message of a round: its direction (sent, returned, total) and its client ("": all)."""
Layout = list[tuple[str, str, tuple[int, ...]]]
"""Name, safetensors dtype and shape of each array of a message, in their order."""
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
_CLIENT = "[A-Za-z0-9][A-Za-z0-9 _.+-]{0,99}"
TOTAL = ("total", "")
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
MAX_ROUND = 10**15
MAX_NAME = 1000  # letters in an array's name
MAX_SIDES = 16  # of an array
MAX_SIDE = 1 << 53


@dataclass(frozen=True)
class Round:
    """A checked index line: which messages a round's file holds and where each lies.

    ``spans``: where a message begins and ends, and its digest. ``layout``: of the first message;
    ``layouts``: of each, which differ only in releases of programs and in totals.
    ``participants``: who took part; None where only a total was heard and nobody said of whom.
    """

    number: int
    file: Entry
    head: int
    layout: Layout
    spans: Mapping[Key, tuple[int, int, str]]
    layouts: Mapping[Key, Layout]
    weights: Mapping[str, float]
    participants: tuple[str, ...] | None

    @property
    def aggregated(self) -> bool:
        """Whether it holds a total in place of what each client returned."""
        return TOTAL in self.spans

    @property
    def mixed(self) -> bool:
        """Whether a message has a layout of its own."""
        each = self.layouts.items()
        return any(layout != layout_for(self.layout, way) for (way, _), layout in each)

    def renamed(self, names: Mapping[str, str]) -> Round:
        """The same round, its clients called otherwise; the messages lie where they lay."""
        who = self.participants
        return replace(
            self,
            spans={(way, names.get(c, c)): span for (way, c), span in self.spans.items()},
            layouts={(way, names.get(c, c)): of for (way, c), of in self.layouts.items()},
            weights={names.get(c, c): weight for c, weight in self.weights.items()},
            participants=None if who is None else tuple(names.get(c, c) for c in who),
        )


def check_client(client: object, where: object = None) -> str:
    """A client's name, if it is one that can stand in a recording; ``where``: the file of one,
    perhaps a stranger's, in which it stands already."""
    if not isinstance(client, str) or not re.fullmatch(_CLIENT, client):
        said = f"client name {short(client)} is not allowed; use letters, digits, space, _ . + - "
        said += "(<= 100)"
        raise FixConfig(said) if where is None else FixRecording(f"{where}: {said}")
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
        layout.append((name, code, array.shape))
    return layout


def layout_for(layout: Layout, direction: str) -> Layout:
    """The layout of a message that goes this way: totals are float64, whatever the wire carries."""
    return [(n, "F64", k) for n, _, k in layout] if direction == TOTAL[0] else layout


def _length(layout: Layout) -> int:
    return sum(prod(shape) * _DTYPES[code].itemsize for _, code, shape in layout)


def write_round(
    folder: Path, number: int, messages: Mapping[Key, Arrays], free: bool = False
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


def _words(layout: Layout) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, _, shape in layout)


def _possible(layout: Layout) -> Layout:
    check("arrays", len(layout), "a message")
    for name, _, shape in layout:
        if prod(side or 1 for side in shape) > MAX_SIDE:
            raise ValueError(f"array {short(name)} has the shape {short(shape)}")
    if len({name for name, _, _ in layout}) < len(layout):
        raise ValueError("two arrays have one name")
    return layout


_Client = Annotated[StrictStr, Field(pattern=f"^{_CLIENT}$")]
_Side = Annotated[StrictInt, Field(ge=0, le=MAX_SIDE)]
_Array = tuple[
    Annotated[StrictStr, Field(max_length=MAX_NAME)],
    Annotated[StrictStr, Field(pattern=f"^({'|'.join(_DTYPES)})$")],
    Annotated[tuple[_Side, ...], Field(max_length=MAX_SIDES)],
]
_Layout = Annotated[list[_Array], AfterValidator(_possible)]
_Message = Annotated[
    tuple[
        Annotated[StrictStr, Field(pattern="^(sent|returned|total)$")],
        Annotated[StrictStr, Field(pattern=f"^({_CLIENT})?$")],
        StrictInt,
        StrictInt,
        Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")],
        _Layout | None,
    ],
    BeforeValidator(lambda row: [*row, None] if isinstance(row, list) and len(row) == 5 else row),
]


class _Line(BaseModel):
    """A line of the index that tells of a round; a stranger may have written it."""

    number: Annotated[StrictInt, Field(alias="round", ge=0, le=MAX_ROUND)]
    file: StrictStr
    size: StrictInt
    head: Annotated[StrictInt, Field(ge=8, le=8 + MAX_HEADER_BYTES)]
    layout: _Layout
    messages: list[_Message]
    weights: dict[_Client, Annotated[StrictFloat, Field(ge=0, le=MAX_SIDE)]]
    participants: list[_Client] | None = []


def parse_round(folder: Path, entry: Entry) -> Round:
    """An index line of kind ``round``, every field checked: the index may be a stranger's."""
    try:
        line = _Line.model_validate(entry)
        spans: dict[Key, tuple[int, int, str]] = {}
        layouts: dict[Key, Layout] = {}
        expected = 0
        for way, who, start, end, digest, own in line.messages:
            key, layout = (way, who), layout_for(line.layout, way) if own is None else own
            if key in spans or (way == "returned" and not who) or (way == "total" and who):
                raise ValueError(f"message {way!r} of {who!r} is not allowed or stands twice")
            if (start, end) != (expected, expected + _length(layout)):
                raise ValueError(f"message {way!r} of {who!r} is not where its layout puts it")
            spans[key], layouts[key] = (start, end, digest), layout
            expected = end
        if line.head + expected != line.size:
            raise ValueError(f"messages end at {line.head + expected} of {line.size} bytes")
        participants = _participants(line, spans)
    except ValueError as error:
        why = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where = visible(".".join(map(str, first["loc"])))[:200]
            why = f"{where}: {first['msg']} (given: {short(first['input'])})"
        raise FixRecording(
            f"{folder / INDEX}: the line of round {short(entry.get('round'))} is not valid: {why}"
        ) from error
    file = {key: entry.get(key) for key in ("file", "size", "sha256")}
    return Round(
        line.number, file, line.head, line.layout, spans, layouts, line.weights, participants
    )


def _participants(line: _Line, spans: Mapping[Key, Any]) -> tuple[str, ...] | None:
    """Who took part: whoever returned something or, of a total, whoever the index lists."""
    returned = tuple(who for way, who in spans if way == "returned")
    if TOTAL not in spans:
        return returned
    if returned or ("sent", "") not in spans:
        raise ValueError("a total stands beside the broadcast, without single returns")
    if line.participants is None:
        return None
    if not line.participants or len(set(line.participants)) < len(line.participants):
        raise ValueError("participants must be different clients, at least one")
    return tuple(line.participants)


def read_messages(
    folder: Path, entry: Round, wanted: Iterable[Key]
) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of these messages of a round, one after the other, each checked by its digest;
    nothing else is read."""
    keys = list(wanted)
    path = listed_file(folder, entry.file)
    for direction, client in keys:
        if (direction, client) not in entry.spans:
            raise FixRecording(
                f"{folder / INDEX}: round {entry.number} has no message {direction} "
                f"{client or 'to all'}"
            )
        start, end, _ = entry.spans[direction, client]
        check("message_bytes", end - start, path)
    with opened(path) as (file, _):
        for direction, client in keys:
            start, end, digest = entry.spans[direction, client]
            file.seek(entry.head + start)
            raw = b"".join(_chunks(file, end - start))
            if hashlib.sha256(raw).hexdigest() != digest:
                raise FixRecording(
                    f"{path}: the message {direction} {client or 'to all'} does not match the "
                    "index; restore the file from a copy"
                )
            yield dict(_arrays(entry.layouts[direction, client], raw))


def _chunks(file: IO[bytes], count: int) -> Iterator[bytes]:
    """The next ``count`` bytes, and not one more: no read-ahead into the neighbour's."""
    while count > 0 and (chunk := file.read(count)):
        yield chunk
        count -= len(chunk)


def _arrays(layout: Layout, raw: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """The named arrays of a message's bytes."""
    start = 0
    for name, code, shape in layout:
        dtype, count = _DTYPES[code], prod(shape)
        yield name, np.frombuffer(raw, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
