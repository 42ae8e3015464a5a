"""Kinds of knowledge an adversary may be granted, each a type.

An attack names the types it needs; a threat model names the types it grants; nothing else
is handed over. None of these types has a field for the secret itself: `PublicRecords` does
not contain the sensitive column at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, ListenLonger
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records, Value
from overheard.transcript.tape import Tape


@dataclass(frozen=True)
class Link:
    """The messages on one client's link, one row per round in which it took part.

    ``sent`` and ``returned`` are (T, P) in the precision of the wire; ``returned`` holds models,
    or gradients if ``payload`` says so. ``weights`` are the record counts that the client
    reported (NaN where it reported none). ``noise_sd``: noise that is known to be on every
    coordinate of ``returned`` beside rounding; 0 as heard, set by who was told of a
    defence. ``sparse``: a coordinate that did not change was not sent, and says nothing.
    """

    name: ClassVar[str] = "individual updates"
    payload: str
    rounds: NDArray[np.int64]
    sent: NDArray[np.floating[Any]]
    returned: NDArray[np.floating[Any]]
    weights: NDArray[np.float64]
    noise_sd: float = 0.0
    sparse: bool = False

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def gradients(self) -> bool:
        """Does the client return gradients, and not models?"""
        return self.payload == "gradient"

    def updates(self) -> NDArray[np.float64]:
        """``sent - returned`` (T, P), or the gradient itself where gradients are sent."""
        if self.gradients:
            return self.returned.astype(np.float64)
        return self.sent.astype(np.float64) - self.returned.astype(np.float64)

    def require(self, least: int, purpose: str) -> None:
        """Fail clearly when fewer rounds were heard than an attack can work with."""
        if len(self) < least:
            raise ListenLonger(
                f"the client was heard in {len(self)} round(s) but {purpose} needs at least "
                f"{least}; record more rounds"
            )


@dataclass(frozen=True)
class Broadcast:
    """What the server sends everybody: who takes part, and the last model sent (P,).

    Every participant has it, so whoever knows only this has listened to nobody. ``model`` is None
    where the whole federation is asked about.
    """

    name: ClassVar[str] = "the global model"
    clients: tuple[str, ...]
    model: NDArray[np.floating[Any]] | None = None

    def last(self) -> NDArray[np.float64]:
        """The last model sent to the client."""
        if self.model is None:
            raise FixData("the whole federation was asked about; no client's last model is known")
        return self.model.astype(np.float64)


class Rows(Protocol):
    """Rounds that are read one at a time: the model sent, and the sum."""

    def read(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]: ...


@dataclass(frozen=True)
class RoundSum:
    """A round under secure aggregation: the model ``sent`` (P,), in the precision of the wire, and
    ``total`` (P,), the sum over ``participants`` (positions in the clients' names) of sent minus
    returned, or of the gradients where gradients are sent."""

    number: int
    sent: NDArray[np.floating[Any]]
    total: NDArray[np.float64]
    participants: NDArray[np.int64]


@dataclass(frozen=True)
class Sums:
    """The sum of each round's updates and who took part; never a single update.

    Iterating reads one round after the other, so that memory does not grow with their number.
    ``participation`` (T, N) is 1 where the client of the column took part in the round of the row.
    """

    name: ClassVar[str] = "sums of updates"
    clients: tuple[str, ...]
    rounds: NDArray[np.int64]
    participation: NDArray[np.float64]
    _tape: Rows

    @staticmethod
    def of(clients: tuple[str, ...], heard: Iterable[RoundSum]) -> Sums:
        """Copy the rounds onto a tape, one by one."""
        numbers: list[int] = []
        rows: list[NDArray[np.float64]] = []

        def noted() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            for one in heard:
                row = np.zeros(len(clients))
                row[one.participants] = 1.0
                rows.append(row)
                numbers.append(one.number)
                yield one.sent, one.total

        tape = Tape(noted())
        rounds = np.array(numbers, dtype=np.int64)
        participation = np.array(rows).reshape(len(rows), len(clients))
        rounds.flags.writeable = participation.flags.writeable = False
        return Sums(clients, rounds, participation, tape)

    def __len__(self) -> int:
        return len(self.rounds)

    def __getitem__(self, row: int) -> RoundSum:
        if not 0 <= row < len(self):
            raise IndexError(f"round {row} of {len(self)}")
        sent, total = self._tape.read(row)
        who = np.flatnonzero(self.participation[row])
        return RoundSum(int(self.rounds[row]), sent, total, who)

    def __iter__(self) -> Iterator[RoundSum]:
        return (self[row] for row in range(len(self)))

    def first(self, rounds: int) -> Sums:
        """What was heard after so many rounds."""
        return replace(self, rounds=self.rounds[:rounds], participation=self.participation[:rounds])

    def require(self, least: int, purpose: str) -> None:
        """Fail clearly when fewer rounds were heard than an attack can work with."""
        if len(self) < least:
            raise ListenLonger(
                f"{len(self)} round(s) were heard but {purpose} needs at least {least}; record "
                "more rounds"
            )


@dataclass(frozen=True)
class LocalTraining:
    """Model, loss, encoding and local update rule: what every participant is told."""

    name: ClassVar[str] = "local training recipe"
    recipe: Recipe


@dataclass(frozen=True)
class PublicRecords:
    """The client's records without the target of the audit and without the label."""

    name: ClassVar[str] = "public records"
    records: Records


@dataclass(frozen=True)
class Labels:
    """The client's labels, in the order of its public records."""

    name: ClassVar[str] = "labels"
    values: NDArray[Any]


@dataclass(frozen=True)
class EverybodysRecords:
    """The records of all clients, as `PublicRecords` and `Labels` hold one client's."""

    name: ClassVar[str] = "everybody's public records"
    records: Mapping[str, Records]
    labels: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class AttributeDomain:
    """The sensitive column's name and the values it may take.

    Of a numeric column ``values`` are the middles of bins, and ``spread`` is the standard
    deviation of its values within each bin (empty for a column of few values).
    """

    name: ClassVar[str] = "attribute domain"
    column: str
    values: tuple[Value, ...]
    spread: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values) or len(self.values) < 2:
            given = ", ".join(map(str, self.values)) or "none"
            raise FixData(
                f"attribute {self.column!r} has the values {given}; at least two different ones "
                "are needed, else there is nothing to infer"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """What each value stands for; of a bin its range, half-way to the middles beside it."""
        middles = sorted(v for v in self.values if isinstance(v, int | float))
        if not self.spread or len(middles) < len(self.values):
            return tuple(map(str, self.values))
        edges = [(low + high) / 2 for low, high in pairwise(middles)]
        # as few digits as put each edge between the middles that it parts
        for digits in range(4, 18):
            shown = [f"{edge:.{digits}g}" for edge in edges]
            parted = zip(middles, map(float, shown), middles[1:], strict=False)
            if all(low < edge < high for low, edge, high in parted):
                break
        ranges = (f"{low} to {high}" for low, high in pairwise(shown))
        names = dict(
            zip(middles, (f"up to {shown[0]}", *ranges, f"above {shown[-1]}"), strict=True)
        )
        return tuple(names[v] for v in self.values if isinstance(v, int | float))


@dataclass(frozen=True)
class AttributePrior:
    """Share of each value of the domain in the population at large (not in this client)."""

    name: ClassVar[str] = "attribute prior"
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        total = sum(self.shares)
        if not all(s >= 0 for s in self.shares) or not abs(total - 1) <= 1e-6:
            raise FixData(
                f"the attribute prior's shares {self.shares} sum to {total:g}; give "
                "shares that are not negative and sum to one"
            )


@dataclass(frozen=True)
class CandidatePool:
    """Records of which some are the client's and the others strangers'; ``labels`` in their order.

    As in `PublicRecords`, the attribute under audit is not among the columns.
    """

    name: ClassVar[str] = "candidate pool"
    records: Records
    labels: NDArray[Any]

    def __post_init__(self) -> None:
        if not len(self.labels) or len(self.records) not in (0, len(self.labels)):
            raise FixData(
                f"the pool has {len(self.records)} records and {len(self.labels)} labels; give "
                "each candidate record one label"
            )


@dataclass(frozen=True)
class AuxiliaryData:
    """Labelled records from elsewhere: people like the client's, none of them the client's.

    ``labels`` are in the target's own units, in the order of ``records``.
    """

    name: ClassVar[str] = "auxiliary data"
    records: Records
    labels: NDArray[Any]


@dataclass(frozen=True)
class TargetRecord:
    """The record whose holders are looked for: one row, and its label (1,)."""

    name: ClassVar[str] = "target record"
    records: Records
    labels: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.records) != 1 or len(self.labels) != 1:
            raise FixData(
                f"the target is one record with its label; given: {len(self.records)} records "
                f"and {len(self.labels)} labels"
            )


