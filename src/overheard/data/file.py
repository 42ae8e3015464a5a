"""A user's own table: a CSV or Parquet file with the roles of its columns named in the config.

Nothing is guessed that changes the model's inputs: a column that is numbers but for a few cells
(``?``, ``NA``, ``unknown``) is refused until the config says what these mean, and whole numbers
that float64 cannot hold are names of clients or refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig, FixData
from overheard.foreign.files import read_bounded
from overheard.foreign.shown import short
from overheard.foreign.tables import CsvFormat, read_csv, read_parquet
from overheard.programs.records import Records, as_column

NOBODYS = "__nobody__"
"""The client column of records that are no client's."""
EXACT = 2**53
"""Whole numbers up to here are exact in float64."""
SEPARATORS = ",;\t|"
_WHOLE = re.compile(r"[+-]?\d{16,}")
_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d*\.\d+")
Column = NDArray[Any]


def load(
    path: str,
    client: str,
    target: str,
    sensitive: tuple[str, ...] = (),
    task: Literal["regression", "classification"] | None = None,
    **reading: Any,
) -> Dataset:
    """Read the file, as `Reading` says; a text target means classification.

    Without a ``client`` column the records are nobody's, and the column `NOBODYS` says so.
    """
    records, origin = read_table(path, Reading(**reading), client, sensitive)
    if not client:
        records = Records({**records.columns, NOBODYS: np.full(len(records), "nobody")})
    text_target = target in records.columns and records[target].dtype.kind == "U"
    return Dataset(
        name=Path(path).stem,
        records=records,
        client=client or NOBODYS,
        target=target,
        task=task or ("classification" if text_target else "regression"),
        sensitive=tuple(sensitive),
        origin=origin,
        licence="the user's own",
    )


@dataclass(frozen=True)
class Reading:
    """How a table is read. ``drop``: columns that are left out; ``categories``: columns that are
    text even where they look like numbers. Of CSV: rows in which one of ``missing`` stands in a
    column that is not dropped are left out.
    """

    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    encoding: str = ""
    separator: str = ""


def read_table(
    path: str, how: Reading, client: str = "", wanted: tuple[str, ...] = ()
) -> tuple[Records, str]:
    """The records of a table, text columns being categories, and its origin in words.

    ``wanted``: columns that must be there.
    """
    file, drop, categories = Path(path), how.drop, how.categories
    if not file.is_file():
        raise FixData(f"{file}: no such file; `path` in [data] must name a CSV or Parquet file")
    origin = file.name
    if file.suffix == ".parquet":
        if how.missing or how.encoding or how.separator:
            raise FixConfig(
                f"{file}: missing, encoding and separator are about CSV; a Parquet file has types "
                "of its own: write numbers as numbers and leave rows with gaps out"
            )
        found = read_parquet(file, drop)
        names = [*found, *drop]
    else:
        table, left_out = _read(file, how)
        names = table.column_names
        found = {
            name: table.column(name).to_numpy(zero_copy_only=False)
            for name in names
            if name not in drop
        }
        origin += f" ({left_out} of its rows left out: a value is missing)" if left_out else ""
    for name in (*wanted, *drop, *categories):
        if name not in names:
            raise FixData(f"{file}: no column {name!r}; columns: {', '.join(names)}")
    columns = {}
    for name, values in found.items():
        if name in categories:
            columns[name] = _as_text(values)
        elif _is_large(values):
            if name != client:
                raise FixData(
                    f"{file}: column {name!r} holds whole numbers beyond 2^53, which no model sees "
                    "exactly; name it in `drop`, in `categories` if they are names, or write it in "
                    "other units"
                )
            columns[name] = _as_text(values)
        else:
            columns[name] = as_column(values)
        if columns[name].dtype.kind == "U" and name not in (client, *categories):
            _refuse_numbers(file, name, columns[name])
    return Records(columns), origin


