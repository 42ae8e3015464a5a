"""What do released tables tell? Counts by cell, sums, means, variances.

No model is trained: each client answers with tables of its records. Every number is a sum over
records of what a record adds to its cell, so it is linear in which candidate each record is. A mean
is one too: over the records of its cell, what they are above it adds up to zero; so is a variance.
Counts are integers, of which an interval is known: of width 0 where the count itself was released,
wider where small cells are suppressed or counts rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from overheard.decoding.subset_sums import SubsetSums, joined, sums_over_cells
from overheard.errors import FixConfig, FixRecording
from overheard.foreign.shown import short
from overheard.programs.program import (
    Candidates,
    Exchange,
    Message,
    Program,
    SummedSettings,
    distance,
    expected,
    room,
)
from overheard.programs.records import Records, Spec, Value

Array = NDArray[np.float64]
MOST_VALUES = 64
"""Of a column that tables are made by; numbers with more are cut by ``bins``."""
MOST_CELLS = 20_000
SUPPRESSED = -1
"""Stands for a count that is too small to be released."""


class Table(Spec):
    """One table."""

    kind: Literal["count", "sum", "mean", "variance"] = "count"
    """Records in each cell, or of the column ``of`` their sum, mean or variance (with its mean;
    divided by the records less one)."""
    by: tuple[str, ...] = Field(default=(), max_length=4)
    """Up to four columns whose values make the cells; none: everybody together. Example: `by =
    ["sex", "region"]`"""
    of: str = ""
    """The column of sums, means and variances. Example: `of = "cost"`"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.whole == bool(self.of):
            raise ValueError(f"kind {self.kind!r}: `of` is for sums, means and variances")
        if len(set(self.by)) < len(self.by):
            raise ValueError("no column may stand twice in `by`")
        return self

    @property
    def whole(self) -> bool:
        """Whether it holds counts."""
        return self.kind == "count"


class StatisticsSettings(SummedSettings):
    """Tables that every client releases about its records.

    The arrays of table k are "k.counts" or "k.numbers", and "k.shown"; of recorded messages a
    table may be in some rounds only, and everything in it is shown unless it says otherwise.
    """

    name: Literal["statistics"] = "statistics"
    tables: tuple[Table, ...] = Field(min_length=1, max_length=100)
    """The tables. Example: `tables = [{ by = ["sex"] }]`"""
    bins: dict[str, tuple[float, ...]] = {}
    """Where numbers are cut that tables are made by (a histogram is a count by such a column).
    Example: `bins = { age = [30, 60] }`"""
    suppress: int = Field(default=0, ge=0, le=1000)
    """Counts from 1 to below it are not released, nor sums and means of so few."""
    zeros: bool = True
    """Counts of 0 are released all the same."""
    round_to: int = Field(default=1, ge=1, le=1000)
    """Counts are rounded to multiples of it."""
    decimals: int | None = Field(default=None, ge=0, le=15)
    """Places to which other numbers are rounded; left out: as they are. Example: `decimals = 2`"""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.noise and (not self.sums or self.suppress or self.round_to > 1):
            raise ValueError("noise is on plain sums: leave means, variances and the others out")
        if 0 < self.suppress <= (self.round_to - 1) // 2 or not (self.zeros or self.suppress):
            raise ValueError(
                f"suppress = {self.suppress} hides nothing that round_to = {self.round_to} shows; "
                "give a larger one, or leave it out"
            )
        for column, edges in self.bins.items():
            if list(edges) != sorted(set(edges)) or not edges:
                raise ValueError(f"bins of {column!r} must increase, at least one")
        return self

    def learned(self, records: Records) -> dict[str, Any]:
        domains: dict[str, tuple[Value, ...]] = {}
        by = {column for table in self.tables for column in table.by}
        numbers = {table.of for table in self.tables} - {""} | set(self.bins)
        for column in sorted(by | numbers):
            if column not in records.columns:
                known = ", ".join(records.columns)
                raise FixConfig(f"model 'statistics': no column {column!r}; there are {known}")
            if column in numbers and records[column].dtype.kind not in "biuf":
                raise FixConfig(f"model 'statistics': {column!r} holds text, not numbers")
        for column in by - set(self.bins):
            domains[column] = tuple(sorted(set(records[column].tolist())))
            if len(domains[column]) > MOST_VALUES:
                raise FixConfig(
                    f"model 'statistics': {column!r} has {len(domains[column])} values, more than "
                    f"{MOST_VALUES}; say in [model.bins] where to cut it"
                )
        return {"domains": domains}

    @property
    def sums(self) -> bool:
        """Whether every table is plain sums over records."""
        return not {table.kind for table in self.tables} & {"mean", "variance"}


