"""A user's own table: a CSV or Parquet file with the roles of its columns named in the config.

Nothing is guessed that changes the model's inputs: a column that is numbers but for a few cells
(``?``, ``NA``, ``unknown``) is refused until the config says what these mean, and whole numbers
that float64 cannot hold are names of clients or refused. What each column is (an id, a date, free
text, a constant, a category, a number) is read from the cells alone: `overheard check` prints it,
and ids and dates are refused as inputs by the same words.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import MOST_VALUES, Data, Dataset
from overheard.errors import FixConfig, FixData
from overheard.foreign.files import read_bounded
from overheard.foreign.limits import check
from overheard.foreign.shown import short
from overheard.foreign.tables import read_parquet
from overheard.programs.records import Records, as_column

NOBODYS = "__nobody__"
"""The client column of records that are no client's."""
EXACT = 2**53
"""Whole numbers up to here are exact in float64."""
SEPARATORS = ",;\t|"
NO_VALUE = frozenset(["", "#N/A", "N/A", "n/a", "NA", "-NaN", "-nan", "NaN", "nan", "NULL", "null"])
"""What programs write into a column of numbers where there is none."""
TRUTH = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?", re.IGNORECASE)
_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d*\.\d+")
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
)
NOT_INPUTS = ("id", "date", "free text", "constant")
"""Roles of columns that are left out unless somebody says otherwise."""
_CALLED = {
    "client": "client hospital site clinic centre center bank branch node silo institution org "
    "school",
    "target": "target label y outcome cost price score class diagnosis los",
}
"""Words in the names of columns, by what such a column is likely to be."""
Column = NDArray[Any]


@dataclass(frozen=True)
class Role:
    """A column: what it is, how many cells are empty, its values, and those that few have."""

    name: str
    what: str
    gaps: int
    values: int
    rare: tuple[str, ...] = ()

    @property
    def inputs(self) -> int:
        """How many inputs of a model it is."""
        return 0 if self.what in NOT_INPUTS else self.values if self.what == "category" else 1


def load(how: Data, sensitive: tuple[str, ...] = ()) -> Dataset:
    """Read the file; a text target means classification.

    Without a client column the records are nobody's, and the column `NOBODYS` says so.
    """
    path, client, target = how.path, how.client, how.target
    records, origin = read_table(how, wanted=sensitive)
    for name, values in records.without(client, target).columns.items():
        text = values.dtype.kind == "U"
        role = role_of(name, values.tolist(), not text)
        if role.what in ("id", "date") and name not in (*how.keep, *how.categories, *sensitive):
            raise FixData(
                f"{path}: column {name!r} looks like {'an id' if role.what == 'id' else 'a date'}"
                f" ({role.values:,} values in {len(values):,} rows), and would be "
                f"{f'{role.values:,} inputs' if text else 'an input'} of the model. Say in [data] "
                f"drop = [{name!r}] to leave it out, or keep = [{name!r}] if it is meant"
            )
    if not client:
        records = Records({**records.columns, NOBODYS: np.full(len(records), "nobody")})
    text_target = target in records.columns and records[target].dtype.kind == "U"
    task = how.task or ("classification" if text_target else "regression")
    return Dataset(Path(path).stem, records, client or NOBODYS, target, task, sensitive, origin)


def read_table(how: Data, path: str = "", wanted: tuple[str, ...] = ()) -> tuple[Records, str]:
    """The records of a table, text columns being categories, and its origin in words.

    ``path``: of another table that is written like that of the clients' records. ``wanted``:
    columns that must be there.
    """
    file, drop, categories = Path(path or how.path), how.drop, how.categories
    if not file.is_file():
        raise FixData(
            f"{file}: no such file (looked in {file.resolve().parent}); `path` in [data] must name "
            "a CSV or Parquet file, and starts at the folder of the file that it stands in"
        )
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
        found, names, left_out = _read_csv(file, how)
        origin += f" ({left_out} of its rows left out: a value is missing)" if left_out else ""
    for name in (*wanted, *drop, *categories):
        if name not in names:
            raise FixData(f"{file}: no column {name!r}; columns: {', '.join(names)}")
    columns = {}
    for name, values in found.items():
        large = _is_large(values)
        if large and name not in (how.client, *categories):
            raise FixData(
                f"{file}: column {name!r} holds whole numbers beyond 2^53, which no model sees "
                "exactly; name it in `drop`, in `categories` if they are names, or write it in "
                "other units"
            )
        if large or name in categories:
            values = np.asarray([str(value).strip() for value in values.tolist()])
        columns[name] = as_column(values)
        if columns[name].dtype.kind == "U" and name not in (how.client, *categories):
            _refuse_numbers(file, name, columns[name])
    return Records(columns), origin


