"""One round's messages in one safetensors file, of which any client's can be read alone.

The index says which messages a file holds, of which arrays they are made, in their order, and the
digest of each. The file's own header follows from that, byte by byte, and is compared before the
first message is read. So a message is found by counting, and checked without reading another's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field, StrictInt, StrictStr, ValidationError

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.files import write_durably
from overheard.foreign.limits import check
from overheard.foreign.shown import first_error, short, visible
from overheard.transcript.ledger import INDEX, Entry, damaged, listed_file

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
_SIZES = {code: np.dtype(dtype).itemsize for code, dtype in _DTYPES.items()}
_CLIENT = re.compile(r"\w[^:/\\]{0,98}[^:/\\\s]|\w")  # and printable
TOTAL = ("total", "")
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
MAX_ROUND = 10**15
MAX_NAME = 1000  # letters in an array's name
MAX_SIDES = 16  # of an array
MAX_SIDE = 1 << 53


class Span(NamedTuple):
    """A message: where it begins and ends, after the head of the file, of which arrays it is made,
    and its place among the messages of its round."""

    begin: int
    end: int
    layout: Layout
    place: int


@dataclass(frozen=True)
class Round:
    """A checked index line: which messages the file of a round holds and where each lies.

    ``head``: how the file begins. ``layout``: of the first message; the others differ only in
    releases of programs and in totals. ``spans``: of each message. ``digests``: of each, in the
    file's order. ``participants``: who took part. Rounds that hold the same share what says so.
    """

    number: int
    line: Entry
    head: bytes
    layout: Layout
    spans: Mapping[Key, Span]
    digests: list[str]
    weights: Mapping[str, float]
    participants: tuple[str, ...]

    @property
    def aggregated(self) -> bool:
        """Whether it holds a total in place of what each client returned."""
        return TOTAL in self.spans


def renamed(rounds: Iterable[Round], names: Mapping[str, str]) -> Iterator[Round]:
    """The same rounds, their clients called otherwise; the messages lie where they lay."""
    spans: dict[int, Mapping[Key, Span]] = {}
    for one in rounds:
        if (there := id(one.spans)) not in spans:
            spans[there] = {(way, names.get(c, c)): span for (way, c), span in one.spans.items()}
        weights = {names.get(c, c): weight for c, weight in one.weights.items()}
        participants = tuple(names.get(c, c) for c in one.participants)
        yield replace(one, spans=spans[there], weights=weights, participants=participants)


def _named(client: object) -> str:
    allowed = isinstance(client, str) and client.isprintable() and _CLIENT.fullmatch(client)
    if isinstance(client, str) and allowed and visible(client) == client:
        return client
    raise ValueError(
        f"client name {short(client)} is not allowed; use at most 100 printable letters, "
        "without : / and \\, the first a letter or digit, the last no space"
    )


def check_client(client: object, where: object = None) -> str:
    """A client's name, if it is one that can stand in a recording; ``where``: the file of one,
    perhaps somebody else's, in which it stands already."""
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
        if code is None or len(name) > MAX_NAME or array.ndim > MAX_SIDES:
            raise FixData(
                f"array {short(name)} has type {array.dtype} and {array.ndim} sides; allowed: "
                f"{', '.join(_DTYPES)}, {MAX_SIDES} sides and a name of {MAX_NAME} letters"
            )
        layout.append((name, code, array.shape))
    return layout


def layout_for(layout: Layout, direction: str) -> Layout:
    """The layout of a message that goes this way: totals are float64, whatever updates are."""
    return [(n, "F64", k) for n, _, k in layout] if direction == TOTAL[0] else layout


