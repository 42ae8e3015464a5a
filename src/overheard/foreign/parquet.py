"""Parquet tables from strangers, read by Arrow in a process that may fail.

A few bytes of Parquet can stand for a billion rows (run lengths), for gigabytes of zeros (a
compressed page) or for the same long text in every row (a dictionary), and some end the process
that reads them. So a child reads: it has the table on its stdin, limits on memory and time, and
behind the walls of `jail` no file, no network and no other process. What it answers is a table as
`columns` has it, which is read like any stranger's. Types are those that a table of ours may have.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording, OverheardError
from overheard.foreign.columns import Column, pack_columns, unpack_columns
from overheard.foreign.limits import PREFIX, beyond, check, limit, variable
from overheard.foreign.process import OUT_OF_TIME, run_child

_IMAGE_TYPES = ("uint8", "float", "double")
_COPIES = 3
"""Of a table within the bounds, a child holds what Arrow unpacks, the columns and the answer."""
_ARROW = 1 << 28  # bytes that the libraries themselves take
_REFUSED = 3
_DELTA = "DELTA_BYTE_ARRAY"  # each text as a beginning of the one before: Arrow has no bound for it
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from overheard.foreign.parquet import child; child(*sys.argv[2:])"
)


def read_parquet(
    source: bytes | Path,
    where: object,
    error: type[OverheardError] = FixRecording,
    images: bool = False,
    drop: tuple[str, ...] = (),
) -> dict[str, Column]:
    """The columns of a table: numbers and truth values as float64, all other values as text.

    ``images``: columns of lists of numbers, which are refused without it; ``drop``: columns that
    are not read.
    """
    asked = json.dumps({"images": images, "drop": drop, "parent": os.getpid()})
    words = ["-c", _CHILD, json.dumps(sys.path), str(where), asked]
    kept = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    kept["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve what is then counted as taken
    most = limit("table_bytes") + _ARROW
    code, answer, said = run_child(words, source, limit("table_seconds"), most, kept)
    if code == 0:
        return unpack_columns(answer, where, error)
    if code == _REFUSED:
        raise error(said)
    if code in OUT_OF_TIME:
        raise beyond("table_seconds", where, error)
    raise error(
        f"{where}: cannot be read as a Parquet table: the process that reads it ended "
        f"(status {code}); if the table is large and you trust whoever made it, raise "
        f"{variable('table_bytes')}"
    )


def child(where: str, asked: str) -> None:
    """What the child does: give everything up, then read stdin and answer on stdout."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet

    from overheard.foreign.jail import enter

    how = json.loads(asked)
    most = limit("table_bytes")
    bounds = {
        "RLIMIT_CPU": limit("table_seconds"),
        "RLIMIT_DATA": _COPIES * most + _ARROW,
        "RLIMIT_FSIZE": most + _ARROW,
    }
    enter((), bounds, how["parent"])
    try:
        size = os.fstat(0).st_size
        raw = pa.py_buffer(mmap.mmap(0, size, prot=mmap.PROT_READ)) if size else pa.py_buffer(b"")
        packed = pack_columns(_columns_of(raw, where, how["images"], tuple(how["drop"])))
        sys.stdout.buffer.write(packed)
        sys.stdout.buffer.flush()
    except MemoryError:
        told = str(beyond("table_bytes", where))
    except OverheardError as problem:
        told = str(problem)
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError) as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        told = f"{where}: cannot be read as a Parquet table: {words[:300]}"
    else:
        return
    sys.stderr.write(told)
    sys.stderr.flush()
    os._exit(_REFUSED)


def _columns_of(raw: Any, where: str, images: bool, drop: tuple[str, ...]) -> dict[str, Column]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = pq.read_metadata(pa.BufferReader(raw))
    rows = about.num_rows
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    check("rows", max(rows, sum(group.num_rows for group in groups)), where)
    check("columns", about.num_columns, where)
    check("table_bytes", sum(group.total_byte_size for group in groups), where)
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    if any(c.physical_type == "BYTE_ARRAY" and _DELTA in c.encodings for c in chunks):
        raise ValueError(f"text in the encoding {_DELTA} is not read: write it plain")
    schema = pq.ParquetFile(pa.BufferReader(raw), metadata=about).schema_arrow
    names = [name for name in schema.names if name not in drop]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column {twice!r} stands twice; rename one")
    check("table_bytes", 8 * rows * len(names), where)
    texts = [
        f.name for f in schema if f.name in names and f.type in (pa.string(), pa.large_string())
    ]
    file = pq.ParquetFile(
        pa.BufferReader(raw), metadata=about, read_dictionary=texts, pre_buffer=False
    )
    return _converted(file.read(columns=names, use_threads=False), where, images)


def _converted(table: Any, where: str, images: bool) -> dict[str, Column]:
    import pyarrow as pa

    room = limit("table_bytes")
    found: dict[str, Column] = {}
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
            found[name] = _texts(column, room, f"{where}: column {name!r}")
        elif pa.types.is_fixed_size_list(kind) and images:
            found[name] = _images(name, column)
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            found[name] = column.to_numpy(zero_copy_only=False)
        elif not len(column):
            found[name] = np.zeros(0, dtype="<U1")
        else:
            raise ValueError(
                f"column {name!r} has the type {kind}; write it as numbers or text, or leave it out"
            )
        room -= found[name].nbytes
        if room < 0:
            raise beyond("table_bytes", where)
    return found


def _texts(column: Any, room: int, where: str) -> NDArray[np.str_]:
    """A column of text out of its dictionaries, if there is room: every text is as long as the
    longest in an array."""
    import pyarrow.compute as pc

    longest = 1
    for chunk in column.chunks:
        longest = max(longest, pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0)
    if len(column) * longest * 4 > room:
        raise beyond("table_bytes", where, found=len(column) * longest * 4)
    parts = []
    for chunk in column.chunks:
        values = np.asarray(chunk.dictionary.to_pylist(), dtype=f"<U{longest}")
        parts.append(values[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts) if parts else np.zeros(0, dtype="<U1")


def _images(name: str, column: Any) -> Column:
    values = column.combine_chunks().flatten()
    if values.null_count or str(values.type) not in _IMAGE_TYPES:
        raise ValueError(f"column {name!r} has the type {column.type}, or misses numbers")
    return np.array(values).reshape(len(column), column.type.list_size)
