"""A Parquet table of the user's own, read by Arrow: bounded by what its footer says.

A few bytes of Parquet can stand for a billion rows (run lengths), for gigabytes of zeros (a
compressed page) or for the same long text in every row (a dictionary). The footer tells of the
first two before anything is unpacked, and text is kept in its dictionaries until there is room for
it. A footer that lies about the pages is noticed by Arrow, or not at all (SECURITY.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.foreign.files import opened
from overheard.foreign.limits import beyond, check, limit

_DELTA = "DELTA_BYTE_ARRAY"  # each text as a beginning of the one before: Arrow has no bound for it


def read_parquet(path: Path, drop: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """The columns of a table: numbers and truth values as they are, all other values as text.

    ``drop``: columns that are not read. `FixData` says what is wrong with the table.
    """
    import pyarrow as pa

    with opened(path, True, FixData) as (_, size):
        check("table_bytes", size, path, FixData)
    try:
        return _columns(_table(path, drop), path)
    except MemoryError as problem:
        raise beyond("table_bytes", path, FixData) from problem
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise FixData(f"{path}: cannot be read as a Parquet table: {words[:300]}") from problem


def _table(path: Path, drop: tuple[str, ...]) -> Any:
    """The table, text in dictionaries, if its footer is within the limits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        about, schema = file.metadata, file.schema_arrow
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    names = [name for name in schema.names if name not in drop]
    check("rows", rows, path, FixData)
    check("columns", about.num_columns, path, FixData)
    unpacked = sum(group.total_byte_size for group in groups)
    check("table_bytes", max(unpacked, 8 * rows * len(names)), path, FixData)
    if not rows:
        raise ValueError("it has no rows")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {twice!r} stands twice; rename one")
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    if any(c.physical_type == "BYTE_ARRAY" and _DELTA in c.encodings for c in chunks):
        raise ValueError(f"text in the encoding {_DELTA} is not read: write it plain")
    texts = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
        return file.read(columns=names, use_threads=False)


def _columns(table: Any, path: Path) -> dict[str, NDArray[Any]]:
    import pyarrow as pa

    found: dict[str, NDArray[Any]] = {}
    for name in table.column_names:
        column = table.column(name)
        kind = column.type
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise ValueError(
                f"column {name!r} has a missing value (row {row}); impute it, drop the row, or "
                "leave the column out (`drop` in a config)"
            )
        if pa.types.is_dictionary(kind):
            found[name] = _texts(column, f"{path}: column {name!r}")
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            found[name] = column.to_numpy(zero_copy_only=False)
        else:
            raise ValueError(
                f"column {name!r} has the type {kind}; write it as numbers or text, or leave it out"
            )
    return found


def _texts(column: Any, where: str) -> NDArray[np.str_]:
    """A column of text, if there is room: in an array every text is as long as the longest."""
    import pyarrow.compute as pc

    lengths = [pc.max(pc.binary_length(chunk.dictionary)).as_py() for chunk in column.chunks]
    needed = 4 * len(column) * max(length or 1 for length in lengths)
    if needed > limit("table_bytes"):
        raise beyond("table_bytes", where, FixData, needed)
    return np.asarray(column.to_pylist(), dtype=str)