class Statistics(Program):
    """Tables of a client's records; ``domains`` has the values of the columns they are made by."""

    settings: StatisticsSettings
    domains: dict[str, tuple[Value, ...]] = {}

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.settings.noise > 0

    @model_validator(mode="after")
    def _known(self) -> Self:
        for table in self.settings.tables:
            cells = 1
            for column in table.by:
                if column not in self.settings.bins and column not in self.domains:
                    raise ValueError(f"tables are made by {column!r}, whose values are not given")
                cells *= self._values(column)
            if cells > MOST_CELLS:
                raise ValueError(f"a table of {cells:,} cells; at most {MOST_CELLS:,} are allowed")
        return self

    def _values(self, column: str) -> int:
        bins = self.settings.bins
        return len(bins[column]) + 1 if column in bins else len(self.domains[column])

    def columns(self) -> tuple[str, ...]:
        named = [column for table in self.settings.tables for column in (*table.by, table.of)]
        return tuple(dict.fromkeys(column for column in named if column))

    def profile(self, records: Records) -> list[NDArray[Any]]:
        tables = self.settings.tables
        cells = [self._cells(table, records) for table in tables]
        return [*cells, *(_value(table, records) for table in tables)]

    def first(self) -> Message:
        return {"release": np.array(0)}

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        answer: dict[str, NDArray[Any]] = {}
        for place, table in enumerate(self.settings.tables):
            cell, powers = self._cells(table, records), self._powers(table, records)
            total = np.array([np.bincount(cell, power, self._count(table)) for power in powers])
            if self.settings.noise:
                noise = rng.normal(0.0, self.settings.noise_sd, total.shape[1])
                made = {"numbers": self._rounded(total[-1] + noise)}
            else:
                made = self._released(table, total)
            answer |= {f"{place}.{name}": array for name, array in made.items()}
        return answer

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        return {"release": np.asarray(sent["release"]) + 1}

    def assembled(self, observed: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """With an axis where a table is one number."""
        return tuple(
            replace(one, returned={name: np.atleast_1d(a) for name, a in one.returned.items()})
            for one in super().assembled(observed)
        )

    def summed(self, clients: int) -> Program:
        asked = self.settings
        coarse = asked.suppress or asked.round_to > 1 or asked.decimals is not None
        if not asked.sums or coarse:
            raise FixConfig(
                "model 'statistics': sums of several clients are made of counts and sums as they "
                "are: leave means, variances, suppression and rounding out"
            )
        return self.model_copy(update={"settings": asked.of_sum(clients)})

    def distance(self, returned: Message, repeated: Message) -> float:
        """Of the tables that were released."""
        same = {name: array for name, array in returned.items() if name in repeated}
        return distance(same, {n: repeated[n] for n in same}) if same else float("inf")

    def equations(self, observed: Sequence[Exchange], candidates: Candidates) -> SubsetSums:
        """Of every table of every release; which of them a round holds may differ."""
        made = {table: self._terms(table, candidates) for table in self.settings.tables}
        result = [
            self._equations(one, place, table, *made[table])
            for one in observed
            for place, table in enumerate(self.settings.tables)
            if not {f"{place}.counts", f"{place}.numbers"}.isdisjoint(one.returned)
        ]
        if not result:
            have = sorted({name for one in observed for name in one.returned})
            raise FixRecording(
                f"no table of the program is among the arrays {short(have)}; it comes from another "
                "program, or the description (its sent_names?) is wrong"
            )
        return joined(result)

    def _cells(self, table: Table, records: Records) -> NDArray[np.int64]:
        """The cell that each record falls into."""
        cell = np.zeros(len(records), dtype=np.int64)
        for column in table.by:
            values = records[column]
            if column in self.settings.bins:
                which = np.searchsorted(self.settings.bins[column], values, side="right")
            else:
                domain = np.asarray(self.domains[column])
                hits = values[:, None] == domain[None, :]
                if not hits.any(axis=1).all():
                    unseen = str(values[~hits.any(axis=1)][0])[:100]
                    raise FixConfig(f"column {column!r} has the value {unseen}, in no table's cell")
                which = hits.argmax(axis=1)
            cell = cell * self._values(column) + which
        return cell

    def _count(self, table: Table) -> int:
        return int(np.prod([self._values(column) for column in table.by], initial=1))

    def _powers(self, table: Table, records: Records) -> Array:
        """What each record adds to the sums of its cell (P, m), what clipping leaves of it: 1, and
        the powers of its value that the kind needs; of counts and sums the last is released."""
        powers = {"count": 1, "sum": 2, "mean": 2, "variance": 3}[table.kind]
        return np.stack([_value(table, records) ** p for p in range(powers)]) * self._share(records)

    def _share(self, records: Records) -> Array:
        """What is left of each record (m,) where what it adds to all tables is clipped."""
        squares = [_value(table, records) ** 2 for table in self.settings.tables]
        return self.settings.share(np.sqrt(np.sum(squares, axis=0)))

    def _terms(self, table: Table, candidates: Candidates) -> tuple[NDArray[np.int64], Array]:
        """The cell of each record under each candidate (K, m), and what it adds there (P, K, m):
        nothing where it is not among the records."""
        full = candidates.filled
        room(len(full), candidates.records, len(full))
        cell = np.stack([self._cells(table, records) for records in full])
        adds = np.stack([self._powers(table, records) for records in full], axis=1)
        return cell, adds * candidates.present[:, None]

    def _released(self, table: Table, total: Array) -> dict[str, NDArray[Any]]:
        """What is said of the sums behind a table (P, C), once small cells and digits are taken
        away."""
        asked = self.settings
        if table.whole:
            counts = np.rint(total[0]).astype(np.int64)
            small = (counts >= asked.zeros) & (counts < asked.suppress)
            coarse = (2 * counts + asked.round_to) // (2 * asked.round_to) * asked.round_to
            return {"counts": np.where(small, SUPPRESSED, coarse)}
        size, sums = total[:2]
        least = {"sum": 0, "mean": 1, "variance": 2}[table.kind]
        open_, rows = size >= max(asked.suppress, least), [sums]
        if least:
            rows = [sums / np.maximum(size, 1)]
        if table.kind == "variance":
            about = total[2] - rows[0] * sums
            rows.append(np.maximum(about / np.maximum(size - 1, 1), 0.0))
        numbers = np.concatenate([np.where(open_, each, 0.0) for each in rows])
        return {"numbers": self._rounded(numbers), "shown": open_}

    def _rounded(self, numbers: Array) -> Array:
        decimals = self.settings.decimals
        return numbers if decimals is None else np.round(numbers, decimals)

    def _bounds(self, one: Exchange, place: int, cells: int) -> tuple[Array, Array]:
        """The least and the largest count that is released like each of a table."""
        sizes = expected(one.returned, f"{place}.counts", (cells,), one.number)
        step, least = self.settings.round_to, self.settings.suppress
        if (sizes != np.rint(sizes)).any() or sizes.min(initial=0) < (SUPPRESSED if least else 0):
            raise FixRecording(f"round {one.number}: table {place} holds what is no count")
        low, high = np.maximum(sizes - step // 2, 0), sizes + (step - 1) // 2
        if least:  # what is shown is no small cell: none, or as many as are shown
            low = np.where(sizes > 0, np.maximum(low, least), 0)
            high = np.where(sizes > 0, high, 0)
        hidden = sizes == SUPPRESSED
        return np.where(hidden, int(self.settings.zeros), low), np.where(hidden, least - 1, high)

    def _equations(
        self, one: Exchange, place: int, table: Table, cell: NDArray[np.int64], adds: Array
    ) -> SubsetSums:
        """What one table of one release says about the sums over its cells."""
        asked, cells = self.settings, self._count(table)
        if table.whole and not asked.noise:
            low, high = self._bounds(one, place, cells)
            width = high - low
            sd = np.sqrt(width * (width + 2) / 12)
            return sums_over_cells(adds[0], cell, (low + high) / 2, sd, width / 2)
        rows = 2 * cells if table.kind == "variance" else cells
        numbers = expected(one.returned, f"{place}.numbers", (rows,), one.number)
        if asked.noise:
            return sums_over_cells(adds[-1], cell, numbers, np.full(cells, asked.blur))
        digit = asked.blur if asked.decimals is None else 10.0**-asked.decimals / np.sqrt(12)
        flags = {f"{place}.shown": np.ones(cells, bool), **one.returned}  # all, if nothing is said
        open_ = expected(flags, f"{place}.shown", (cells,), one.number) > 0.5
        inside, values = adds[:2]
        if table.kind == "sum":
            total = np.where(open_, numbers, np.nan)
            return sums_over_cells(values, cell, total, np.full(cells, digit))
        # over the records of a cell, what their values are above its mean adds up to zero
        behind, mean = _largest(cell, inside, cells), numbers[:cells]
        noise = np.maximum(digit, np.spacing(np.abs(mean))) * behind
        total = np.where(open_, 0.0, np.nan)
        above = sums_over_cells(values - inside * mean[cell], cell, total, noise)
        if table.kind == "mean":
            return above
        # and their squared distances from it to the variance times one record less
        variance, squares = numbers[cells:], adds[2]
        spread = squares - 2 * mean[cell] * values + inside * (mean**2 - variance)[cell]
        rounding = np.finfo(np.float64).eps * 4 * _largest(cell, squares, cells) + digit * behind
        rounding += noise * 2 * np.sqrt(np.abs(variance))
        total = np.where(open_, -variance, np.nan)
        return joined([above, sums_over_cells(spread, cell, total, rounding)], same_cells=True)


def _value(table: Table, records: Records) -> Array:
    """What a table adds up, of each record (m,)."""
    return records[table.of].astype(np.float64) if table.of else np.ones(len(records))


def _largest(cell: NDArray[np.int64], adds: Array, cells: int) -> Array:
    """The largest sum in each cell that one value for all records leads to."""
    sums = [np.bincount(c, a, cells) for c, a in zip(cell, adds, strict=True)]
    return np.asarray(np.max(sums, axis=0))


PROGRAM = Statistics
