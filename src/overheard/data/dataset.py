"""A table with a schema: what splits clients, what is predicted, what is sensitive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from overheard.errors import FixData
from overheard.programs.records import Records, Spec, Value

MOST_VALUES = 32
"""Of an attribute under audit, and of several columns that are one."""
USUAL_BINS = 4
OF_FILES = tuple("path client target task drop categories keep missing encoding separator".split())
"""Settings of a table of the user's own."""


class HeldOut(Spec):
    """The ``share`` of its records that every client keeps for tests: as `train_test_split` of
    scikit-learn or of Hugging Face's datasets draws them with ``seed``, those that a frame of
    pandas leaves when it is asked for a `sample` of the others, or its last ones."""

    share: float = Field(gt=0, lt=1)
    """Of a client's records that are kept for tests. Example: `share = 0.2`"""
    by: Literal["scikit-learn", "datasets", "pandas", "order"] = "scikit-learn"
    """Who draws them; by "order" they are the last ones."""
    seed: int = Field(default=42, ge=0, lt=1 << 32)
    """With which they are drawn."""

    def trained(self, records: int) -> NDArray[np.int64]:
        """Which of so many records are trained on, in the order in which they are then."""
        tests = int(np.ceil(self.share * records))
        if self.by == "order":
            return np.arange(records - tests)
        drawn: Any = np.random.default_rng if self.by == "datasets" else np.random.RandomState
        order: NDArray[np.int64] = drawn(self.seed).permutation(records)
        return order[: round((1 - self.share) * records)] if self.by == "pandas" else order[tests:]


def _several(value: Any) -> Any:
    """One text, or a list of them."""
    return (value,) if isinstance(value, str) else value


class Data(Spec):
    """The clients' records: a source by its name, or ``source = "file"``, a table of your own."""

    source: str
    """A source that ``overheard doctor`` lists, or "file". Example: `source = "file"`"""
    path: str = ""
    """Of a file: the table, CSV or Parquet. Example: `path = "people.csv"`"""
    client: str = ""
    """Of a file: the column that says whose record it is. Example: `client = "hospital"`"""
    target: str = ""
    """Of a file: the column that the model predicts. Example: `target = "cost"`"""
    task: Literal["regression", "classification"] | None = None
    """Of a file: what the target is; left out, a class if it is text, else a number."""
    drop: tuple[str, ...] = ()
    """Of a file: columns that are no inputs of the model. Example: `drop = ["id"]`"""
    categories: tuple[str, ...] = ()
    """Of a file: columns read as text even where they look like numbers. Example:
    `categories = ["postcode"]`"""
    keep: tuple[str, ...] = ()
    """Of a file: columns that look like ids or dates and are meant as inputs all the same. Example:
    `keep = ["ward_number"]`"""
    missing: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    """Of CSV: what stands for no value. Rows that hold it are left out, and the report says how
    many. Example: `missing = ["?", "NA"]`"""
    encoding: str = ""
    """Of CSV: the text encoding; left out, UTF-8, or UTF-16 that says so. Example:
    `encoding = "latin-1"`"""
    separator: str = Field(default="", max_length=1)
    """Of CSV: what separates columns; left out, looked for in the first line. Example:
    `separator = ";"`"""
    scale: Literal["records", "recorded", "clients", "none"] = "records"
    """How numbers enter the model: standardised over all clients' records ("recorded": over those
    in the recording), which publishes mean and standard deviation; by "clients" over each client's
    own; by "none" as they are."""
    every: bool = False
    """Scale columns of zeros and ones, and secrets of two numbers, too."""
    text: Literal["one_hot", "codes"] = "one_hot"
    """A text is one input for each value, or by "codes" one input: its place among the sorted
    values (with ``scale = "clients"``, of its client)."""
    held_out: HeldOut | None = None
    """What every client keeps for tests and does not train on. Example: `held_out = { share = 0.2
    }`"""
    options: dict[str, Any] = {}
    """What else a source by name takes. Example: `options = { clients = 20 }`"""


