"""Kinds of knowledge an adversary may be granted, each a type with its codec (see `kind`).

An attack names the types it needs; a threat model names the types it grants; nothing else
is handed over. None of these types has a field for the secret itself: `PublicRecords` does
not contain the sensitive column at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.foreign.limits import check
from overheard.programs.orders import CONVENTIONS, Convention, Place, Restart, Source, orders
from overheard.programs.records import Records, Value, positions
from overheard.transcript.kind import (
    LABEL_COLUMN,
    Disclosure,
    Held,
    Knowledge,
    Rounds,
    kind,
    sealed,
)
from overheard.transcript.target import JOINT, attribute, joined
from overheard.transcript.traffic import Broadcast, ClientProgram, Messages, RoundSum, Sums

__all__ = [
    "BEHAVIOURS",
    "AppliedDefence", "AttributeDomain", "AttributePrior", "AuxiliaryData", "BatchOrder",
    "Broadcast", "CandidatePool", "ClientProgram", "EverybodysRecords", "GroupCounts", "Groups",
    "InTheClear", "Labels", "Messages", "PublicRecords", "RoundSum", "ShardSize", "Sums",
    "SuspectedBehaviour", "TargetRecord", "listens",
]  # fmt: skip


@kind
@dataclass(frozen=True)
class PublicRecords(Knowledge):
    """The client's records without the target of the audit and without the label."""

    name: ClassVar[str] = "public records"
    per_client: ClassVar[bool] = True
    records: Records

    @classmethod
    def disclosed(cls, world: Disclosure) -> Mapping[str, Self]:
        hidden = {*world.hidden, world.recipe.target.column}
        return {client: cls(known.without(*hidden)) for client, known in world.known.items()}

    def content(self) -> Records:
        return self.records

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        return cls(held.public(content))


@kind
@dataclass(frozen=True)
class Labels(Knowledge):
    """The client's labels, in the order of its public records."""

    name: ClassVar[str] = "labels"
    per_client: ClassVar[bool] = True
    values: NDArray[Any]

    @classmethod
    def disclosed(cls, world: Disclosure) -> Mapping[str, Self] | None:
        label = world.recipe.target.column
        if label in world.hidden:
            return None
        return {client: cls(known[label]) for client, known in world.known.items()}

    def content(self) -> Records:
        return Records({LABEL_COLUMN: self.values})

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        return cls(sealed(content[LABEL_COLUMN]))


@kind
@dataclass(frozen=True)
class EverybodysRecords(Knowledge):
    """The records of all clients, as `PublicRecords` and `Labels` hold one client's."""

    name: ClassVar[str] = "everybody's public records"
    records: Mapping[str, Records]
    labels: Mapping[str, NDArray[Any]]

    @classmethod
    def read(cls, held: Held) -> Self | None:
        key = held.target.key
        tables, labels = (held.recording.side(k.__name__, key) for k in (PublicRecords, Labels))
        if not tables or not labels:
            return None
        return cls(
            {who: PublicRecords.of(table, held).records for who, table in tables.items()},
            {who: Labels.of(table, held).values for who, table in labels.items()},
        )


