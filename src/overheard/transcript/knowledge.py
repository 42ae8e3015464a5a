"""Kinds of knowledge an adversary may be granted, each a type with its codec (see `kind`).

An attack names the types it needs; a threat model names the types it grants; nothing else
is handed over. None of these types has a field for the secret itself: `PublicRecords` does
not contain the sensitive column at all.

First what is observed: one client's `Messages`, the `Broadcast`, the `Sums` of all clients'
answers. They are read from ``messages/``, and never written to ``side/``. Of clients that train a
network a message is one row of numbers, its arrays one after the other in the order of the model.
What the clients of any other program send may differ in names and shapes, and is held as it was
sent: arrays by name. Then what is known besides.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.errors import ChooseAnotherAttack, FixData, ListenLonger
from overheard.foreign.limits import check
from overheard.programs.orders import CONVENTIONS, Convention, Place, Restart, Source, orders
from overheard.programs.program import Exchange, Program
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, positions
from overheard.transcript.kind import (
    EVERYBODY,
    LABEL_COLUMN,
    Disclosure,
    Held,
    Knowledge,
    LabelledRecords,
    Rounds,
    RoundSum,
    column,
    kind,
    program_in,
    sealed,
)
from overheard.transcript.messages import RELEASE, releases_arrays, returns_gradients, update_of
from overheard.transcript.store import sent_to
from overheard.transcript.target import JOINT, attribute, joined


@kind
@dataclass(frozen=True)
class ClientProgram(Knowledge):
    """What every participant knows of what clients do: a recipe (model, loss, encoding and local
    update rule), or a program that trains no network."""

    name: ClassVar[str] = "what clients do"
    program: Recipe | Program

    def content(self) -> Any:
        return self.program.model_dump(mode="json")

    @property
    def recipe(self) -> Recipe:
        """How the network is trained; refused where clients run another program."""
        if isinstance(self.program, Recipe):
            return self.program
        raise ChooseAnotherAttack(
            f"attacks networks; these clients run the program {self.program.settings.name!r}: "
            "choose an attack on any program, which `overheard attacks` lists"
        )

    @property
    def plain_recipe(self) -> Recipe:
        """The same, for who takes updates for sums of gradients: refused where they are not."""
        if self.recipe.plain:
            return self.recipe
        raise ChooseAnotherAttack(
            f"reads updates of plain gradient steps; these clients train with "
            f"{self.recipe.optimiser.name!r} and its settings, or clip their gradients"
        )

    @classmethod
    def read(cls, held: Held) -> Self | None:
        program = program_in(held.recording)
        return None if program is None else cls(program.of(held.client))


@kind
@dataclass(frozen=True)
class Messages(Rounds):
    """What one client was sent and what it returned, one row per round in which it took part.

    ``sent`` and ``returned`` are (T, P) in the messages' precision; ``returned`` holds models,
    or gradients if ``payload`` says so. Of a program that trains no network they are (T,) messages,
    arrays by name. ``weights`` are the record counts that the client reported (NaN where it
    reported none). ``noise_sd``: noise that is known to be on every coordinate of ``returned``
    beside rounding; 0 as observed, set by who knows of a defence. ``sparse``: a coordinate that
    did not change was not sent, and says nothing.
    """

    name: ClassVar[str] = "individual messages"
    payload: str
    rounds: NDArray[np.int64]
    sent: NDArray[Any]
    returned: NDArray[Any]
    weights: NDArray[np.float64]
    noise_sd: float = 0.0
    sparse: bool = False

    def first(self, rounds: int) -> Messages:
        """What was observed after so many rounds."""
        return self.only(np.arange(rounds))

    def only(self, used: NDArray[np.int64]) -> Messages:
        """The messages as if nothing had been observed but in these rounds."""
        kept = {n: getattr(self, n)[used] for n in ("rounds", "sent", "returned", "weights")}
        return replace(self, **kept)

    def of_network(self) -> Messages:
        """These, for who reads models or gradients; refused where the client sends neither."""
        if releases_arrays(self.payload):
            raise ChooseAnotherAttack("attacks networks; this client runs another program")
        return self

    @property
    def gradients(self) -> bool:
        """Does the client return gradients, and not models?"""
        return returns_gradients(self.of_network().payload)

    def updates(self) -> NDArray[np.float64]:
        """``sent - returned`` (T, P), or the gradient itself where gradients are sent."""
        return update_of(self.of_network().payload, self.sent, self.returned)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The rounds with a client that trains no network, as its program takes them."""
        return tuple(map(Exchange, self.rounds.tolist(), self.sent, self.returned))

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording, client = held.recording, held.client
        if client == EVERYBODY:
            return None
        if any(entry.aggregated for entry in recording.rounds):
            raise ListenLonger(
                f"{recording.path} holds sums of updates only, under secure aggregation: there is "
                "no link to listen to; audit as 'secure-server'"
            )
        observed, weights = [], []
        for entry, sent, returned in recording.releases(client):
            held.finite(entry.number, sent, f"sent to client {client!r}")
            held.finite(entry.number, returned, f"returned by client {client!r}")
            observed.append(Exchange(entry.number, sent, returned))
            weights.append(entry.weights.get(client, np.nan))
        if not observed:
            raise ListenLonger(
                f"client {client!r} never took part; there is nothing to listen to: record more "
                "rounds or audit another client"
            )
        numbers, models, answers = held.rows(observed)
        return cls(recording.payload, numbers, models, answers, sealed(np.array(weights)))