def _bytes(code: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * _SIZES[code]


def _placed(layouts: Mapping[Key, Layout]) -> tuple[bytes, Mapping[Key, Span], int]:
    """Of messages of these layouts, one after the other: how a safetensors file begins that holds
    them, where each lies, and the size of the file."""
    arrays: list[str] = []
    spans: dict[Key, Span] = {}
    length = end = 0
    for place, ((way, who), layout) in enumerate(layouts.items()):
        first = end
        for name, code, shape in layout:
            begin, end = end, end + _bytes(code, shape)
            key, sides = json.dumps(f"{way}:{who}:{name}"), ",".join(map(str, shape))
            about = f'"dtype":"{code}","shape":[{sides}],"data_offsets":[{begin},{end}]'
            arrays.append(f"{key}:{{{about}}}")
            length += len(arrays[-1])
        if length > MAX_HEADER_BYTES:  # known before the rest of it is made
            raise ValueError(f"the header of its file has more than {MAX_HEADER_BYTES} bytes")
        spans[way, who] = Span(first, end, layout, place)
    text = f"{{{','.join(arrays)}}}".encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, spans, 8 + len(text) + end


def write_round(
    folder: Path,
    number: int,
    messages: Mapping[Key, Arrays],
    before: Round | None = None,
    free: bool = False,
) -> Entry:
    """Write the messages, keyed (direction, client), of one round; returns the index entry, which
    says what the file holds only where that of the round ``before`` held something else.

    ``sent`` with client ``""`` is a broadcast, ``total`` with client ``""`` the sum of the round's
    updates. All messages must have one layout, that of the round before, but a total is float64;
    or, ``free``, each its own. Their arrays are written in the order of the first message's: what
    is recorded does not depend on a dict's order.
    """
    first = before.layout if before else layout_of(next(iter(messages.values())))
    order = [name for name, _, _ in first]
    messages = {
        key: {n: arrays[n] for n in order} if set(arrays) == set(order) else arrays
        for key, arrays in messages.items()
    }
    layouts = {key: layout_of(arrays) for key, arrays in messages.items()}
    layout = next(iter(layouts.values())) if free else first
    own = {key: of for key, of in layouts.items() if of != layout_for(layout, key[0])}
    for (direction, client), differs in own.items() if not free else ():
        raise FixData(
            f"round {number}: the message {direction} {client or 'to all'} has arrays "
            f"{_words(differs)} where the first message has {_words(layout)}; a recording holds "
            "one model, so begin another"
        )
    head, _, size = _placed(layouts)
    name = f"round-{number:06d}.safetensors"
    about: Entry = {"kind": "round", "round": number, "file": name, "size": size}
    if before is None or head != before.head:
        listed = [[*key, own[key]] if key in own else [*key] for key in layouts]
        about |= {"layout": layout, "messages": listed}
    parts = [[*_blobs(layouts[key], arrays)] for key, arrays in messages.items()]
    with ThreadPoolExecutor(1) as other:  # neither hashing nor writing holds Python's lock
        hashed = other.submit(lambda: [*map(_digest, parts)])
        write_durably(folder / name, chain([head], *parts))
    return {**about, "digests": hashed.result()}


def _blobs(layout: Layout, arrays: Arrays) -> Iterator[memoryview]:
    """A message's bytes, array by array."""
    for (_, code, _), array in zip(layout, arrays.values(), strict=True):
        yield np.ascontiguousarray(array, _DTYPES[code]).reshape(-1).view(np.uint8).data


def _digest(blobs: Iterable[bytes | memoryview]) -> str:
    """Of these bytes, one after the other."""
    found = sha256()
    for blob in blobs:
        found.update(blob)
    return found.hexdigest()


def _words(layout: Layout) -> str:
    return ", ".join(f"{n} {code} {'x'.join(map(str, shape))}" for n, code, shape in layout)


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
_Digest = Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]
_Who = Annotated[StrictStr, AfterValidator(lambda who: who and _named(who))]
_Message = tuple[_Way, _Who] | tuple[_Way, _Who, _Layout]


class _Line(BaseModel):
    """A line of the index that tells of a round; anybody may have written it."""

    number: Annotated[StrictInt, Field(alias="round", ge=0, le=MAX_ROUND)]
    file: StrictStr
    size: StrictInt
    layout: _Layout = []
    messages: list[_Message] = []
    digests: list[_Digest]
    weights: dict[StrictStr, Annotated[float, Field(strict=True, ge=0, le=MAX_SIDE)]]
    participants: list[ClientName] = []