@kind
@dataclass(frozen=True)
class AttributeDomain(Knowledge):
    """The sensitive column's name and the values it may take.

    Of a numeric column ``values`` are the middles of bins, and ``spread`` is the standard
    deviation of its values within each bin (empty for a column of few values). Of several columns
    at once (see `Target`), ``parts`` are these columns and ``combinations`` what each value says
    of them; both are empty of one.
    """

    name: ClassVar[str] = "attribute domain"
    column: str
    values: tuple[int | Value, ...]
    spread: tuple[float, ...] = ()
    parts: tuple[str, ...] = ()
    combinations: tuple[tuple[int | Value, ...], ...] = ()

    @classmethod
    def of_several(cls, parts: tuple[str, ...], records: Records) -> Self:
        """Of several columns at once: the combinations that occur in the records."""
        rows = sorted(set(zip(*(records[part].tolist() for part in parts), strict=True)))
        values = tuple(JOINT.join(map(str, row)) for row in rows)
        return cls(JOINT.join(parts), values, (), parts, tuple(rows))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the records that are the secret."""
        return self.parts or (self.column,)

    @property
    def settings(self) -> tuple[Mapping[str, Value], ...]:
        """What each value sets the columns to."""
        rows = self.combinations or tuple((value,) for value in self.values)
        return tuple(dict(zip(self.columns, row, strict=True)) for row in rows)

    def positions(self, records: Records) -> NDArray[np.int64]:
        """Which of the values each record has."""
        table = joined(records, attribute(*self.columns))
        return positions(table[self.column], self.values)

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.combinations}
        if (self.parts or widths) and (
            len(self.combinations) != len(self.values) or widths != {len(self.parts)}
        ):
            raise FixData(
                f"{self.column!r} has {len(self.values)} values of the columns {self.parts} and "
                f"{len(self.combinations)} combinations; give each value one value of each column"
            )
        if len(set(self.values)) != len(self.values) or len(self.values) < 2:
            given = ", ".join(map(str, self.values)) or "none"
            raise FixData(
                f"attribute {self.column!r} has the values {given}; at least two different ones "
                "are needed, else there is nothing to infer"
            )

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        check("domain_values", len(content["values"]), held.recording.side_folder)
        read = super().of(content, held)
        if read.column != held.target.column or read.columns != held.target.columns:
            raise ValueError(f"it is about {read.column!r}")
        return read


@kind
@dataclass(frozen=True)
class AttributePrior(Knowledge):
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

    @classmethod
    def disclosed(cls, world: Disclosure) -> Self | None:
        domain = world.settled(AttributeDomain)
        if not isinstance(domain, AttributeDomain):
            return None
        which = domain.positions(world.population)
        return cls(tuple(float(np.mean(which == k)) for k in range(len(domain.values))))


@dataclass(frozen=True)
class LabelledRecords(Knowledge):
    """Records and their labels, in one table: of each client, or one for all.

    ``derived``: what attacks on the same view learned from them, so that each learns it once.
    """

    records: Records
    labels: NDArray[Any]
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not len(self.labels) or len(self.records) not in (0, len(self.labels)):
            raise FixData(
                f"{self.name}: {len(self.records)} records and {len(self.labels)} labels; give "
                "each record one label"
            )

    @classmethod
    def split(cls, table: Records, label: str) -> Self:
        """The records of a table, of which one column is the label."""
        return cls(table.without(label), table[label])

    def content(self) -> Any:
        table = Records({**self.records.columns, LABEL_COLUMN: self.labels})
        return table if self.per_client else {type(self).__name__: table}

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        if cls.per_client:
            return cls.split(held.public(content), LABEL_COLUMN)
        (table,) = content.values()
        return cls.split(Records({n: sealed(v) for n, v in table.columns.items()}), LABEL_COLUMN)


@kind
@dataclass(frozen=True)
class CandidatePool(LabelledRecords):
    """Records of which some are the client's and the others strangers'; ``labels`` in their order.

    As in `PublicRecords`, the attribute under audit is not among the columns.
    """

    name: ClassVar[str] = "candidate pool"
    per_client: ClassVar[bool] = True


@kind
@dataclass(frozen=True)
class AuxiliaryData(LabelledRecords):
    """Labelled records from elsewhere: people like the client's, none of them the client's.

    ``labels`` are in the target's own units, in the order of ``records``.
    """

    name: ClassVar[str] = "auxiliary data"
    of_strangers: ClassVar[bool] = True

    @classmethod
    def read(cls, held: Held) -> Self | None:
        """One piece for all clients: what attacks learn from it they learn once."""
        key, shared = (cls, held.target.key), held.recording.shared
        if key not in shared:
            shared[key] = super().read(held)
        found: Self | None = shared[key]
        return found


@kind
@dataclass(frozen=True)
class TargetRecord(LabelledRecords):
    """The record whose holders are looked for: one row, and its label (1,)."""

    name: ClassVar[str] = "target record"

    def __post_init__(self) -> None:
        if len(self.records) != 1 or len(self.labels) != 1:
            raise FixData(
                f"the target is one record with its label; given: {len(self.records)} records "
                f"and {len(self.labels)} labels"
            )


BEHAVIOURS = ("inversion", "ascent", "free-rider")


@kind
@dataclass(frozen=True)
class SuspectedBehaviour(Knowledge):
    """What a dishonest client is thought to do (kerkouche2023 section 4).

    ``inversion``: sends its update negated; ``ascent``: climbs the loss in place of descending;
    ``free-rider``: does not train, and returns the model as it was, or noise.
    """

    name: ClassVar[str] = "suspected behaviour"
    behaviour: str

    def __post_init__(self) -> None:
        if self.behaviour not in BEHAVIOURS:
            raise FixData(f"unknown behaviour {self.behaviour!r}; known: {', '.join(BEHAVIOURS)}")


@kind
@dataclass(frozen=True)
class ShardSize(Knowledge):
    """How many records each client holds (kerkouche2023's |D_i|, the same for all)."""

    name: ClassVar[str] = "shard size"
    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise FixData(f"a client holds at least one record; given: {self.records}")


@kind
@dataclass(frozen=True)
class Groups(Knowledge):
    """The column that sorts records into groups (leprovost2023's meta-classes), and its values."""

    name: ClassVar[str] = "groups"
    column: str
    values: tuple[int | Value, ...]


@kind
@dataclass(frozen=True)
class GroupCounts(Knowledge):
    """How many of the client's records are in each group, in the order of `Groups`."""

    name: ClassVar[str] = "group counts"
    per_client: ClassVar[bool] = True
    counts: tuple[int, ...]

    @classmethod
    def disclosed(cls, world: Disclosure) -> Mapping[str, Self] | None:
        groups = world.settled(Groups)
        if not isinstance(groups, Groups):
            return None
        return {
            client: cls(tuple(int(np.sum(mine[groups.column] == v)) for v in groups.values))
            for client, mine in world.clients.items()
        }


def listens(needs: Iterable[type[Any]]) -> bool:
    """Is what clients say among these kinds? Whoever needs none of it is a guess that attacks are
    compared with."""
    return any(issubclass(kind, Rounds) for kind in needs)


@kind
@dataclass(frozen=True)
class AppliedDefence(Knowledge):
    """What clients and server do against listeners, as every participant is told.

    ``clip_norm``: updates longer than this were scaled down to it (None: none were). ``noise_sd``:
    standard deviation of the Gaussian noise on each coordinate of an update (0: none), in the
    update's own units; ``server_noise_sd``: of the model that is sent. ``promises``: the same in
    words. Which updates were clipped, and by how much, is not told.

    ``effects``, of each name: ``additive``, an update is still a sum over records, and the noise;
    ``sparse``, a coordinate of 0 was not sent; ``repeatable``, who trains again can do the same to
    the update, knowing what is told here.
    """

    name: ClassVar[str] = "applied defence"
    names: tuple[str, ...]
    clip_norm: float | None = None
    noise_sd: float = 0.0
    promises: tuple[str, ...] = ()
    server_noise_sd: float = 0.0
    effects: tuple[tuple[str, ...], ...] = ()

    def having(self, effect: str) -> tuple[str, ...]:
        """The names of those that have this effect."""
        each = zip(self.names, self.effects, strict=True)
        return tuple(name for name, has in each if effect in has)

    def __post_init__(self) -> None:
        if len(self.effects) != len(self.names):
            raise FixData(
                f"the applied defence has effects of {len(self.effects)} defences and names "
                f"{len(self.names)}; give those of each"
            )
        if not 0 <= self.noise_sd < np.inf or not (self.clip_norm is None or self.clip_norm > 0):
            raise FixData(
                f"the applied defence has noise_sd {self.noise_sd} and clip_norm {self.clip_norm}; "
                "give a noise that is not negative and a norm that is positive, or leave them out"
            )


@kind
@dataclass(frozen=True)
class InTheClear(Knowledge):
    """What the messages said besides the models, as the recorder noticed it: no attack is needed.

    ``notes`` are sentences; ``values``, by name and client, what each message said (a metric, a
    record count).
    """

    name: ClassVar[str] = "what was sent in the clear"
    notes: tuple[str, ...]
    values: Mapping[str, Mapping[str, tuple[int | Value, ...]]]

    def sentences(self) -> tuple[str, ...]:
        """The findings in words, for an audit's notes."""
        said = list(self.notes)
        for what, clients in self.values.items():
            spans = [f"{client}: {_span(values)}" for client, values in clients.items()]
            more = f" and {len(spans) - _SHOWN} more" if len(spans) > _SHOWN else ""
            said.append(
                f"Sent in the clear besides the models: {what!r} of {len(spans)} client(s) "
                f"({'; '.join(spans[:_SHOWN])}{more})."
            )
        return tuple(said)


_SHOWN = 5  # clients in a sentence


def _span(said: tuple[int | Value, ...]) -> str:
    """One value as it is; several numbers as their range."""
    different = list(dict.fromkeys(said))
    if len(different) == 1:
        return str(different[0])
    numbers = [value for value in different if not isinstance(value, str)]
    if len(numbers) == len(different):
        return f"{min(numbers):.6g} to {max(numbers):.6g}"
    return ", ".join(map(str, different[:3]))


@kind
@dataclass(frozen=True)
class BatchOrder(Knowledge):
    """The order of a client's batches: known, or that of one of these seeds.

    ``orders``: of a round (its number as text), for every epoch the positions of the client's
    records in the order in which they are visited. Else the client's generator was seeded with one
    of ``seeds`` by one of ``conventions`` (none named: any of `overheard.programs.orders`); one of
    each is a known order too. Without this knowledge an adversary still tries common seeds.
    """

    name: ClassVar[str] = "batch order"
    per_client: ClassVar[bool] = True
    by_place: ClassVar[bool] = True
    seeds: tuple[int, ...] = ()
    conventions: tuple[tuple[Source, Restart], ...] = ()
    orders: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.seeds and not self.orders:
            raise FixData("a batch order without seeds and without orders; give one of them")
        if wrong := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise FixData(f"seed {wrong[0]} of a batch order; seeds are 0 to 2^32 - 1")
        for number, epochs in self.orders.items():
            for one in epochs:
                if sorted(one) != list(range(len(one))):
                    raise FixData(
                        f"the batch order of round {number} is no order of the positions 0 to "
                        f"{len(one) - 1}; name each record once"
                    )

    def content(self) -> Any:
        """Without what is empty."""
        return {name: value for name, value in super().content().items() if value}

    def tried(self) -> tuple[Convention, ...]:
        """The conventions that may be."""
        return tuple(Convention(*c) for c in self.conventions) or CONVENTIONS

    def known(self, place: Place) -> NDArray[np.int64] | None:
        """The orders (epochs, records) of a round, where they are known."""
        given = self.orders.get(str(place.number))
        if given is not None:
            made = np.array(given, dtype=np.int64)
            if made.shape != (place.epochs, place.records):
                raise FixData(
                    f"the batch order of round {place.number} has shape {made.shape}; the client "
                    f"takes {place.epochs} epochs over {place.records} records"
                )
            return made
        if len(self.seeds) == len(self.conventions) == 1:
            return np.asarray(orders(self.tried()[0], self.seeds, place)[0])
        return None