@kind
@dataclass(frozen=True)
class Broadcast(Knowledge):
    """What the server sends everybody: who takes part, and the last model sent (P,).

    Every participant has it, so whoever knows only this has listened to nobody. ``model`` is None
    where the whole federation is asked about, or where there is none: clients run a program.
    """

    name: ClassVar[str] = "the global model"
    clients: tuple[str, ...]
    model: NDArray[np.floating[Any]] | None = None

    def last(self) -> NDArray[np.float64]:
        """The last model sent to the client."""
        if self.model is None:
            raise FixData(
                "no client's last model is known: the whole federation was asked about, or its "
                "clients train no network"
            )
        return self.model.astype(np.float64)

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording, client = held.recording, held.client
        if client == EVERYBODY or isinstance(program_in(recording), Program):
            return cls(recording.clients)
        for entry in reversed(recording.rounds):
            key = sent_to(client, entry)
            if client in entry.participants and key in entry.spans:
                (sent,) = recording.messages(entry, [key])
                held.finite(entry.number, sent, f"sent to client {client!r}")
                return cls(recording.clients, sealed(held.flat(sent)))
        return None


@kind
@dataclass(frozen=True)
class Sums(Rounds):
    """The sum of each round's answers and who took part; never a single answer.

    Iterating reads one round after the other, so that memory does not grow with their number.
    ``participation`` (T, N) is 1 where the client of the column took part in the round of the row.
    """

    name: ClassVar[str] = "sums of messages"
    clients: tuple[str, ...]
    rounds: NDArray[np.int64]
    participation: NDArray[np.float64]
    _rows: Sequence[Any] | NDArray[Any]
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What attacks computed from these sums alone, for those that ask next; gone with the sums."""

    @classmethod
    def of_rounds(cls, clients: tuple[str, ...], observed: Iterable[RoundSum]) -> Self:
        """The rounds, copied one by one into a file that has no name: what was observed need not
        fit in memory, and a view must not lead back to the recording."""
        numbers: list[int] = []
        rows: list[NDArray[np.float64]] = []
        with tempfile.TemporaryFile() as file:
            for one in observed:
                row = np.zeros(len(clients))
                row[one.participants] = 1.0
                rows.append(row)
                numbers.append(one.number)
                pair = [("sent", one.sent.dtype, one.sent.shape), ("total", "f8", one.total.shape)]
                file.write(np.array((one.sent, one.total), pair).tobytes())
            file.flush()
            kept = np.memmap(file, pair, "r") if rows else np.zeros(0)
        participation = np.array(rows).reshape(len(rows), len(clients))
        return cls(clients, sealed(np.array(numbers, np.int64)), sealed(participation), kept)

    def __getitem__(self, row: int) -> RoundSum:
        row = range(len(self))[row]
        who = np.flatnonzero(self.participation[row])
        sent, total = self._rows[row]
        return RoundSum(int(self.rounds[row]), sent, total, who)

    def __iter__(self) -> Iterator[RoundSum]:
        return (self[row] for row in range(len(self)))

    def first(self, rounds: int) -> Sums:
        """What was observed after so many rounds."""
        return replace(self, rounds=self.rounds[:rounds], participation=self.participation[:rounds])

    def as_messages(self) -> Messages:
        """The sums of a program's answers as those of one client that holds all records."""
        sent, total = (column([row[way] for row in self._rows[: len(self)]]) for way in (0, 1))
        return Messages(RELEASE, self.rounds, sent, total, np.full(len(self), np.nan))

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording = held.recording
        if not isinstance(program_in(recording), Program):
            wanted = held.target.asked.sums
            return cls.of_rounds(recording.clients, held.sums()) if wanted else None
        if not recording.rounds or not all(entry.aggregated for entry in recording.rounds):
            return None
        observed = [Exchange(one.number, one.sent, one.total) for one in held.sums()]
        numbers, sent, total = held.rows(observed)
        everybody = np.ones((len(numbers), len(recording.clients)))
        return cls(recording.clients, numbers, everybody, list(zip(sent, total, strict=True)))


