"""Tables as safetensors: a column is an array, and text is its UTF-8 with an array of offsets.

Nothing is compressed and nothing is repeated, so that a table takes no more room than its file but
for text, whose room is known before it is made. The arrays are named by their place: ``0:age`` is
the first column; if it is text there is also ``0`` with one offset more than there are rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from overheard.errors import FixData, FixRecording, OverheardError
from overheard.foreign.limits import beyond, check, limit
from overheard.foreign.notation import parse_json

Column = NDArray[Any]
_IMAGES = (np.uint8, np.float32, np.float64)
_WIDE: dict[str, type[Any]] = {"i": np.int64, "u": np.uint64}
_NUMBERS = (np.float64, np.int64, np.uint64, np.bool_)
MAX_IMAGE_NUMBERS = 1 << 20  # in one image
MAX_TABLE_NUMBERS = 1 << 30  # in one column of images


def pack_columns(columns: Mapping[str, Column]) -> bytes:
    """A table as bytes: numbers and truth values, text, and images: a row of numbers a record."""
    arrays: dict[str, Column] = {}
    for place, (name, values) in enumerate(columns.items()):
        key = f"{place}:{name}"
        if values.dtype.kind == "U":
            try:
                texts = [text.encode() for text in values.tolist()]
            except UnicodeEncodeError as error:
                raise FixData(
                    f"column {name!r} holds half a pair of surrogates; mend it"
                ) from error
            ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            arrays |= {str(place): ends, key: np.frombuffer(b"".join(texts), np.uint8)}
        elif values.ndim > 1:
            if values.ndim > 2 or values.dtype not in _IMAGES:
                raise FixData(
                    f"column {name!r} has shape {values.shape} of {values.dtype}; an image is a "
                    "row of uint8, float32 or float64"
                )
            arrays[key] = np.ascontiguousarray(values)
        else:
            wide = _WIDE.get(values.dtype.kind, np.float64)
            kept = values.dtype in _NUMBERS
            arrays[key] = np.ascontiguousarray(values if kept else values.astype(wide))
    return save(arrays)


def unpack_columns(
    raw: bytes, where: object, error: type[OverheardError] = FixRecording
) -> dict[str, Column]:
    """The inverse, for bytes of a stranger."""
    try:
        size = int.from_bytes(raw[:8], "little")
        check("json_bytes", size, where, error)
        if raw[8:9] != b"{":
            raise ValueError("it has no head")
        head = parse_json(raw[8 : 8 + size], where, error)
        check("columns", len(head) // 2, where, error)
        return _checked(dict(load(raw)), where, error)
    except OverheardError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise error(f"{where}: cannot be read as a table: {words[:300]}") from problem


def _checked(
    arrays: dict[str, Column], where: object, error: type[OverheardError]
) -> dict[str, Column]:
    named = sorted((int(place), name) for place, colon, name in map(_parts, arrays) if colon)
    offsets = {int(key): array for key, array in arrays.items() if ":" not in key}
    if [place for place, _ in named] != list(range(len(named))):
        raise ValueError("its columns are not numbered one by one")
    if len({name for _, name in named}) < len(named) or not set(offsets) <= set(range(len(named))):
        raise ValueError("a name stands twice, or offsets belong to no column")
    columns: dict[str, Column] = {}
    room = limit("table_bytes")
    for place, name in named:
        values = arrays[f"{place}:{name}"]
        if place in offsets:
            values = _texts(values, offsets[place], room, f"{where}: column {name!r}", error)
        elif values.ndim == 2 and values.dtype in _IMAGES:
            if not 1 <= values.shape[1] <= MAX_IMAGE_NUMBERS or values.size > MAX_TABLE_NUMBERS:
                size = "{} images of {} numbers".format(*values.shape)
                raise ValueError(f"column {name!r} has {size}: too many")
        elif values.ndim != 1 or values.dtype not in _NUMBERS:
            raise ValueError(
                f"column {name!r} is {values.dtype} of shape {values.shape}, which is not allowed"
            )
        check("rows", len(values), where, error)
        room -= values.nbytes
        if room < 0:
            raise beyond("table_bytes", where, error)
        columns[name] = values
    if len({len(values) for values in columns.values()}) > 1:
        raise ValueError("its columns differ in length")
    return columns


def _parts(key: str) -> tuple[str, str, str]:
    place, colon, name = key.partition(":")
    if not place.isascii() or not place.isdigit() or str(int(place)) != place:
        raise ValueError(f"{key[:100]!r} does not begin with the place of a column")
    return place, colon, name


def _texts(
    letters: Column, ends: Column, room: int, where: object, error: type[OverheardError]
) -> NDArray[np.str_]:
    """A column of text, if there is room: in an array every text is as long as the longest."""
    if letters.dtype != np.uint8 or letters.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1:
        raise ValueError("text is bytes, with offsets that are whole numbers")
    if not len(ends) or ends[0] != 0 or ends[-1] != len(letters) or (ends[1:] < ends[:-1]).any():
        raise ValueError("the offsets of a text do not go from its beginning to its end")
    longest = int((ends[1:] - ends[:-1]).max(initial=1))
    needed = (len(ends) - 1) * longest * 4
    if needed > room:
        raise beyond("table_bytes", where, error, needed)
    raw, places = letters.tobytes(), ends.tolist()
    texts = [raw[begin:end].decode() for begin, end in pairwise(places)]
    return np.array(texts, dtype=str) if texts else np.zeros(0, dtype="<U1")
