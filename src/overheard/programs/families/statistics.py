"""What do released tables tell? Counts by cell, sums, means, variances.

No model is trained: each client answers with tables of its records. Every number is a sum over
records of what a record adds to its cell, so it is linear in which candidate each record is. A mean
is one too: over the records of its cell, what they are above it adds up to zero; so is a variance.
Counts are whole numbers, which is more than a measurement: `constraints` hands them on as bounds,
equal where the count itself was released, apart where small cells are suppressed or counts rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from overheard.decoding.measurement import Measurement
from overheard.errors import FixConfig, FixRecording
from overheard.foreign.shown import short
from overheard.programs.program import (
    Candidates,
    Constraints,
    Exchange,
    Message,
    Program,
    Settings,
    SummedSettings,
    distance,
    expected,
    measured,
    room,
)
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, Records, Spec, Value

Array = NDArray[np.float64]
MOST_VALUES = 64
"""Of a column that tables are made by; numbers with more are cut by ``bins``."""
MOST_CELLS = 20_000
SUPPRESSED = -1
"""Stands for a count that is too small to be released."""


class Table(Spec):
    """One table, ``by`` up to four columns (none: everybody together).

    ``count``: records in each cell. ``sum``, ``mean``, ``variance`` (with its mean; divided by the
    records less one): of the column ``of``.
    """

    kind: Literal["count", "sum", "mean", "variance"] = "count"
    by: tuple[str, ...] = Field(default=(), max_length=4)
    of: str = ""

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

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for c in (*self.by, self.of) if c)


class StatisticsSettings(SummedSettings):
    """``tables``; ``bins``: where numbers are cut that tables are made by (a histogram is a count
    by such a column).

    Against readers: counts from 1 to below ``suppress`` are not released, nor sums and means of so
    few, nor counts of 0 where ``zeros`` is false; counts are rounded to multiples of ``round_to``,
    other numbers to ``decimals``; or all carry ``noise``.

    The arrays of table k are "k.counts" or "k.numbers", and "k.shown"; of recorded messages a
    table may be in some rounds only, and everything in it is shown unless it says otherwise."""

    name: Literal["statistics"] = "statistics"
    tables: tuple[Table, ...] = Field(min_length=1, max_length=100)
    bins: dict[str, tuple[float, ...]] = {}
    suppress: int = Field(default=0, ge=0, le=1000)
    zeros: bool = True
    round_to: int = Field(default=1, ge=1, le=1000)
    decimals: int | None = Field(default=None, ge=0, le=15)

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

    @property
    def sums(self) -> bool:
        """Whether every table is plain sums over records."""
        return not {table.kind for table in self.tables} & {"mean", "variance"}


class Statistics(Program):
    """Tables of a client's records; ``domains`` has the values of the columns they are made by."""

    settings: StatisticsSettings
    domains: dict[str, tuple[Value, ...]] = {}

    @property
    def chance(self) -> bool:  # type: ignore[override]
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

    @classmethod
    def planned(
        cls, settings: Settings, encoding: Encoding, target: Target, records: Records
    ) -> Self:
        assert isinstance(settings, StatisticsSettings)
        domains: dict[str, tuple[Value, ...]] = {}
        for table in settings.tables:
            for column in table.columns:
                if column not in records.columns:
                    known = ", ".join(records.columns)
                    raise FixConfig(f"model 'statistics': no column {column!r}; there are {known}")
            for column in set(table.columns) - set(table.by) | set(settings.bins):
                if records[column].dtype.kind not in "biuf":
                    raise FixConfig(f"model 'statistics': {column!r} holds text, not numbers")
            for column in table.by:
                if column in settings.bins:
                    continue
                values = tuple(sorted(set(records[column].tolist())))
                if len(values) > MOST_VALUES:
                    raise FixConfig(
                        f"model 'statistics': {column!r} has {len(values)} values, more than "
                        f"{MOST_VALUES}; say in [model.bins] where to cut it"
                    )
                domains[column] = values
        content = {"settings": settings, "encoding": encoding, "target": target}
        return cls.checked({**content, "domains": domains})

    def _values(self, column: str) -> int:
        bins = self.settings.bins
        return len(bins[column]) + 1 if column in bins else len(self.domains[column])

    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c for table in self.settings.tables for c in table.columns))

    def profile(self, records: Records) -> list[NDArray[Any]]:
        by = {column for table in self.settings.tables for column in table.by}
        cut = by & set(self.settings.bins)
        numbers = {table.of for table in self.settings.tables}
        seen = [c for c in self.columns() if c not in cut or c in numbers]
        return [
            *(records[column] for column in seen),
            *(self._bin(column, records[column]) for column in sorted(cut)),
        ]

    def first(self) -> Message:
        return {"release": np.array(0)}

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        answer: dict[str, NDArray[Any]] = {}
        share = self._share(records)
        for place, table in enumerate(self.settings.tables):
            total = (self._adds(table, records) * share[:, None]).sum(axis=0)
            if self.settings.noise:
                noise = rng.normal(0.0, self.settings.noise_sd, total.shape[1])
                answer[f"{place}.numbers"] = self._rounded(total[-1] + noise)
            else:
                answer |= {f"{place}.{k}": v for k, v in self._released(table, total).items()}
        return answer

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        return {"release": np.asarray(sent["release"]) + 1}

    def assembled(self, heard: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """With what others leave unsaid: that all is shown."""
        whole = []
        for one in super().assembled(heard):
            returned = {name: np.atleast_1d(array) for name, array in one.returned.items()}
            for place, table in enumerate(self.settings.tables):
                if f"{place}.numbers" in returned and not table.whole:
                    returned.setdefault(f"{place}.shown", np.ones(self._count(table), bool))
            whole.append(replace(one, returned=returned))
        return tuple(whole)

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
        said = {name: array for name, array in returned.items() if name in repeated}
        return distance(said, {n: repeated[n] for n in said}) if said else float("inf")

    def _released_tables(self, heard: Sequence[Exchange]) -> Iterator[tuple[Exchange, int, Table]]:
        """Every table of every release; which of them a round holds may differ."""
        found = [
            (one, place, table)
            for one in heard
            for place, table in enumerate(self.settings.tables)
            if not {f"{place}.counts", f"{place}.numbers"}.isdisjoint(one.returned)
        ]
        if not found:
            have = sorted({name for one in heard for name in one.returned})
            raise FixRecording(
                f"no table of the program is among the arrays {short(have)}; it comes from another "
                "program, or the description (its wire_names?) is wrong"
            )
        yield from found

    def measure(self, heard: Sequence[Exchange], candidates: Candidates) -> Measurement:
        pieces = [
            self._equations(one, place, table, candidates)
            for one, place, table in self._released_tables(heard)
        ]
        features = np.concatenate([f for f, _, _ in pieces], axis=2)
        total, noise = (np.concatenate([p[k] for p in pieces]) for k in (1, 2))
        return measured(features, total, noise)

    def constraints(self, heard: Sequence[Exchange], candidates: Candidates) -> Constraints | None:
        if self.settings.noise:
            return None
        counts, bounds = [], []
        for one, place, table in self._released_tables(heard):
            if table.whole:
                counts.append(self._candidate_adds(table, candidates)[0])
                bounds.append(self._bounds(self._told(one, place, table)))
        if not counts:
            return None
        return Constraints(
            np.moveaxis(np.concatenate(counts, axis=2), 0, 1).astype(np.int64),
            np.concatenate([low for low, _ in bounds]),
            np.concatenate([high for _, high in bounds]),
            all(table.whole for table in self.settings.tables),
        )

    def _cells(self, table: Table, records: Records) -> NDArray[np.int64]:
        """The cell that each record falls into."""
        cell = np.zeros(len(records), dtype=np.int64)
        for column in table.by:
            values = records[column]
            if column in self.settings.bins:
                which = self._bin(column, values)
            else:
                domain = np.asarray(self.domains[column])
                hits = values[:, None] == domain[None, :]
                if not hits.any(axis=1).all():
                    unseen = str(values[~hits.any(axis=1)][0])[:100]
                    raise FixConfig(f"column {column!r} has the value {unseen}, in no table's cell")
                which = hits.argmax(axis=1)
            cell = cell * self._values(column) + which
        return cell

    def _bin(self, column: str, values: NDArray[Any]) -> NDArray[np.intp]:
        return np.searchsorted(self.settings.bins[column], values, side="right")

    def _count(self, table: Table) -> int:
        return int(np.prod([self._values(column) for column in table.by], initial=1))

    def _adds(self, table: Table, records: Records) -> Array:
        """What each record adds to each cell (m, P, C): 1, and the powers of its value that the
        kind needs; of counts and sums the last is what is released."""
        inside = self._cells(table, records)[:, None] == np.arange(self._count(table))
        value = records[table.of].astype(np.float64) if table.of else np.ones(len(records))
        powers = {"count": 1, "sum": 2, "mean": 2, "variance": 3}[table.kind]
        return np.stack([value[:, None] ** power * inside for power in range(powers)], axis=1)

    def _share(self, records: Records) -> Array:
        """What is left of each record (m, 1) where what it adds to all tables is clipped."""
        if self.settings.clip is None:
            return np.ones((len(records), 1))
        each = [self._adds(table, records)[:, -1] for table in self.settings.tables]
        return self.settings.share(np.linalg.norm(np.concatenate(each, axis=1), axis=1))[:, None]

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
        shown = size >= max(asked.suppress, least)
        if table.kind == "sum":
            return {"numbers": self._rounded(np.where(shown, sums, 0.0)), "shown": shown}
        said = mean = np.where(shown, sums / np.maximum(size, 1), 0.0)
        if table.kind == "variance":
            about = total[2] - 2 * mean * sums + size * mean**2
            variance = np.where(shown, about / np.maximum(size - 1, 1), 0.0)
            said = np.concatenate([mean, np.maximum(variance, 0.0)])
        return {"numbers": self._rounded(said), "shown": shown}

    def _rounded(self, numbers: Array) -> Array:
        decimals = self.settings.decimals
        return numbers if decimals is None else np.round(numbers, decimals)

    def _told(self, one: Exchange, place: int, table: Table) -> NDArray[np.int64]:
        """The counts of a table, as they were released."""
        told = expected(one.returned, f"{place}.counts", (self._count(table),), one.number)
        least = SUPPRESSED if self.settings.suppress else 0
        if (told != np.rint(told)).any() or told.min(initial=0) < least:
            raise FixRecording(f"round {one.number}: table {place} holds what is no count")
        return told.astype(np.int64)

    def _bounds(self, told: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least and the largest count that is released like this."""
        hidden, step, least = told == SUPPRESSED, self.settings.round_to, self.settings.suppress
        low, high = np.maximum(told - step // 2, 0), told + (step - 1) // 2
        if least:  # what is shown is no small cell: none, or as many as are shown
            low = np.where(told > 0, np.maximum(low, least), 0)
            high = np.where(told > 0, high, 0)
        return np.where(hidden, int(self.settings.zeros), low), np.where(hidden, least - 1, high)

    def _candidate_adds(self, table: Table, candidates: Candidates) -> Array:
        """`_adds` under each candidate (P, K, m, C), nothing where it is not among the records."""
        made = [
            None if records is None else self._adds(table, records) * self._share(records)[:, None]
            for records in candidates.tables
        ]
        nothing = np.zeros_like(next(adds for adds in made if adds is not None))
        room(nothing[0].size, candidates.records, len(made))
        each = np.stack([nothing if adds is None else adds for adds in made])
        return np.moveaxis(each, 2, 0)

    def _equations(
        self, one: Exchange, place: int, table: Table, candidates: Candidates
    ) -> tuple[Array, Array, Array]:
        """Features (K, m, R), totals and noise (R,) of one table of one release."""
        adds, cells = self._candidate_adds(table, candidates), self._count(table)
        digit = self.settings.blur
        if table.whole and not self.settings.noise:
            low, high = self._bounds(self._told(one, place, table))
            width = (high - low).astype(np.float64)
            return adds[0], (low + high) / 2, np.sqrt(width * (width + 2) / 12)
        if self.settings.decimals is not None and not self.settings.noise:
            digit = 10.0**-self.settings.decimals / np.sqrt(12)
        rows = 2 * cells if table.kind == "variance" else cells
        numbers = expected(one.returned, f"{place}.numbers", (rows,), one.number)
        if self.settings.noise:
            return adds[-1], numbers, np.full(rows, digit)
        shown = expected(one.returned, f"{place}.shown", (cells,), one.number) > 0.5
        inside, sums = adds[:2] * shown
        if table.kind == "sum":
            return sums, numbers * shown, np.full(rows, digit)
        behind = inside.max(axis=0).sum(axis=0)  # at most so many records in each cell
        mean = numbers[:cells]
        above = sums - inside * mean
        noise = np.maximum(digit, np.spacing(np.abs(mean))) * behind
        if table.kind == "mean":
            return above, np.zeros(cells), noise
        variance, squares = numbers[cells:], adds[2]
        spread = squares * shown - 2 * mean * sums + inside * (mean**2 - variance)
        size = np.abs(squares).max(axis=0).sum(axis=0)
        rounding = np.finfo(np.float64).eps * 4 * size + digit * behind
        rounding += noise * 2 * np.sqrt(np.abs(variance))
        return (
            np.concatenate([above, spread], axis=2),
            np.concatenate([np.zeros(cells), -variance * shown]),
            np.concatenate([noise, rounding]),
        )


PROGRAM = Statistics
