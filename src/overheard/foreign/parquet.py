"""Parquet tables from strangers: bounded before anything is unpacked.

A few bytes of Parquet can stand for a billion rows (run lengths), for gigabytes of zeros (a
compressed page) or for the same long text in every row (a dictionary). So the numbers in the footer
are checked, then the head of every page, which says what it unpacks to; text stays in its
dictionary until it is known how much room it takes. Types are those that a table of ours may have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording, OverheardError
from overheard.foreign.limits import beyond, check, limit
from overheard.foreign.thrift import Fields, decode

_HEAD_BYTES = 1 << 16  # of a page; a real one has some hundred
_MAGIC = b"PAR1"
_DELTA_BYTE_ARRAY = 7  # each text as a beginning of the one before: a megabyte in every row
_BYTE_ARRAYS = (6, 7)
# fields by number: of the footer, of a row group, of a column in it, of a page's head
_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS = 1, 3
_ELSEWHERE, _ABOUT = 1, 3
_TYPE, _PACKED, _FIRST, _DICTIONARY = 1, 7, 9, 11
_UNPACKS_TO, _PAGE_BYTES, _PAGE, _PAGE_V2 = 2, 3, 5, 8

Column = NDArray[Any]


def read_parquet(
    source: bytes | Path,
    where: object,
    error: type[OverheardError] = FixRecording,
    images: Callable[[Any, int], None] | None = None,
    drop: tuple[str, ...] = (),
) -> dict[str, Column]:
    """The columns of a table: numbers and truth values as they are, all other values as text.

    ``images``: checks a column of lists (field, rows), which are refused without it; ``drop``:
    columns that are not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        raw = pa.BufferReader(source) if isinstance(source, bytes) else pa.memory_map(str(source))
        with raw:
            footer = _footer(raw)
            rows = _check_rows(footer, where, error)
            _check_pages(footer, raw, where, error)
            raw.seek(0)
            schema = pq.ParquetFile(raw).schema_arrow
            _check_names(schema.names)
            names = [name for name in schema.names if name not in drop]
            texts = [f.name for f in schema if f.name in names and _is_text(f.type)]
            _check_size(schema, names, rows, where, error, images)
            raw.seek(0)
            file = pq.ParquetFile(raw, read_dictionary=texts)
            table = file.read(columns=names, use_threads=False)
            return _columns(table, where, error)
    except OverheardError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError, IndexError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise error(f"{where}: cannot be read as a Parquet table: {words[:300]}") from problem


