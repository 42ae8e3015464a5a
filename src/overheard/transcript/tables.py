"""Tables of records in a recording: one file for all clients, as `foreign.columns` writes them.

A text column says whose a row is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.foreign.columns import pack_columns, unpack_columns
from overheard.programs.records import Records, as_column
from overheard.transcript.messages import check_client

_CLIENT_COLUMN = "__client__"


def write_tables(tables: Mapping[str, Records]) -> bytes:
    """One table for all clients, one after the other."""
    first: list[str] | None = None
    for client, records in tables.items():
        kinds = [f"{name} ({_kind(values)})" for name, values in records.columns.items()]
        first = kinds if first is None else first
        if kinds != first:
            raise FixData(
                f"client {client!r} has columns {', '.join(kinds)} where the first client has "
                f"{', '.join(first)}; give all clients the same columns"
            )
    sizes = [len(records) for records in tables.values()]
    names = np.repeat(np.array([check_client(client) for client in tables], dtype=str), sizes)
    columns = {_CLIENT_COLUMN: names}
    for name in next(iter(tables.values())).columns if len(names) else ():
        columns[name] = np.concatenate([_plain(records[name]) for records in tables.values()])
    return pack_columns(columns)


def _plain(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    return array if array.ndim > 1 else as_column(array)


def _kind(values: Any) -> str:
    plain = _plain(values)
    size = f" x {plain.shape[1]}" if plain.ndim > 1 else ""
    return "text" if plain.dtype.kind == "U" else f"{plain.dtype}{size}"


def read_tables(raw: bytes, where: object = "table") -> dict[str, Records]:
    """The inverse of `write_tables`; ``where`` names the table in errors."""
    found = unpack_columns(raw, where)
    names = found.pop(_CLIENT_COLUMN, None)
    if names is None or names.dtype.kind != "U":
        raise FixRecording(
            f"{where}: cannot be read as a table of clients: it has no text column "
            f"{_CLIENT_COLUMN!r}"
        )
    columns = {
        name: values if values.ndim > 1 else as_column(values) for name, values in found.items()
    }
    clients, first, which = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.bincount(which, minlength=len(clients)).cumsum())[:-1]
    for client in clients.tolist():
        check_client(client, where)
    rows = dict(zip(clients.tolist(), parts, strict=True))
    whole = Records(columns)
    # copies, not slices: nobody who holds one client's rows can reach the others' through them
    return {client: whole.take(rows[client]) for client in clients[np.argsort(first)].tolist()}