BEHAVIOURS = ("inversion", "ascent", "free-rider")


@dataclass(frozen=True)
class SuspectedBehaviour:
    """What a dishonest client is thought to do (kerkouche2023 section 4).

    ``inversion``: sends its update negated; ``ascent``: climbs the loss in place of descending;
    ``free-rider``: does not train, and returns the model as it was, or noise.
    """

    name: str = "suspected behaviour"  # of the kind; every piece of knowledge names one above

    def __post_init__(self) -> None:
        if self.name not in BEHAVIOURS:
            raise FixData(f"unknown behaviour {self.name!r}; known: {', '.join(BEHAVIOURS)}")


@dataclass(frozen=True)
class ShardSize:
    """How many records each client holds (kerkouche2023's |D_i|, the same for all)."""

    name: ClassVar[str] = "shard size"
    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise FixData(f"a client holds at least one record; given: {self.records}")


@dataclass(frozen=True)
class Groups:
    """The column that sorts records into groups (leprovost2023's meta-classes), and its values."""

    name: ClassVar[str] = "groups"
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class GroupCounts:
    """How many of the client's records are in each group, in the order of `Groups`."""

    name: ClassVar[str] = "group counts"
    counts: tuple[int, ...]


@dataclass(frozen=True)
class AppliedDefence:
    """What clients and server do against listeners, as every participant is told.

    ``clip_norm``: updates longer than this were scaled down to it (None: none were). ``noise_sd``:
    standard deviation of the Gaussian noise on each coordinate of an update (0: none), in the
    update's own units. Which updates were clipped, and by how much, is not told.
    """

    name: ClassVar[str] = "applied defence"
    names: tuple[str, ...]
    clip_norm: float | None = None
    noise_sd: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.noise_sd < np.inf or not (self.clip_norm is None or self.clip_norm > 0):
            raise FixData(
                f"the applied defence has noise_sd {self.noise_sd} and clip_norm {self.clip_norm}; "
                "give a noise that is not negative and a norm that is positive, or leave them out"
            )


LISTENING: frozenset[type[Any]] = frozenset({Link, Sums})
"""What clients say. Whoever needs neither is a guess that attacks are compared with."""

KINDS: tuple[type[Any], ...] = (
    Link,
    Broadcast,
    LocalTraining,
    PublicRecords,
    Labels,
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    AuxiliaryData,
    Groups,
    GroupCounts,
    AppliedDefence,
    EverybodysRecords,
    Sums,
    ShardSize,
    TargetRecord,
    SuspectedBehaviour,
)
