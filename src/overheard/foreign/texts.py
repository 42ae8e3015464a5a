"""Text files of strangers: tables of separated values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from overheard.errors import FixData
from overheard.foreign.limits import check


@dataclass(frozen=True)
class CsvFormat:
    """How a table of separated values is written. ``texts``: columns that are read as text;
    ``missing``: what stands for no value in any column, instead of what Arrow takes for it in a
    column of numbers."""

    separator: str
    decimal: str
    texts: Sequence[str]
    missing: Sequence[str]


def read_csv(raw: bytes, where: object, how: CsvFormat, columns: Sequence[str] = ()) -> Any:
    """A table of separated values as an Arrow table; ``columns``: these only."""
    import pyarrow as pa
    import pyarrow.csv

    parsing = pa.csv.ParseOptions(delimiter=how.separator)
    try:
        with pa.csv.open_csv(BytesIO(raw), parse_options=parsing) as first:
            names = first.schema.names
        check("columns", len(names), where, FixData)
        options = pa.csv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.string() for name in how.texts if name in names},
            decimal_point=how.decimal,
        )
        if how.missing:
            options.null_values, options.strings_can_be_null = list(how.missing), True
        table = pa.csv.read_csv(BytesIO(raw), None, parsing, options)
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
        words = " ".join(str(error).split())
        raise FixData(
            f"{where}: cannot be read as a table separated by {how.separator!r}: {words[:300]}"
        ) from error
    check("rows", table.num_rows, where, FixData)
    return table