def roles(file: Path) -> tuple[list[Role], int]:
    """What each column of a table is, and how many rows there are; no cell is refused."""
    if file.suffix == ".parquet":
        found = read_table(Data(source="file", path=str(file)))[0].columns
        of = [role_of(n, v.tolist(), v.dtype.kind != "U") for n, v in found.items()]
        return of, len(next(iter(found.values())))
    names, rows, point = _rows(file)
    columns = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        there = [cell for cell in column if cell.strip() not in NO_VALUE]
        typed = _typed(there, point) if there else np.array([])
        numbers = typed.dtype.kind == "f" or _is_large(typed)
        columns.append(role_of(name, typed.tolist(), numbers, len(column) - len(there)))
    return columns, len(rows)


def _read_csv(file: Path, how: Data) -> tuple[dict[str, Column], list[str], int]:
    """The columns that are used, the names of all, and how many rows were left out."""
    names, rows, point = _rows(file, how.encoding, how.separator)
    cells = {n: c for n, c in zip(names, zip(*rows, strict=True), strict=True) if n not in how.drop}
    whole = np.ones(len(rows), dtype=bool)
    for name, column in cells.items():
        gaps = _gaps(column, point, how.missing)
        if gaps.any() and not how.missing:
            raise FixData(
                f"{file}: column {name!r} has a missing value (row {int(gaps.argmax())}); impute "
                "it, drop the row, name the column in `drop`, or say what stands for no value: "
                'missing = ["", "NA"] in [data], or `overheard init --missing "" --missing NA`; '
                "such rows are left out then"
            )
        whole &= ~gaps
    if not whole.any():
        raise FixData(f"{file}: every row holds a missing value; name the columns in `drop`")
    kept = {name: list(compress(column, whole)) for name, column in cells.items()}
    found = {
        name: np.array(column, dtype=object) if name in how.categories else _typed(column, point)
        for name, column in kept.items()
    }
    return found, names, int((~whole).sum())


