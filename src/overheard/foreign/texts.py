"""Text files of strangers: tables of separated values, packed or not, and plain lines."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from overheard.errors import FixData
from overheard.foreign.archives import DAMAGE, Readable, member_of
from overheard.foreign.files import opened, read_bounded
from overheard.foreign.limits import beyond, check, limit


def read_text(path: Path) -> str:
    """A text file within the limit."""
    try:
        return read_bounded(path, "text_bytes", True, FixData).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FixData(f"{path}: is not a text file (UTF-8): {error.reason}") from error


def read_packed(path: Path, most: int | None = None) -> bytes:
    """What a gzip or bzip2 file unpacks to, within ``most`` bytes (default: the limit of texts)."""
    with opened(path, True, FixData) as (_, size):
        check("archive_bytes", size, path, FixData)
    opener = bz2.open if path.suffix == ".bz2" else gzip.open
    try:
        with opener(path, "rb") as unpacked:
            return within(unpacked, path, most)
    except DAMAGE as error:
        raise FixData(f"{path}: cannot be unpacked: {error}") from error


def read_member(path: Path, name: str, most: int) -> bytes:
    """A text table of at most so many bytes: the file itself, or the member of this name if it is
    an archive."""
    if path.suffix not in (".zip", ".tgz"):
        return read_bounded(path, "text_bytes", True, FixData)
    try:
        with member_of(path, name) as member:
            return within(member, f"{path}: {name}", most)
    except (*DAMAGE, KeyError) as error:
        raise FixData(f"{path}: no {name} can be read from it: {error}") from error


def within(source: Readable, where: object, most: int | None = None) -> bytes:
    """All that can be read from a source, if it is no more than ``most`` bytes."""
    bound = limit("text_bytes") if most is None else most
    pieces, left = [], bound + 1
    while left and (piece := source.read(min(left, 1 << 24))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        if most is None:
            raise beyond("text_bytes", where, FixData)
        raise FixData(f"{where}: unpacks to more than {most} bytes")
    return b"".join(pieces)


@dataclass(frozen=True)
class CsvFormat:
    """How a table of separated values is written. ``kind``: all of one Arrow type; ``texts``:
    columns that are read as text; ``missing``: what stands for no value in any column, instead of
    what Arrow takes for it in a column of numbers."""

    separator: str = ","
    decimal: str = "."
    header: bool = True
    kind: Any = None
    texts: Sequence[str] = ()
    missing: Sequence[str] = ()


USUAL = CsvFormat()


def read_csv(
    source: Path | bytes, where: object, columns: Sequence[str] = (), how: CsvFormat = USUAL
) -> Any:
    """A table of separated values as an Arrow table; ``columns``: these only."""
    import pyarrow as pa
    import pyarrow.csv

    raw = read_bounded(source, "text_bytes", True, FixData) if isinstance(source, Path) else source
    reading = pa.csv.ReadOptions(autogenerate_column_names=not how.header)
    parsing = pa.csv.ParseOptions(delimiter=how.separator)
    try:
        with pa.csv.open_csv(BytesIO(raw), reading, parsing) as first:
            names = first.schema.names
        check("columns", len(names), where, FixData)
        options = pa.csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(names, how.kind)
            if how.kind is not None
            else {name: pa.string() for name in how.texts if name in names},
            decimal_point=how.decimal,
        )
        if how.missing:
            options.null_values, options.strings_can_be_null = list(how.missing), True
        table = pa.csv.read_csv(BytesIO(raw), reading, parsing, options)
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
        words = " ".join(str(error).split())
        raise FixData(
            f"{where}: cannot be read as a table separated by {how.separator!r}: {words[:300]}"
        ) from error
    check("rows", table.num_rows, where, FixData)
    return table