@dataclass(frozen=True)
class Dataset:
    """Records and the roles of their columns; every other column is a public attribute.

    ``outside``: records of the same population, without a client column, that no client holds.
    ``images``: the columns that are images, and their (channels, height, width).
    ``ordinal``: columns of a few numbers that are one input, whose values mean their order and
    distance; other attributes under audit with more than two values are an input a value.
    """

    name: str
    records: Records
    client: str
    target: str
    task: Literal["regression", "classification"]
    sensitive: tuple[str, ...]
    origin: str
    outside: Records | None = None
    images: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    ordinal: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        known = self.records.columns
        for role, column in [("client", self.client), ("target", self.target)]:
            if column not in known:
                raise FixData(f"{role} column {column!r} is not in the data: {', '.join(known)}")
        if self.client == self.target:
            raise FixData(f"{self.name}: {self.client!r} cannot be both client and target")
        if not len(self.records):
            raise FixData(f"{self.name}: there are no records")
        if not self.inputs():
            raise FixData(f"{self.name}: no column is left to predict {self.target!r} from")
        for column, values in known.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise FixData(
                    f"{self.name}: column {column!r} has a missing or infinite value (row {row}); "
                    "impute it or drop the row"
                )

    def inputs(self) -> tuple[str, ...]:
        """The columns that a model sees: all but the client's name and the target."""
        return tuple(c for c in self.records.columns if c not in (self.client, self.target))

    def population(self) -> Dataset:
        """The same with the records outside put among the others, as of the client ""."""
        if self.outside is None:
            return self
        nobodys = Records({**self.outside.columns, self.client: np.full(len(self.outside), "")})
        return replace(self, records=together(self.records, nobodys), outside=None)

    def split(self, held_out: HeldOut) -> tuple[Dataset, Records]:
        """Without what each client held out, its records in the order in which it has them then;
        and what was held out, of all clients together."""
        who = np.unique(self.records[self.client], return_inverse=True)[1]
        each = (np.flatnonzero(who == c) for c in range(who.max() + 1))
        trained = np.concatenate([rows[held_out.trained(len(rows))] for rows in each])
        others = np.setdiff1d(np.arange(len(self.records)), trained)
        tested = self.records.take(others).without(self.client)
        return replace(self, records=self.records.take(trained)), tested

    def by_client(self) -> dict[str, Records]:
        """Each client's records, without the client column, clients in order of their names."""
        names = self.records[self.client]
        rest = self.records.without(self.client)
        found, which = np.unique(names, return_inverse=True)
        order = np.argsort(which, kind="stable")  # one pass, however many clients there are
        rows = np.split(order, np.bincount(which, minlength=len(found)).cumsum()[:-1])
        # a number that is whole is written as one: client 2, not client 2.0
        return {
            str(int(c)) if isinstance(c, float) and c.is_integer() else str(c): rest.take(mine)
            for c, mine in zip(found.tolist(), rows, strict=True)
        }


def together(*tables: Records) -> Records:
    """The rows of several tables, one after the other, with the columns of the first."""
    return Records({n: np.concatenate([table[n] for table in tables]) for n in tables[0].columns})


def bins_of(records: Records, column: str, bins: int | None) -> tuple[float, ...]:
    """Representatives of a numeric column: the means of ``bins`` groups of equal size.

    A record belongs to the nearest. There are fewer where groups have the same mean, because many
    records have one value.
    """
    ordered = np.sort(records[column].astype(np.float64))
    middles = [float(part.mean()) for part in np.array_split(ordered, bins or USUAL_BINS)]
    return tuple(sorted(set(middles)))


def is_binned(records: Records, column: str, bins: int | None) -> bool:
    """Whether a column is cut into bins: numbers, more of them than the ``bins`` asked for.

    None: nobody asked, and numbers of which there are at most `MOST_VALUES` are values as they are.
    """
    values = records[column]
    return values.dtype.kind == "f" and len(np.unique(values)) > (bins or MOST_VALUES)


def domain_of(records: Records, column: str) -> tuple[Value, ...]:
    """The values that a column takes, sorted; too many of them, or one only, are refused."""
    found = tuple(sorted(set(records[column].tolist())))
    if len(found) > MOST_VALUES:
        raise FixData(
            f"column {column!r} takes {len(found)} values; an attribute under audit may take at "
            f"most {MOST_VALUES}; bin it first"
        )
    if len(found) < 2:
        raise FixData(
            f"column {column!r} is constant ({found[0] if found else 'empty'}): there is nothing "
            "to infer; audit another column"
        )
    return found
