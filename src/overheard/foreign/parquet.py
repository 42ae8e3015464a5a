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

# The containers of thrift's compact protocol, in which the heads of pages are written.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0, 1, 2, 3, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_INTEGERS = (4, 5, 6)
_HEAD_BYTES = 1 << 16  # of a page; a real one has some hundred
_DELTA_BYTE_ARRAY = 7  # each text as a beginning of the one before: a megabyte in every row
_FIXED, _DATA, _DICTIONARY, _DATA_V2 = "FIXED_LEN_BYTE_ARRAY", 5, 7, 8
_BYTE_ARRAYS = ("BYTE_ARRAY", _FIXED)

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
            plain = pq.ParquetFile(raw)
            names = [name for name in plain.schema_arrow.names if name not in drop]
            _check_names(plain.schema_arrow.names)
            texts = [f.name for f in plain.schema_arrow if f.name in names and _is_text(f.type)]
            _check_size(plain, names, where, error, images)
            _check_pages(plain.metadata, raw, where, error)
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
    file: Any,
    names: list[str],
    where: object,
    error: type[OverheardError],
    images: Callable[[Any, int], None] | None,
) -> None:
    """Rows, columns and the room that the numbers take, by what the footer says."""
    import pyarrow as pa

    about = file.metadata
    check("columns", len(file.schema_arrow), where, error)
    rows = sum(about.row_group(i).num_rows for i in range(about.num_row_groups))
    check("rows", max(rows, about.num_rows), where, error)
    room = 0
    for field in file.schema_arrow:
        kind = field.type
        if field.name not in names:
            continue
        if isinstance(kind, pa.BaseExtensionType):
            raise ValueError(f"column {field.name!r} has the type {kind}, which is not allowed")
        if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
            room += rows * 4
        elif pa.types.is_fixed_size_list(kind) and images is not None:
            images(field, rows)
            room += rows * kind.list_size * 8
        elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
            raise ValueError(f"column {field.name!r} has the type {kind}, which is not allowed")
        else:
            room += rows * 8
    check("table_bytes", room, where, error)


def _check_pages(about: Any, raw: Any, where: object, error: type[OverheardError]) -> None:
    """What every page unpacks to, by its own head: the footer may lie."""
    most = limit("table_bytes")
    size = raw.size()
    unpacked = 0
    for group in range(about.num_row_groups):
        columns = about.row_group(group)
        for number in range(columns.num_columns):
            chunk = columns.column(number)
            first = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < first:
                first = chunk.dictionary_page_offset
            end = first + chunk.total_compressed_size
            if not 0 <= first <= end <= size:
                raise ValueError("a column lies outside of the file")
            while first < end:
                raw.seek(first)
                head, length = _struct(raw.read(min(_HEAD_BYTES, end - first)))
                packed, takes = head.get(3), head.get(2)
                if not isinstance(packed, int) or not isinstance(takes, int):
                    raise ValueError("the head of a page says no size")
                if packed < 0 or takes < 0:
                    raise ValueError("a page has a negative size")
                data = head.get(_DATA) or head.get(_DATA_V2) or {}
                encoding = data.get(4 if _DATA_V2 in head else 2)
                if encoding == _DELTA_BYTE_ARRAY and chunk.physical_type in _BYTE_ARRAYS:
                    raise ValueError(
                        "text in the encoding DELTA_BYTE_ARRAY is not read: write it plain or "
                        "with a dictionary"
                    )
                unpacked += takes
                if unpacked > most:
                    raise beyond("table_bytes", where, error, unpacked)
                first += length + packed


def _struct(raw: bytes) -> tuple[dict[int, Any], int]:
    """The fields of a thrift struct, by number, and its length."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number in the head of a page is too long")

    def zigzag() -> int:
        value = varint()
        return (value >> 1) ^ -(value & 1)

    def one(kind: int, depth: int) -> Any:
        nonlocal at
        if depth > 8:
            raise ValueError("the head of a page is nested too deeply")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _INTEGERS:
            return zigzag()
        if kind in (_BYTE, _DOUBLE, _BINARY):
            length = {_BYTE: 1, _DOUBLE: 8}.get(kind) or varint()
            at += length
            return None
        if kind in (_LIST, _SET):
            head = raw[at]
            at += 1
            count = head >> 4 if head >> 4 < 15 else varint()
            for _ in range(min(count, len(raw))):
                if head & 15 in (_TRUE, _FALSE):
                    at += 1
                else:
                    one(head & 15, depth + 1)
            return None
        if kind == _STRUCT:
            return fields(depth + 1)
        raise ValueError(f"the head of a page has a field of the unknown kind {kind}")

    def fields(depth: int) -> dict[int, Any]:
        nonlocal at
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = raw[at]
            at += 1
            if head == _STOP:
                return found
            number = number + (head >> 4) if head >> 4 else zigzag()
            found[number] = one(head & 15, depth)

    found = fields(0)
    return found, at


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