def _read(file: Path, how: Reading) -> tuple[Any, int]:
    """The table, and how many rows were left out of it."""
    raw = _utf8(file, how.encoding)
    mark = how.separator or _separator(raw)
    written = CsvFormat(mark, _decimal(raw, mark), how.categories, how.missing)
    table = read_csv(raw, file, written)
    names = table.column_names
    if len(names) == 1 and not how.separator:
        looked = ", ".join(map(repr, SEPARATORS))
        raise FixData(
            f"{file}: has one column only, {short(names[0])}, and none of {looked} in its first "
            "line; give separator in [data]"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FixData(f"{file}: column {twice!r} stands twice; rename one")
    used = [name for name in names if name not in how.drop]
    suspects = [name for name in used if _rounded(table.column(name))]
    if suspects:
        exact = read_csv(raw, file, replace(written, texts=suspects), suspects)
        for name in suspects:
            cells = exact.column(name)
            if any(cell and _WHOLE.fullmatch(cell.strip()) for cell in cells.to_pylist()):
                table = table.set_column(names.index(name), name, cells)
    return _without_gaps(file, table, used, bool(how.missing))


def _without_gaps(file: Path, table: Any, used: Sequence[str], told: bool) -> tuple[Any, int]:
    """The table with every value of these columns, and how many rows that costs, if ``told``."""
    whole = np.ones(table.num_rows, dtype=bool)
    for name in used:
        if not table.column(name).null_count:
            continue
        gaps = table.column(name).is_null().to_numpy()
        if not told:
            raise FixData(
                f"{file}: column {name!r} has a missing value (row {int(gaps.argmax())}); impute "
                "it, drop the row, name the column in `drop`, or say in [data] what stands for no "
                'value, as in missing = ["", "NA"]: such rows are left out then'
            )
        whole &= ~gaps
    if not table.num_rows:
        raise FixData(f"{file}: there are no records below the header; give a table that has some")
    if not whole.any():
        raise FixData(f"{file}: every row holds a missing value; name the columns in `drop`")
    left_out = int((~whole).sum())
    return (table.filter(whole) if left_out else table), left_out


def _utf8(file: Path, encoding: str) -> bytes:
    """The file's text in UTF-8, from whatever it says that it is in."""
    raw = read_bounded(file, "text_bytes", True, FixData)
    if not encoding and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    if not encoding and b"\0" in raw[:4096]:
        raise FixData(f'{file}: is not plain text; is it encoding = "utf-16-le", or no CSV at all?')
    try:
        text = raw.decode(encoding or "utf-8")
    except LookupError as error:
        raise FixConfig(f'data.encoding {encoding!r} is not known; try "latin-1"') from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FixData(
            f"{file}: is not {encoding or 'UTF-8'} (byte 0x{raw[error.start]:02x} in line {line}); "
            'give its encoding in [data], as in encoding = "latin-1", or convert it'
        ) from error
    return text.encode() if encoding else raw


def _separator(raw: bytes) -> str:
    """The likeliest of the usual ones, by the first line; a comma where none is there."""
    line = raw.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0].decode()
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count)


def _decimal(raw: bytes, separator: str) -> str:
    """A comma where the separator leaves it free and numbers are written with it, and only so."""
    if separator == ",":
        return "."
    lines = raw[: 1 << 20].decode("utf-8", "ignore").splitlines()[1:200]
    cells = [cell.strip(' "') for line in lines for cell in line.split(separator)]
    comma, point = (any(map(mark.fullmatch, cells)) for mark in (_COMMA, _POINT))
    return "," if comma and not point else "."


def _rounded(column: Any) -> bool:
    """Whether numbers as large as that may have been written as whole ones and rounded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return False
    largest = pc.max(pc.abs(column)).as_py()
    return largest is not None and largest >= EXACT


def _is_large(values: Column) -> bool:
    """Whether these are whole numbers of which float64 does not hold every one."""
    if values.dtype.kind in "iu":
        return bool(len(values)) and bool(values.max() > EXACT or values.min() < -EXACT)
    if values.dtype.kind != "O":
        return False
    cells = values.tolist()
    return all(map(_is_number, cells)) and any(_WHOLE.fullmatch(str(v).strip()) for v in cells)


def _as_text(values: Column) -> Column:
    """As written, a whole number without a point."""
    return np.asarray([str(v).strip() for v in values.tolist()], dtype=str)


def _refuse_numbers(file: Path, name: str, texts: Column) -> None:
    """Refuse text that is mostly numbers: each of them would become an input of its own."""
    found, counts = np.unique(texts, return_counts=True)
    number = np.array([_is_number(text.replace(",", ".")) for text in found.tolist()])
    rows = int(counts[number].sum())
    if 2 * rows <= len(texts):
        return
    if number.all():
        raise FixData(
            f"{file}: column {name!r} holds numbers as text, such as {short(str(found[0]))}; write "
            "them with a point, without quotes (in Parquet: as numbers), or name the column in "
            "`categories`"
        )
    odd = found[~number][np.argsort(-counts[~number], kind="stable")]
    first = int(np.isin(texts, odd).argmax())
    shown = ", ".join(short(str(text)) for text in odd[:3]) + (", ..." if len(odd) > 3 else "")
    raise FixData(
        f"{file}: column {name!r} is a number in {rows:,} of {len(texts):,} rows and {shown} in "
        f"the others (first: row {first}); as text it would be {len(found):,} inputs. Say in "
        f"[data] missing = {str(odd[0])!r} to leave such rows out, categories = [{name!r}] to have "
        f"it as text all the same, or drop = [{name!r}]"
    )


def _is_number(text: Any) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except (TypeError, ValueError):
        return False