# --- what is known besides the messages ----------------------------------------------------------


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
        if len(read.settings) != len(read.values):
            raise ValueError("give each value one combination of the columns' values")
        return read


@kind
@dataclass(frozen=True)
class AttributePrior(Knowledge):
    """Share of each value of the domain in the population at large (not in this client)."""

    name: ClassVar[str] = "attribute prior"
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(s >= 0 for s in self.shares) or not abs(sum(self.shares) - 1) <= 1e-6:
            raise FixData(f"attribute prior {self.shares}: give shares above 0 that sum to one")

    @classmethod
    def disclosed(cls, world: Disclosure) -> Self | None:
        domain = world.settled(AttributeDomain)
        if not isinstance(domain, AttributeDomain):
            return None
        which = domain.positions(world.population)
        return cls(tuple(float(np.mean(which == k)) for k in range(len(domain.values))))


@kind
@dataclass(frozen=True)
class CandidatePool(LabelledRecords):
    """Records of which some are the client's and the others nobody's; ``labels`` in their order.

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
    of_outsiders: ClassVar[bool] = True

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
            given = f"{len(self.records)} records and {len(self.labels)} labels"
            raise FixData(f"the target is one record with its label; given: {given}")


@kind
@dataclass(frozen=True)
class SuspectedBehaviour(Knowledge):
    """What a dishonest client is thought to do (kerkouche2023 section 4).

    ``inversion``: sends its update negated; ``ascent``: ascends the loss in place of descending;
    ``free-rider``: does not train, and returns the model as it was, or noise.
    """

    name: ClassVar[str] = "suspected behaviour"
    behaviour: Annotated[str, Field(pattern="^(inversion|ascent|free-rider)$")]


@kind
@dataclass(frozen=True)
class ShardSize(Knowledge):
    """How many records each client holds (kerkouche2023's |D_i|, the same for all)."""

    name: ClassVar[str] = "shard size"
    records: Annotated[int, Field(ge=1)]


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
    """What clients and server do against listeners, as every participant knows.

    ``clip_norm``: updates longer than this were scaled down to it (None: none were). ``noise_sd``:
    standard deviation of the Gaussian noise on each coordinate of an update (0: none), in the
    update's own units; ``server_noise_sd``: of the model that is sent. ``promises``: the same in
    words. Which updates were clipped, and by how much, is not known.

    ``effects``, of each name: ``additive``, an update is still a sum over records, and the noise;
    ``sparse``, a coordinate of 0 was not sent; ``repeatable``, who trains again can do the same to
    the update, knowing what stands here.
    """

    name: ClassVar[str] = "applied defence"
    names: tuple[str, ...]
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    noise_sd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
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


@kind
@dataclass(frozen=True)
class BatchOrder(Knowledge):
    """The order of a client's batches: that of one of these seeds.

    The client's generator was seeded with one of ``seeds`` by one of ``conventions`` (none named:
    any of `overheard.programs.orders`); one of each is a known order. Without this knowledge an
    adversary still tries common seeds.
    """

    name: ClassVar[str] = "batch order"
    per_client: ClassVar[bool] = True
    by_place: ClassVar[bool] = True
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(min_length=1)]
    conventions: tuple[tuple[Source, Restart], ...] = ()

    def tried(self) -> tuple[Convention, ...]:
        """The conventions that may be."""
        return tuple(Convention(*c) for c in self.conventions) or CONVENTIONS

    def known(self, place: Place) -> NDArray[np.int64] | None:
        """The orders (epochs, records) of a round, where they are known."""
        if len(self.seeds) == len(self.conventions) == 1:
            return np.asarray(orders(self.tried()[0], self.seeds, place)[0])
        return None
