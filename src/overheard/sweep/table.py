"""All finished cells of a sweep as one table: a row for every cell, attack and question.

Measured seconds stay in the cells' own files, so the same sweep gives the same table, bit for bit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.files import replace_durably
from overheard.foreign.files import read_json
from overheard.sweep.grid import SweepConfig, cells, parse_sweep
from overheard.sweep.run import read_result

Row = dict[str, Any]


def read_rows(folder: str | Path) -> list[Row]:
    """The table's rows, in the order of the sweep; cells that failed have an ``error``."""
    root = Path(folder)
    config = read_described(root)
    found: list[Row] = []
    for cell in cells(config):
        path = root / "cells" / f"{cell.key}.json"
        if not path.exists():
            continue
        result = read_result(path)
        shared: Row = {
            "cell": cell.key,
            "defence": cell.defence,
            "strength": cell.strength,
            "seed": cell.seed,
            **{key: _plain(value) for key, value in cell.varied.items()},
            "utility": result.get("utility"),
            "utility_is": result.get("utility_is"),
            "error": result.get("error"),
            "version": result.get("version"),
        }
        found += [shared | finding for finding in result.get("findings", [{}])] or [shared]
    if not found:
        raise FixConfig(f"{root}: no cell is finished yet; run `overheard sweep` first")
    return found


def write_table(folder: str | Path) -> Path:
    """``results.parquet`` from the finished cells; an older one is replaced as a whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = Path(folder)
    rows = read_rows(root)
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    path, buffer = root / "results.parquet", io.BytesIO()
    pq.write_table(table, buffer)
    try:
        replace_durably(path, buffer.getvalue())
    except OSError as error:
        raise ChooseAnotherOutput(
            f"{path}: cannot be written ({error.strerror or error}); the cells are kept: make room "
            "and give the same command again"
        ) from error
    return path


def read_described(root: Path) -> SweepConfig:
    path = root / "sweep.json"
    try:
        content = read_json(path)
    except FixRecording as error:
        raise FixConfig(f"{error}; is {root} the folder of a sweep?") from error
    if not isinstance(content, Mapping):
        raise FixConfig(f"{path}: does not describe a sweep")
    return parse_sweep(dict(content), str(path))


def _plain(value: Any) -> Any:
    """Values that a column can hold; lists and tables as JSON."""
    return value if isinstance(value, str | int | float | bool) else json.dumps(value)
