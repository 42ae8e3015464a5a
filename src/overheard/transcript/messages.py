"""One round's messages in one safetensors file, of which any client's can be read alone.

The index says which messages a file holds and of which arrays they are made, in their order; the
file's own header must say the same, which is checked together with the file's digest before the
first message is read. So a message is found by counting, and no other client's is read for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BufferedReader
from itertools import chain
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.files import write_durably
from overheard.foreign.files import opened, parse_json
from overheard.foreign.limits import check
from overheard.foreign.shown import first_error, short, visible
from overheard.transcript.ledger import INDEX, Entry, listed_file, sound_file

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
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
_DTYPES |= {"BOOL": "?"}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}
_CLIENT = re.compile(r"\w[^:/\\]{0,98}[^:/\\\s]|\w")  # and printable
TOTAL = ("total", "")
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
MAX_ROUND = 10**15
MAX_NAME = 1000  # letters in an array's name
MAX_SIDES = 16  # of an array
MAX_SIDE = 1 << 53


@dataclass(frozen=True)
class Round:
    """A checked index line: which messages a round's file holds and where each lies.

    ``spans``: where a message begins and ends, after the ``head`` of the file. ``layout``: of the
    first message; ``layouts``: of each, which differ only in releases of programs and in totals.
    ``participants``: who took part; None where only a total was heard and nobody said of whom.
    ``names``: what a client is called in the file, where that is not its name here.
    """

    number: int
    file: Entry
    head: int
    layout: Layout
    spans: Mapping[Key, tuple[int, int]]
    layouts: Mapping[Key, Layout]
    weights: Mapping[str, float]
    participants: tuple[str, ...] | None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def aggregated(self) -> bool:
        """Whether it holds a total in place of what each client returned."""
        return TOTAL in self.spans

    def renamed(self, names: Mapping[str, str]) -> Round:
        """The same round, its clients called otherwise; the messages lie where they lay."""
        who = self.participants
        return replace(
            self,
            spans={(way, names.get(c, c)): span for (way, c), span in self.spans.items()},
            layouts={(way, names.get(c, c)): of for (way, c), of in self.layouts.items()},
            weights={names.get(c, c): weight for c, weight in self.weights.items()},
            participants=None if who is None else tuple(names.get(c, c) for c in who),
            names={new: old for old, new in names.items()},
        )


def _named(client: object) -> str:
    shown = isinstance(client, str) and client.isprintable() and visible(client) == client
    if isinstance(client, str) and shown and _CLIENT.fullmatch(client):
        return client
    raise ValueError(
        f"client name {short(client)} is not allowed; use at most 100 printable letters, "
        "without : / and \\, the first a letter or digit, the last no space"
    )


def check_client(client: object, where: object = None) -> str:
    """A client's name, if it is one that can stand in a recording; ``where``: the file of one,
    perhaps a stranger's, in which it stands already."""
    try:
        return _named(client)
    except ValueError as error:
        if where is None:
            raise FixConfig(str(error)) from None
        raise FixRecording(f"{where}: {error}") from None


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


