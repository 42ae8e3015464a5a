"""A user's own table: a CSV or Parquet file with the roles of its columns named in the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from overheard.data.dataset import Dataset
from overheard.errors import FixData
from overheard.foreign.files import opened
from overheard.foreign.limits import check
from overheard.foreign.parquet import read_parquet
from overheard.foreign.texts import read_csv
from overheard.learning.records import Records, as_column

WHAT = "your own CSV or Parquet file: path, client and target in [data]"
LICENCE = "your own"
ORIGIN = "your own"
NOTE = ""
BUNDLED = "wherever `path` says"


def load(
    path: str,
    client: str,
    target: str,
    sensitive: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    task: Literal["regression", "classification"] | None = None,
) -> Dataset:
    """Read the file; text columns become categories, a text target means classification."""
    file = Path(path)
    if not file.is_file():
        raise FixData(f"{file}: no such file; `path` in [data] must name a CSV or Parquet file")
    if file.suffix == ".parquet":
        with opened(file, True, FixData) as (_, size):
            check("table_bytes", size, file, FixData)
        found = read_parquet(file, file, FixData, drop=drop)
        names = [*found, *drop]
    else:
        table = read_csv(file, file)
        names = table.column_names
        _check_table(file, table, drop)
        found = {
            name: table.column(name).to_numpy(zero_copy_only=False)
            for name in names
            if name not in drop
        }
    for name in (*sensitive, *drop):
        if name not in names:
            raise FixData(f"{file}: no column {name!r}; columns: {', '.join(names)}")
    columns = {name: as_column(values) for name, values in found.items()}
    records = Records(columns)
    text_target = target in columns and columns[target].dtype.kind == "U"
    return Dataset(
        name=file.stem,
        records=records,
        client=client,
        target=target,
        task=task or ("classification" if text_target else "regression"),
        sensitive=tuple(sensitive),
        origin=file.name,
        licence="the user's own",
    )


def _check_table(file: Path, table: Any, drop: tuple[str, ...]) -> None:
    """Every column once and, unless it is dropped, without a gap."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FixData(f"{file}: column {twice!r} stands twice; rename one")
    for name in names:
        if name not in drop and table.column(name).null_count:
            row = table.column(name).is_null().to_pylist().index(True)
            raise FixData(
                f"{file}: column {name!r} has a missing value (row {row}); impute it, drop the "
                "row, or name the column in `drop`"
            )