def _check_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {twice!r} stands twice; rename one")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_size(
    schema: Any,
    names: list[str],
    rows: int,
    where: object,
    error: type[OverheardError],
    images: Callable[[Any, int], None] | None,
) -> None:
    """Columns, their types, and the room that they take."""
    import pyarrow as pa

    check("columns", len(schema), where, error)
    room = 0
    for field in schema:
        kind = field.type
        if field.name not in names:
            continue
        if isinstance(kind, pa.BaseExtensionType):
            raise ValueError(f"column {field.name!r} has the type {kind}, which is not allowed")
        if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
            room += rows * 4
        elif pa.types.is_fixed_size_list(kind) and images is not None:
            images(field, rows)
            room += rows * kind.list_size * (kind.value_type.bit_width // 8)
        elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
            raise ValueError(f"column {field.name!r} has the type {kind}, which is not allowed")
        else:
            room += rows * 8
    check("table_bytes", room, where, error)


def _footer(raw: Any) -> Fields:
    """What the end of the file says. Arrow's own view of it ends the process on some footers."""
    size = raw.size()
    raw.seek(max(size - 8, 0))
    end = raw.read(8)
    length = int.from_bytes(end[:4], "little")
    if size < 12 or end[4:] != _MAGIC or length > size - 12:
        raise ValueError("it has no footer")
    raw.seek(size - 8 - length)
    footer, _ = decode(raw.read(length))
    return footer


def _check_rows(footer: Fields, where: object, error: type[OverheardError]) -> int:
    rows = [_count(group, _GROUP_ROWS) for group in _structs(footer, _GROUPS)]
    check("rows", max(sum(rows), _count(footer, _ROWS)), where, error)
    return sum(rows)


def _check_pages(footer: Fields, raw: Any, where: object, error: type[OverheardError]) -> None:
    """What every page unpacks to, by its own head: the footer may lie."""
    most, size, unpacked = limit("table_bytes"), raw.size(), 0
    for group in _structs(footer, _GROUPS):
        for chunk in _structs(group, _COLUMNS):
            about = chunk.get(_ABOUT)
            if chunk.get(_ELSEWHERE) or not isinstance(about, dict):
                raise ValueError("a column lies in another file, or is encrypted")
            first = _count(about, _FIRST)
            dictionary = _count(about, _DICTIONARY, 0)
            if dictionary and (dictionary < first or not first):
                first = dictionary
            end = first + _count(about, _PACKED)
            if end > size:
                raise ValueError("a column lies outside of the file")
            while first < end:
                raw.seek(first)
                head, length = decode(raw.read(min(_HEAD_BYTES, end - first)))
                data = head.get(_PAGE_V2 if _PAGE_V2 in head else _PAGE, {})
                if not isinstance(data, dict):
                    raise ValueError("the head of a page is not one")
                encoding = data.get(4 if _PAGE_V2 in head else 2)
                if encoding == _DELTA_BYTE_ARRAY and about.get(_TYPE) in _BYTE_ARRAYS:
                    raise ValueError(
                        "text in the encoding DELTA_BYTE_ARRAY is not read: write it plain or "
                        "with a dictionary"
                    )
                unpacked += _count(head, _UNPACKS_TO)
                if unpacked > most:
                    raise beyond("table_bytes", where, error, unpacked)
                first += length + _count(head, _PAGE_BYTES)


def _structs(fields: Fields, number: int) -> list[Fields]:
    found = fields.get(number, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError("its footer is not one")
    return found


def _count(fields: Fields, number: int, default: int | None = None) -> int:
    value = fields.get(number, default)
    if type(value) is not int or value < 0:
        raise ValueError("a size or place is missing or negative")
    return value


def _columns(table: Any, where: object, error: type[OverheardError]) -> dict[str, Column]:
    import pyarrow as pa

    room = limit("table_bytes")
    found: dict[str, Column] = {}
    for name in table.column_names:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise ValueError(
                f"column {name!r} has a missing value (row {row}); impute it, drop the row, or "
                "leave the column out (`drop` in a config)"
            )
        if pa.types.is_dictionary(column.type):
            found[name] = _texts(column, room, f"{where}: column {name!r}", error)
        elif pa.types.is_fixed_size_list(column.type):
            found[name] = _images(column)
        elif pa.types.is_boolean(column.type) or _is_number(column.type):
            found[name] = column.to_numpy(zero_copy_only=False)
        elif not len(column):
            found[name] = np.zeros(0, dtype="<U1")
        else:
            raise ValueError(
                f"column {name!r} has the type {column.type}; write it as numbers or text, or "
                "leave it out"
            )
        room -= found[name].nbytes
        if room < 0:
            raise beyond("table_bytes", where, error)
    return found


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _texts(column: Any, room: int, where: object, error: type[OverheardError]) -> NDArray[np.str_]:
    """A column of text out of its dictionaries, if there is room: every text is as long as the
    longest in an array."""
    import pyarrow.compute as pc

    longest = 1
    for chunk in column.chunks:
        longest = max(longest, pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0)
    if len(column) * longest * 4 > room:
        raise beyond("table_bytes", where, error, len(column) * longest * 4)
    parts = []
    for chunk in column.chunks:
        values = np.asarray(chunk.dictionary.to_pylist(), dtype=f"<U{longest}")
        parts.append(values[chunk.indices.to_numpy(zero_copy_only=False)])
    whole = np.concatenate(parts) if parts else np.zeros(0, dtype="<U1")
    return whole.astype(str) if longest > 64 else whole


def _images(column: Any) -> Column:
    whole = column.combine_chunks()
    values = whole.flatten()
    if values.null_count:
        raise ValueError("an image has missing numbers")
    return np.array(values).reshape(len(column), column.type.list_size)
