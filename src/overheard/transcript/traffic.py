"""What went over the wire, as an adversary holds it, and what is known of what clients do with it.

One client's `Messages`, the `Broadcast`, the `Sums` of all clients' answers: read from ``wire/``,
and never written to ``side/``. Of clients that train a network a message is one row of numbers, its
arrays one after the other in the order of the model. What the clients of any other program send may
differ in names and shapes, and is held as it was sent: arrays by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixData, FixRecording, ListenLonger
from overheard.programs.program import Exchange, Message, Program
from overheard.programs.recipe import Recipe
from overheard.transcript.kind import (
    EVERYBODY,
    Held,
    Knowledge,
    Rounds,
    kind,
    program_in,
    recipe_of,
    sealed,
)
from overheard.transcript.messages import RELEASE, releases_arrays, returns_gradients
from overheard.transcript.store import Recording


@kind
@dataclass(frozen=True)
class ClientProgram(Knowledge):
    """What every participant is told of what clients do: a recipe (model, loss, encoding and local
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
            f"attacks networks; these clients run the program {self.program.family!r}: choose an "
            "attack on any program, which `overheard attacks` lists"
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

    ``sent`` and ``returned`` are (T, P) in the precision of the wire; ``returned`` holds models,
    or gradients if ``payload`` says so. Of a program that trains no network they are (T,) messages,
    arrays by name. ``weights`` are the record counts that the client reported (NaN where it
    reported none). ``noise_sd``: noise that is known to be on every coordinate of ``returned``
    beside rounding; 0 as heard, set by who was told of a defence. ``sparse``: a coordinate that
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
        """What was heard after so many rounds."""
        return self.only(np.arange(rounds))

    def only(self, used: NDArray[np.int64]) -> Messages:
        """The messages as if nothing had been heard but in these rounds."""
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
        if self.gradients:
            return self.returned.astype(np.float64)
        return np.asarray(self.sent.astype(np.float64) - self.returned.astype(np.float64))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The rounds with a client that trains no network, as its program takes them."""
        rows = zip(self.rounds.tolist(), self.sent, self.returned, strict=True)
        return tuple(Exchange(*row) for row in rows)

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
            _check_finite(held, entry.number, sent, f"sent to client {client!r}")
            _check_finite(held, entry.number, returned, f"returned by client {client!r}")
            observed.append(Exchange(entry.number, sent, returned))
            weights.append(entry.weights.get(client, np.nan))
        if not observed:
            raise ListenLonger(
                f"client {client!r} never took part; there is nothing to listen to: record more "
                "rounds or audit another client"
            )
        numbers, models, answers = _rows(recording, observed)
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
        last = recording.last_sent(client)
        if last is None:
            return None
        _check_finite(held, *last, f"sent to client {client!r}")
        return cls(recording.clients, sealed(_flat(recording, last[1])))


@dataclass(frozen=True)
class RoundSum:
    """A round under secure aggregation: the model ``sent`` (P,), in the precision of the wire, and
    ``total`` (P,), the sum over ``participants`` (positions in the clients' names) of sent minus
    returned, or of the gradients where gradients are sent. Of a program that trains no network both
    are arrays by name, and the sum is of what was returned."""

    number: int
    sent: Any
    total: Any
    participants: NDArray[np.int64]


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
        """The rounds, copied one by one into a file that has no name: what was heard need not fit
        in memory, and a view must not lead back to the recording."""
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
        if not 0 <= row < len(self):
            raise IndexError(f"round {row} of {len(self)}")
        who = np.flatnonzero(self.participation[row])
        sent, total = self._rows[row]
        return RoundSum(int(self.rounds[row]), sent, total, who)

    def __iter__(self) -> Iterator[RoundSum]:
        return (self[row] for row in range(len(self)))

    def first(self, rounds: int) -> Sums:
        """What was heard after so many rounds."""
        return replace(self, rounds=self.rounds[:rounds], participation=self.participation[:rounds])

    def as_messages(self) -> Messages:
        """The sums of a program's answers as those of one client that holds all records."""
        sent, total = (_column([row[way] for row in self._rows[: len(self)]]) for way in (0, 1))
        return Messages(RELEASE, self.rounds, sent, total, np.full(len(self), np.nan))

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording = held.recording
        if not isinstance(program_in(recording), Program):
            wanted = held.target.asked.sums
            return cls.of_rounds(recording.clients, _round_sums(held)) if wanted else None
        if not recording.rounds or not all(entry.aggregated for entry in recording.rounds):
            return None
        observed = [Exchange(one.number, one.sent, one.total) for one in _round_sums(held)]
        numbers, sent, total = _rows(recording, observed)
        everybody = np.ones((len(numbers), len(recording.clients)))
        return cls(recording.clients, numbers, everybody, list(zip(sent, total, strict=True)))


def _round_sums(held: Held) -> Iterator[RoundSum]:
    """The sums of a recording, round by round; refused where nobody can tell whose they are."""
    recording = held.recording
    program = program_in(recording)
    place = {name: position for position, name in enumerate(recording.clients)}
    for entry, sent, total in recording.aggregates():
        if entry.participants is None:
            raise ListenLonger(
                f"{recording.path}: round {entry.number} does not say who took part; without the "
                "participants of every round nobody can tell which client did what: record them"
            )
        for message in (sent, total):
            _check_finite(held, entry.number, message, "to or from all clients")
        who = np.array(sorted(place[c] for c in entry.participants), dtype=np.int64)
        if not isinstance(program, Program):
            yield RoundSum(entry.number, _flat(recording, sent), _flat(recording, total), who)
        elif len(who) == len(place):
            yield RoundSum(entry.number, sent, total, who)
        else:
            raise ListenLonger(
                f"{recording.path}: not everybody took part in round {entry.number}; sums of "
                "releases are read where all clients are in each"
            )


def _check_finite(held: Held, number: int, message: Message, way: str) -> None:
    """Refuse a message whose numbers are none; from here on it is read-only."""
    for name, array in message.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FixRecording(
                f"{held.recording.path}: round {number}: {name!r} {way} "
                "holds NaN or infinity (a diverged federation?); lower the learning rate or audit "
                "fewer rounds"
            )
        sealed(array)


def _rows(recording: Recording, observed: Sequence[Exchange]) -> tuple[NDArray[Any], ...]:
    """Numbers, messages sent and messages returned (T, ...), as the clients' program has them."""
    program = program_in(recording)
    if isinstance(program, Program):
        observed = program.assembled(observed)
    ways: list[list[Any]] = [[one.sent for one in observed], [one.returned for one in observed]]
    if not isinstance(program, Program):
        ways = [[_flat(recording, message) for message in way] for way in ways]
    return tuple(_column(each) for each in ([one.number for one in observed], *ways))


def _column(values: Sequence[Any]) -> NDArray[Any]:
    """One a round: of messages by name an array of them."""
    mixed = any(isinstance(value, Mapping) for value in values)
    return sealed(np.array(values, dtype=object if mixed else None))


def _flat(recording: Recording, message: Message) -> NDArray[Any]:
    """The arrays of a message as one row (P,), in the order of the model that is described."""
    recipe = recipe_of(recording)
    idle = recipe.model.idle if recipe else ()
    arrays = {name: array for name, array in message.items() if name not in idle}
    observed = {name: array.shape for name, array in arrays.items()}
    declared = dict(recipe.model.layout() if recipe else observed.items())
    if declared != observed:
        raise FixRecording(
            f"{recording.path}: the messages carry {observed} but the declared model has "
            f"{declared}; they come from a different model, or the recipe's wire_names are wrong"
        )
    return np.concatenate([arrays[name].reshape(-1) for name in declared])
