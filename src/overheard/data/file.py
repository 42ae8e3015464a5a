"""A user's own table: a CSV or Parquet file with the roles of its columns named in the config."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from overheard.data.dataset import Dataset
from overheard.errors import FixData
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
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    file = Path(path)
    if not file.is_file():
        raise FixData(f"{file}: no such file; `path` in [data] must name a CSV or Parquet file")
    try:
        reader = pa.parquet.read_table if file.suffix == ".parquet" else pa.csv.read_csv
        table = reader(file)
    except (pa.ArrowException, OSError) as error:
        raise FixData(f"{file}: cannot be read: {error}") from error
    columns = {
        name: as_column(table.column(name).to_numpy(zero_copy_only=False))
        for name in table.column_names
        if name not in drop
    }
    records = Records(columns)
    for name in (*sensitive, *drop):
        if name not in table.column_names:
            raise FixData(f"{file}: no column {name!r}; columns: {', '.join(table.column_names)}")
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
