"""Tables: those of a recording, in safetensors, and the user's own, in Parquet.

In a recording a column is an array, named by its place, its kind and its name: ``0:number:age`` is
the first column. Text is rows of UTF-8 as long as the longest, filled up with zeros. Nothing is
compressed, so that a table takes no more room than its file but for text, which takes four times
its own.

Parquet is read by Arrow. A few bytes of Parquet can stand for a billion rows (run
lengths), for gigabytes of zeros (a compressed page) or for the same long text in every row (a
dictionary). The footer tells of the first two before anything is unpacked, and text is kept in its
dictionaries until there is room for it. A footer that lies about the pages is noticed by Arrow, or
not at all (SECURITY.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from overheard.errors import FixData, FixRecording, OverheardError, needs
from overheard.foreign.files import opened, parse_json
from overheard.foreign.limits import beyond, check

Column = NDArray[Any]
_IMAGES = (np.uint8, np.float32, np.float64)
_WIDE: dict[str, type[Any]] = {"i": np.int64, "u": np.uint64}
_NUMBERS = (np.float64, np.int64, np.uint64, np.bool_)
MAX_WIDTH = 1 << 20  # numbers in an image, bytes in a text
MAX_SIZE = 1 << 30  # numbers in a column of images, bytes in one of text


def pack_columns(columns: Mapping[str, Column]) -> bytes:
    """A table as bytes: numbers and truth values, text, and images: a row of numbers a record."""
    arrays: dict[str, Column] = {}
    for place, (name, values) in enumerate(columns.items()):
        kind, array = _stored(name, values)
        arrays[f"{place}:{kind}:{name}"] = np.ascontiguousarray(array)
    return save(arrays)


def _stored(name: str, values: Column) -> tuple[str, Column]:
    """The kind of a column, and the array that holds it."""
    if values.dtype.kind == "U":
        try:
            raw = np.char.encode(values, "utf-8")
        except UnicodeEncodeError as error:
            raise FixData(f"column {name!r} holds half a pair of surrogates; mend it") from error
        width = max(raw.dtype.itemsize, 1)
        return "text", raw.astype(f"S{width}").view(np.uint8).reshape(len(values), width)
    if values.ndim == 1:
        wide = _WIDE.get(values.dtype.kind, np.float64)
        return "number", values if values.dtype in _NUMBERS else values.astype(wide)
    if values.ndim > 2 or values.dtype not in _IMAGES:
        raise FixData(
            f"column {name!r} has shape {values.shape} of {values.dtype}; an image is a row of "
            "uint8, float32 or float64"
        )
    return "image", values


def unpack_columns(raw: bytes, where: object) -> dict[str, Column]:
    """The inverse, for foreign bytes."""
    try:
        size = int.from_bytes(raw[:8], "little")
        check("json_bytes", size, where)
        if raw[8:9] != b"{":
            raise ValueError("it has no head")
        check("columns", len(parse_json(raw[8 : 8 + size], where)), where)
        arrays = {tuple(key.split(":", 2)): array for key, array in load(raw).items()}
        columns: dict[str, Column] = {}
        taken = 0
        for place, (at, kind, name) in enumerate(sorted(arrays, key=lambda key: int(key[0]))):
            if at != str(place) or name in columns:
                raise ValueError("its columns are not numbered one by one, or a name stands twice")
            values = arrays[at, kind, name]
            check("rows", len(values), where)
            taken += values.nbytes * (4 if kind == "text" else 1)
            check("table_bytes", taken, f"{where}: column {name!r}")
            columns[name] = _column(kind, values)
        if len({len(values) for values in columns.values()}) > 1:
            raise ValueError("its columns differ in length")
        return columns
    except OverheardError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise FixRecording(f"{where}: cannot be read as a table: {words[:300]}") from problem


def _column(kind: str, values: Column) -> Column:
    """The values of an array of this kind, if it is one."""
    if kind == "number" and values.ndim == 1 and values.dtype in _NUMBERS:
        return values
    if values.ndim == 2 and 1 <= values.shape[1] <= MAX_WIDTH and values.size <= MAX_SIZE:
        if kind == "text" and values.dtype == np.uint8:
            texts = np.ascontiguousarray(values).view(f"S{values.shape[1]}").ravel()
            return np.char.decode(texts, "utf-8")
        if kind == "image" and values.dtype in _IMAGES:
            return values
    raise ValueError(f"a column of {kind} cannot be {values.dtype} of shape {values.shape}")


# -------------------------------------------------------------------------- the user's own table

_DELTA = "DELTA_BYTE_ARRAY"  # each text as a beginning of the one before: Arrow has no bound for it


def read_parquet(path: Path, drop: tuple[str, ...] = ()) -> dict[str, Column]:
    """The columns of a table: numbers and truth values as they are, all other values as text.

    ``drop``: columns that are not read. `FixData` says what is wrong with the table.
    """
    with needs("parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    with opened(path, True, FixData) as (_, size):
        check("table_bytes", size, path, FixData)
    try:
        with pq.ParquetFile(path) as file:
            about, schema = file.metadata, file.schema_arrow
        names = [name for name in schema.names if name not in drop]
        _check_footer(about, names, path)
        texts = [one.name for one in schema if one.type in (pa.string(), pa.large_string())]
        with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
            table = file.read(columns=names, use_threads=False)
        return {name: _values(table.column(name), f"column {name!r}", path) for name in names}
    except MemoryError as problem:
        raise beyond("table_bytes", path, FixData) from problem
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise FixData(f"{path}: cannot be read as a Parquet table: {words[:300]}") from problem


def _check_footer(about: Any, names: Sequence[str], path: Path) -> None:
    """Refuse what is beyond the limits by the footer, before anything is unpacked."""
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    check("rows", rows, path, FixData)
    check("columns", about.num_columns, path, FixData)
    unpacked = sum(group.total_byte_size for group in groups)
    check("table_bytes", max(unpacked, 8 * rows * len(names)), path, FixData)
    if not rows:
        raise ValueError("it has no rows")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} stands twice; rename one")
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    if any(c.physical_type == "BYTE_ARRAY" and _DELTA in c.encodings for c in chunks):
        raise ValueError(f"text in the encoding {_DELTA} is not read: write it plain")


def _values(column: Any, name: str, path: Path) -> Column:
    """A column's values; of text, if there is room: every text is as long as the longest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise ValueError(
            f"{name} has a missing value (row {row}); impute it, drop the row, or leave the column "
            "out (`drop` in a config)"
        )
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if not pa.types.is_dictionary(kind):
        raise ValueError(
            f"{name} has the type {kind}; write it as numbers or text, or leave it out"
        )
    lengths = [pc.max(pc.binary_length(chunk.dictionary)).as_py() for chunk in column.chunks]
    needed = 4 * len(column) * max(length or 1 for length in lengths)
    check("table_bytes", needed, f"{path}: {name}", FixData)
    return np.asarray(column.to_pylist(), dtype=str)