def parse_round(folder: Path, entry: Entry, last: Round | None = None, free: bool = True) -> Round:
    """An index line of kind ``round``, every field checked: the index may be anybody's.

    ``last``: the round before, whose file held the same where the line does not say what this one
    holds. ``free``: messages may have layouts of their own.
    """
    try:
        line = _Line.model_validate(entry)
        if last is None or line.model_fields_set & {"layout", "messages"}:
            layout, (head, spans, size) = line.layout, _placed(_layouts(line, free))
        else:
            layout, head, spans, size = last.layout, last.head, last.spans, last.line["size"]
        if (line.size, len(line.digests)) != (size, len(spans)):
            found = f"{len(spans)} messages with {len(line.digests)} digests"
            raise ValueError(f"{found}, which take {size} bytes of a file of {line.size}")
        if last and layout != last.layout and not free:
            raise ValueError(f"its arrays differ from those of round {last.number}")
        if last and line.number <= last.number:
            raise ValueError(f"it is listed after round {last.number}; rounds must increase")
        participants = _participants(line, spans)
        for client in line.weights.keys() - participants:
            _named(client)
    except ValueError as error:
        why = first_error(error) if isinstance(error, ValidationError) else str(error)
        raise FixRecording(
            f"{folder / INDEX}: the line of round {short(entry.get('round'))} is not valid: {why}"
        ) from error
    return Round(line.number, entry, head, layout, spans, line.digests, line.weights, participants)


def _layouts(line: _Line, free: bool) -> dict[Key, Layout]:
    found: dict[Key, Layout] = {}
    for way, who, *own in line.messages:
        if (way, who) in found or (way == "returned" and not who) or (way == "total" and who):
            raise ValueError(f"message {way!r} of {who!r} is not allowed or stands twice")
        if own and not free:
            raise ValueError("a message has a layout of its own; only releases of programs may")
        found[way, who] = own[0] if own else layout_for(line.layout, way)
    return found


def _participants(line: _Line, spans: Mapping[Key, Any]) -> tuple[str, ...]:
    """Who took part: whoever returned something or, of a total, whoever the index lists."""
    returned = tuple(who for way, who in spans if way == "returned")
    if TOTAL not in spans:
        return returned
    if returned or ("sent", "") not in spans:
        raise ValueError("a total stands beside the broadcast, without single returns")
    if not line.participants or len(set(line.participants)) < len(line.participants):
        raise ValueError("participants must be different clients, at least one")
    return tuple(line.participants)


def read_ahead(folder: Path, entry: Round, wanted: Collection[Key]) -> None:
    """Have the system fetch these messages of a round, and no others, while something else is done;
    what is wrong with the file is said when it is read."""
    head = len(entry.head)
    places = [(-head, 0), *((entry.spans[key].begin, entry.spans[key].end) for key in wanted)]
    with suppress(FixRecording, AttributeError), listed_file(folder, entry.line) as (file, _):
        for begin, end in places:
            os.posix_fadvise(file.fileno(), head + begin, end - begin, os.POSIX_FADV_WILLNEED)


def read_messages(
    folder: Path, entry: Round, wanted: Collection[Key], checked: set[str]
) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of these messages of a round, one after the other, each checked against its
    digest; nothing else is read but the file's header, which must be what follows from the index.
    It names every client, so that it is read once: ``checked`` are the files of which it was.
    """
    if missing := [key for key in wanted if key not in entry.spans]:
        what = f"{missing[0][0]} {missing[0][1] or 'to all'}"
        raise FixRecording(f"{folder / INDEX}: round {entry.number} has no message {what}")
    with listed_file(folder, entry.line) as (file, path):
        if path.name not in checked and file.read(len(entry.head)) != entry.head:
            raise FixRecording(
                f"{path}: its header does not say what the index says of its arrays; restore both "
                "from a copy"
            )
        checked.add(path.name)
        for begin, end, layout, place in (entry.spans[key] for key in wanted):
            check("message_bytes", end - begin, path)
            file.seek(len(entry.head) + begin)
            raw = file.read(end - begin)
            if sha256(raw).hexdigest() != entry.digests[place]:
                raise damaged(path)
            arrays, rest = dict[str, NDArray[Any]](), memoryview(raw)
            for name, code, shape in layout:
                size = _bytes(code, shape)
                arrays[name] = np.frombuffer(rest[:size], _DTYPES[code]).reshape(shape)
                rest = rest[size:]
            yield arrays