def _bytes(code: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * np.dtype(_DTYPES[code]).itemsize


def _header(layouts: Mapping[Key, Layout]) -> dict[str, Any]:
    """What the header of a safetensors file says that holds these messages one after the other."""
    header: dict[str, Any] = {}
    end = 0
    for (direction, client), layout in layouts.items():
        for name, code, shape in layout:
            begin, end = end, end + _bytes(code, shape)
            about = {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}
            header[f"{direction}:{client}:{name}"] = about
    return header


def write_round(
    folder: Path, number: int, messages: Mapping[Key, Arrays], free: bool = False
) -> Entry:
    """Write the messages, keyed (direction, client), of one round; returns the index entry.

    ``sent`` with client ``""`` is a broadcast, ``total`` with client ``""`` the sum of the round's
    updates. All messages must have one layout, but a total is float64; or, ``free``, each its own.
    """
    layouts = {key: layout_of(arrays) for key, arrays in messages.items()}
    layout = next(iter(layouts.values()))
    listed: list[list[Any]] = []
    for (direction, client), own in layouts.items():
        differs = own != layout_for(layout, direction)
        if differs and not free:
            raise FixData(
                f"round {number}: the message {direction} {client or 'to all'} has arrays "
                f"{_words(own)} where the first message has {_words(layout)}"
            )
        listed.append([direction, client, own] if differs else [direction, client])
    text = json.dumps(_header(layouts), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise FixData(
            f"round {number}: its arrays need a header of {len(text)} bytes, more than "
            f"{MAX_HEADER_BYTES}; record fewer clients a round"
        )
    blobs = (
        np.ascontiguousarray(array, _DTYPES[code]).reshape(-1).view(np.uint8).data
        for key, arrays in messages.items()
        for (_, code, _), array in zip(layouts[key], arrays.values(), strict=True)
    )
    name = f"round-{number:06d}.safetensors"
    head = [len(text).to_bytes(8, "little"), text]
    sha256, size = write_durably(folder / name, chain(head, blobs))
    about = {"kind": "round", "round": number, "layout": layout, "messages": listed}
    return {**about, "file": name, "size": size, "sha256": sha256}


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


ClientName = Annotated[StrictStr, AfterValidator(_named)]
_Side = Annotated[StrictInt, Field(ge=0, le=MAX_SIDE)]
_Array = tuple[
    Annotated[StrictStr, Field(max_length=MAX_NAME)],
    Annotated[StrictStr, Field(pattern=f"^({'|'.join(_DTYPES)})$")],
    Annotated[tuple[_Side, ...], Field(max_length=MAX_SIDES)],
]
_Layout = Annotated[list[_Array], AfterValidator(_possible)]
_Way = Annotated[StrictStr, Field(pattern="^(sent|returned|total)$")]
_Who = Annotated[StrictStr, AfterValidator(lambda who: who and _named(who))]


class _Line(BaseModel):
    """A line of the index that tells of a round; a stranger may have written it."""

    number: Annotated[StrictInt, Field(alias="round", ge=0, le=MAX_ROUND)]
    file: StrictStr
    size: StrictInt
    layout: _Layout
    messages: list[tuple[_Way, _Who] | tuple[_Way, _Who, _Layout]]
    weights: dict[ClientName, Annotated[StrictFloat, Field(ge=0, le=MAX_SIDE)]]
    participants: list[ClientName] | None = []


def parse_round(folder: Path, entry: Entry, free: bool = True) -> Round:
    """An index line of kind ``round``, every field checked: the index may be a stranger's.

    ``free``: messages may have layouts of their own.
    """
    try:
        line = _Line.model_validate(entry)
        spans: dict[Key, tuple[int, int]] = {}
        layouts: dict[Key, Layout] = {}
        end = 0
        for way, who, *own in line.messages:
            if (way, who) in spans or (way == "returned" and not who) or (way == "total" and who):
                raise ValueError(f"message {way!r} of {who!r} is not allowed or stands twice")
            if own and not free:
                raise ValueError("a message has a layout of its own; only releases of programs may")
            layout = own[0] if own else layout_for(line.layout, way)
            begin, end = end, end + sum(_bytes(code, shape) for _, code, shape in layout)
            spans[way, who], layouts[way, who] = (begin, end), layout
        head = line.size - end
        if not 8 <= head <= 8 + MAX_HEADER_BYTES:
            raise ValueError(f"its messages take {end} bytes of a file of {line.size}")
        participants = _participants(line, spans)
    except ValueError as error:
        why = first_error(error) if isinstance(error, ValidationError) else str(error)
        raise FixRecording(
            f"{folder / INDEX}: the line of round {short(entry.get('round'))} is not valid: {why}"
        ) from error
    file = {key: entry.get(key) for key in ("file", "size", "sha256")}
    return Round(line.number, file, head, line.layout, spans, layouts, line.weights, participants)


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


def check_round(folder: Path, entry: Round) -> None:
    """Refuse a round's file whose bytes, or whose own header, are not what the index says."""
    path = sound_file(folder, entry.file)
    with opened(path) as (file, _):
        raw = BufferedReader(file).read(entry.head)
    said = parse_json(raw[8:], path) if int.from_bytes(raw[:8], "little") + 8 == len(raw) else None
    listed = {(way, entry.names.get(c, c)): layout for (way, c), layout in entry.layouts.items()}
    if said != _header(listed):
        raise FixRecording(
            f"{path}: its header does not say what the index says of its arrays; restore both from "
            "a copy"
        )


def read_messages(
    folder: Path, entry: Round, wanted: Iterable[Key]
) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of these messages of a round, one after the other; nothing else is read. Whether
    the file is sound, `check_round` says."""
    keys = list(wanted)
    path = listed_file(folder, entry.file)
    for direction, client in keys:
        if (direction, client) not in entry.spans:
            raise FixRecording(
                f"{folder / INDEX}: round {entry.number} has no message {direction} "
                f"{client or 'to all'}"
            )
        begin, end = entry.spans[direction, client]
        check("message_bytes", end - begin, path)
    with opened(path) as (file, _):
        whole = BufferedReader(file)
        for key in keys:
            whole.seek(entry.head + entry.spans[key][0])
            yield {
                name: np.frombuffer(whole.read(_bytes(code, shape)), _DTYPES[code]).reshape(shape)
                for name, code, shape in entry.layouts[key]
            }
