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
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

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
    distance,
    expected,
    measured,
    room,
)
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, Records, Value
from overheard.programs.tables import StatisticsSettings, Table

Array = NDArray[np.float64]
MOST_VALUES = 64
"""Of a column that tables are made by; numbers with more are cut by ``bins``."""
MOST_CELLS = 20_000
SUPPRESSED = -1
"""Stands for a count that is too small to be released."""


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
            total = (self._adds(table, records) * share).sum(axis=0)
            if self.settings.noise:
                noisy = total + rng.normal(0.0, self.settings.noise_sd, len(total))
                answer[f"{place}.numbers"] = self._rounded(noisy)
                continue
            size = np.asarray(self._inside(table, records).sum(axis=0))
            answer |= {f"{place}.{k}": v for k, v in self._released(table, total, size).items()}
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
                counts.append(self._candidate_adds(table, candidates))
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

    def _inside(self, table: Table, records: Records) -> Array:
        """Whether each record is in each cell (m, C)."""
        return np.asarray(
            self._cells(table, records)[:, None] == np.arange(self._count(table)), np.float64
        )

    def _adds(self, table: Table, records: Records) -> Array:
        """What each record adds to the sums behind a table (m, R)."""
        inside = self._inside(table, records)
        if table.kind == "count":
            return inside
        column = records[table.of].astype(np.float64)[:, None]
        values = np.asarray(column * inside)
        if table.kind == "sum":
            return values
        return np.concatenate([values, np.asarray(column * values)], axis=1)

    def _share(self, records: Records) -> Array:
        """What is left of each record (m, 1) where what it adds to all tables is clipped."""
        if self.settings.clip is None:
            return np.ones((len(records), 1))
        squares = [np.square(self._adds(t, records)).sum(axis=1) for t in self.settings.tables]
        return self.settings.share(np.sqrt(np.sum(squares, axis=0)))[:, None]

    def _released(self, table: Table, total: Array, size: Array) -> dict[str, NDArray[Any]]:
        """What is said of the sums behind a table, once small cells and digits are taken away."""
        asked = self.settings
        if table.whole:
            counts = np.rint(total).astype(np.int64)
            small = (counts >= asked.zeros) & (counts < asked.suppress)
            coarse = (2 * counts + asked.round_to) // (2 * asked.round_to) * asked.round_to
            return {"counts": np.where(small, SUPPRESSED, coarse)}
        least = max(asked.suppress, 2 if table.kind == "variance" else 1)
        shown = (size >= least) if table.kind != "sum" or asked.suppress else size >= 0
        if table.kind == "sum":
            return {"numbers": self._rounded(np.where(shown, total, 0.0)), "shown": shown}
        sums, squares = total.reshape(2, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(shown, sums / np.maximum(size, 1), 0.0)
            about = squares - 2 * mean * sums + size * mean**2
            variance = np.where(shown, about / np.maximum(size - 1, 1), 0.0)
        if table.kind == "mean":
            return {"numbers": self._rounded(mean), "shown": shown}
        both = np.concatenate([mean, np.maximum(variance, 0.0)])
        return {"numbers": self._rounded(both), "shown": shown}

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
        """`_adds` under each candidate (K, m, R), nothing where it is not among the records."""
        made = [
            None if records is None else self._adds(table, records) * self._share(records)
            for records in candidates.tables
        ]
        width = next(adds.shape[1] for adds in made if adds is not None)
        room(width, candidates.records, len(made))
        features = np.zeros((len(made), candidates.records, width))
        for k, adds in enumerate(made):
            if adds is not None:
                features[k] = adds
        return features

    def _equations(
        self, one: Exchange, place: int, table: Table, candidates: Candidates
    ) -> tuple[Array, Array, Array]:
        """Features (K, m, R), totals and noise (R,) of one table of one release."""
        features = self._candidate_adds(table, candidates)
        if self.settings.noise:
            rows = features.shape[2]
            numbers = expected(one.returned, f"{place}.numbers", (rows,), one.number)
            return features, numbers, np.full(rows, self.settings.blur)
        if table.whole:
            low, high = self._bounds(self._told(one, place, table))
            width = (high - low).astype(np.float64)
            return features, (low + high) / 2, np.sqrt(width * (width + 2) / 12)
        cells, digit = self._count(table), self.settings.blur
        if self.settings.decimals is not None:
            digit = 10.0**-self.settings.decimals / np.sqrt(12)
        rows = features.shape[2]
        told = one.returned
        if table.kind == "mean":
            rows = cells
        numbers = expected(told, f"{place}.numbers", (rows,), one.number)
        shown = expected(told, f"{place}.shown", (cells,), one.number) > 0.5
        if table.kind == "sum":
            return features * shown, numbers * shown, np.full(rows, digit)
        inside = self._candidate_adds(Table(by=table.by), candidates) * shown
        behind = inside.max(axis=0).sum(axis=0)  # at most so many records in each cell
        sums, squares = features[..., :cells], features[..., cells:]
        mean = numbers[:cells]
        above = sums * shown - inside * mean
        noise = np.maximum(digit, np.spacing(np.abs(mean))) * behind
        if table.kind == "mean":
            return above, np.zeros(cells), noise
        variance = numbers[cells:]
        spread = (squares - 2 * mean * sums) * shown + inside * (mean**2 - variance)
        size = np.abs(squares).max(axis=0).sum(axis=0)
        rounding = np.finfo(np.float64).eps * 4 * size + digit * behind
        rounding += noise * 2 * np.sqrt(np.abs(variance))
        return (
            np.concatenate([above, spread], axis=2),
            np.concatenate([np.zeros(cells), -variance * shown]),
            np.concatenate([noise, rounding]),
        )


PROGRAM = Statistics
