"""Tables of records in a recording: one Parquet file for all clients.

Numbers and text are plain columns. A column of images is a fixed-size list, which keeps its own
precision (bytes stay bytes).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.foreign.parquet import read_parquet
from overheard.learning.records import Records, as_column
from overheard.transcript.messages import check_client, known_client

_CLIENT_COLUMN = "__client__"
_IMAGE_TYPES = ("uint8", "float", "double")
BYTES_TOGETHER = 1 << 18
MAX_IMAGE_NUMBERS = 1 << 20  # in one image
MAX_TABLE_NUMBERS = 1 << 30  # in one column of images


def write_tables(tables: Mapping[str, Records]) -> bytes:
    """One Parquet table for all clients; a row group holds one client, or several small ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    writer = None
    for group in _groups(tables):
        names = [name for name, records in group.items() for _ in range(len(records))]
        first = next(iter(group.values()))
        columns = {
            _CLIENT_COLUMN: pa.array(names, pa.string()),
            **{c: _as_arrow(c, _together(c, group)) for c in first.columns},
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(out, table.schema)
        if table.schema != writer.schema:
            raise _unlike(next(iter(group)), _fields(table.schema), _fields(writer.schema))
        if len(table):
            writer.write_table(table)
    if writer is not None:
        writer.close()
    return out.getvalue()


def _groups(tables: Mapping[str, Records]) -> Iterator[dict[str, Records]]:
    """The clients in order, small ones of the same columns together: each group costs time."""
    group: dict[str, Records] = {}
    size, like = 0, None
    for client, records in tables.items():
        columns = {name: np.asarray(values) for name, values in records.columns.items()}
        kinds = [(name, _kind(values), values.shape[1:]) for name, values in columns.items()]
        more = sum(values.nbytes for values in columns.values())
        if group and (kinds != like or size + more > BYTES_TOGETHER):
            yield group
            group, size = {}, 0
        group[check_client(client)] = records
        size, like = size + more, kinds
    if group:
        yield group


def _kind(values: NDArray[Any]) -> str:
    return "text" if values.dtype.kind == "U" else str(values.dtype)


def _together(name: str, group: Mapping[str, Records]) -> Any:
    parts = [records.columns[name] for records in group.values()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _unlike(client: str, has: str, expected: str) -> FixData:
    return FixData(
        f"client {client!r} has columns {has} where the first client has {expected}; give all "
        "clients the same columns"
    )


def read_tables(raw: bytes, where: object = "table") -> dict[str, Records]:
    """The inverse of `write_tables`; ``where`` names the table in errors."""
    found = read_parquet(raw, where, images=_check_image)
    if _CLIENT_COLUMN not in found:
        raise FixRecording(
            f"{where}: cannot be read as a Parquet table of clients: it has no column "
            f"{_CLIENT_COLUMN!r}"
        )
    names = found.pop(_CLIENT_COLUMN).astype(str)
    columns = {
        name: values if values.ndim > 1 else as_column(values) for name, values in found.items()
    }
    clients, first, which = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.bincount(which, minlength=len(clients)).cumsum())[:-1]
    for client in clients.tolist():
        known_client(client, where)
    rows = dict(zip(clients.tolist(), parts, strict=True))
    whole = Records(columns)
    # copies, not slices: nobody who holds one client's rows can reach the others' through them
    return {client: whole.take(rows[client]) for client in clients[np.argsort(first)].tolist()}


def _fields(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def _as_arrow(name: str, values: Any) -> Any:
    import pyarrow as pa

    if not (isinstance(values, np.ndarray) and values.ndim > 1):
        return pa.array(values)
    if values.ndim > 2 or values.dtype not in (np.uint8, np.float32, np.float64):
        raise FixData(
            f"column {name!r} has shape {values.shape} of {values.dtype}; an image is a row of "
            "uint8, float32 or float64"
        )
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _check_image(field: Any, rows: int) -> None:
    """Refuse a list column that is not images, or more than anybody means to read."""
    if str(field.type.value_type) not in _IMAGE_TYPES:
        raise ValueError(f"column {field.name!r} has the type {field.type}, which is not allowed")
    width = field.type.list_size
    if not 1 <= width <= MAX_IMAGE_NUMBERS or width * rows > MAX_TABLE_NUMBERS:
        raise ValueError(f"column {field.name!r} has {rows} images of {width} numbers: too many")