def _rows(
    file: Path, encoding: str = "", separator: str = ""
) -> tuple[list[str], list[list[str]], str]:
    """The names of all columns, the rows as they stand, and what decimals are written with."""
    if not file.is_file():
        raise FixData(f"{file}: no such file; give a CSV or Parquet table")
    text = _decoded(file, encoding)
    mark = separator or _separator(text)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row]
        names = rows.pop(0) if rows else []
        odd = next((row for row in rows if len(row) != len(names)), names)
        if len(odd) != len(names):
            raise ValueError(f"expected {len(names)} columns, got {len(odd)}: {mark.join(odd)}")
    except (csv.Error, TypeError, ValueError, MemoryError) as error:
        raise FixData(
            f"{file}: cannot be read as a table separated by {mark!r}: {str(error)[:300]}"
        ) from error
    check("columns", len(names), file, FixData)
    check("rows", len(rows), file, FixData)
    if len(names) < 2 and not separator:
        looked = ", ".join(map(repr, SEPARATORS))
        raise FixData(
            f"{file}: has one column only, {short(names[0] if names else '')}, and none of "
            f"{looked} in its first line; give separator in [data]"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FixData(f"{file}: column {twice!r} stands twice; rename one")
    if not rows:
        raise FixData(f"{file}: there are no records below the header; give a table that has some")
    return names, rows, _decimal(rows[:200], mark)


def _gaps(column: Sequence[str], point: str, missing: Sequence[str]) -> NDArray[np.bool_]:
    """Which cells say that there is no value: ``missing`` in any column; where nothing is given,
    the usual marks, in a column that is otherwise of numbers or truth values."""
    gaps = np.array([cell in (missing or NO_VALUE) for cell in column])
    if missing or not gaps.any():
        return gaps
    rest = _typed([cell for cell in column if cell not in NO_VALUE], point)
    return gaps & (rest.dtype.kind == "f" or _is_large(rest))


def _typed(cells: list[str], point: str) -> Column:
    """Numbers, or truth values as 0 and 1, where all cells are; otherwise text as written. Large
    whole numbers are Python's own."""
    if set(cells) <= TRUTH.keys():
        return np.array([TRUTH[cell] for cell in cells])
    if not any("_" in cell for cell in cells):  # which Python allows in a number
        with suppress(ValueError):
            whole = list(map(int, cells))
            large = max(map(abs, whole)) > EXACT
            return np.array(whole, dtype=object if large else np.float64)
        with suppress(ValueError):
            return np.array([float(cell.replace(point, ".")) for cell in cells])
    return np.array(cells, dtype=object)


def _decoded(file: Path, encoding: str) -> str:
    """The file's text, in whatever it says that it is in."""
    raw = read_bounded(file, "text_bytes", True, FixData)
    if not encoding and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    if not encoding and b"\0" in raw[:4096]:
        raise FixData(f'{file}: is not plain text; is it encoding = "utf-16-le", or no CSV at all?')
    try:
        return raw.decode(encoding or "utf-8").removeprefix("\ufeff")
    except LookupError as error:
        raise FixConfig(f'data.encoding {encoding!r} is not known; try "latin-1"') from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FixData(
            f"{file}: is not {encoding or 'UTF-8'} (byte 0x{raw[error.start]:02x} in line {line}); "
            'give its encoding in [data], as in encoding = "latin-1", or convert it'
        ) from error


def _separator(text: str) -> str:
    """The likeliest of the usual ones, by the first line; a comma where none is there."""
    bare = re.sub(r'"[^"]*"', "", text.lstrip().partition("\n")[0])
    return max(SEPARATORS, key=bare.count)


def _decimal(rows: list[list[str]], separator: str) -> str:
    """A comma where the separator leaves it free and numbers are written with it, and only so."""
    if separator == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    comma, point = (any(map(mark.fullmatch, cells)) for mark in (_COMMA, _POINT))
    return "," if comma and not point else "."


def _is_large(values: Column) -> bool:
    """Whether these are whole numbers of which float64 does not hold every one."""
    whole = values.dtype.kind in "iu" or isinstance(values[0], int)
    return whole and bool(values.max() > EXACT or values.min() < -EXACT)


def _refuse_numbers(file: Path, name: str, texts: Column) -> None:
    """Refuse text that is mostly numbers: each of them would become an input of its own."""
    found, counts = np.unique(texts, return_counts=True)
    number = np.array([bool(_NUMBER.fullmatch(text.strip())) for text in found.tolist()])
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
        f"[data] missing = {str(odd[0])!r} to leave such rows out (`overheard init`: --missing), "
        f"categories = [{name!r}] to have it as text all the same, or drop = [{name!r}]"
    )


def role_of(name: str, cells: Sequence[Any], numbers: bool, gaps: int = 0, few: int = 5) -> Role:
    """The role of a column by its cells that are there; ``few``: who have a value that is rare."""
    counts = Counter(str(cell) for cell in cells)
    rare = sorted(value for value, count in counts.items() if count < few)
    every = len(counts) == len(cells) > MOST_VALUES
    if len(counts) < 2:
        return Role(name, "constant", gaps, len(counts))
    if numbers:
        values = np.asarray(cells, dtype=np.float64)
        running = every and values.max() - values.min() == len(values) - 1
        whole = bool((values == np.round(values)).all())
        return Role(name, "id" if running and whole else "number", gaps, len(counts))
    if all(_DATE.fullmatch(value.strip()) for value in counts):
        return Role(name, "date", gaps, len(counts))
    if every:
        spaced = sum(" " in value.strip() for value in counts)
        return Role(name, "free text" if 2 * spaced > len(counts) else "id", gaps, len(counts))
    if len(counts) > max(MOST_VALUES, len(cells) // 10):
        return Role(name, "free text", gaps, len(counts))
    return Role(name, "category", gaps, len(counts), tuple(rare))


def called(names: Sequence[str], what: str) -> str:
    """The first name that says that it is the client or the target; empty where none does."""
    words = set(_CALLED[what].split())
    split = {name: set(re.split(r"[^a-z]+", name.lower())) for name in names}
    return next((name for name, parts in split.items() if parts & words), "")
