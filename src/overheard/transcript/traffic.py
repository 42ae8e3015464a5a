"""What went over the wire, as an adversary holds it, and what is known of what clients do with it.

Of clients that train a network: one client's `Link`, the `Broadcast`, the `Sums`. Of clients that
run another program: `Releases` and `SummedReleases`, whose messages have no model in them and may
differ in names and shapes, so that they are held as they were sent. All of these are read from the
messages, in ``wire/``, and never written to ``side/``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording, ListenLonger
from overheard.programs.program import Exchange, Message, Program
from overheard.programs.recipe import Recipe
from overheard.transcript.kind import (
    EVERYBODY,
    Held,
    Knowledge,
    Messages,
    SummedMessages,
    Training,
    kind,
    program_in,
    recipe_of,
    sealed,
)
from overheard.transcript.messages import returns_gradients, update_of
from overheard.transcript.store import Recording


@kind
@dataclass(frozen=True)
class LocalTraining(Training):
    """Model, loss, encoding and local update rule: what every participant is told."""

    name: ClassVar[str] = "local training recipe"
    program: Recipe

    @property
    def recipe(self) -> Recipe:
        return self.program

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recipe = recipe_of(held.recording)
        return None if recipe is None else cls(recipe.of(held.client))


@kind
@dataclass(frozen=True)
class ClientProgram(Training):
    """What clients do that train no network: what every participant is told."""

    name: ClassVar[str] = "client program"
    program: Program

    @classmethod
    def read(cls, held: Held) -> Self | None:
        program = program_in(held.recording)
        return None if program is None else cls(program)


@kind
@dataclass(frozen=True)
class Link(Messages):
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

    def first(self, rounds: int) -> Link:
        """What was heard after so many rounds."""
        return self.only(np.arange(rounds))

    def only(self, used: NDArray[np.int64]) -> Link:
        """The link as if it had been heard in these rounds alone."""
        kept = {n: getattr(self, n)[used] for n in ("rounds", "sent", "returned", "weights")}
        return replace(self, **kept)

    @property
    def gradients(self) -> bool:
        """Does the client return gradients, and not models?"""
        return returns_gradients(self.payload)

    def updates(self) -> NDArray[np.float64]:
        """``sent - returned`` (T, P), or the gradient itself where gradients are sent."""
        return update_of(self.payload, self.sent, self.returned)

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording = held.recording
        if held.client == EVERYBODY or program_in(recording) is not None:
            return None
        if any(entry.aggregated for entry in recording.rounds):
            raise ListenLonger(
                f"{recording.path} holds sums of updates only, under secure aggregation: there is "
                "no link to listen to; audit as 'secure-server'"
            )
        observed, weights = _exchanges(held)
        rows = [[_flat(recording, message) for message in (e.sent, e.returned)] for e in observed]
        return cls(
            recording.payload,
            sealed(np.array([exchange.number for exchange in observed])),
            sealed(np.stack([sent for sent, _ in rows])),
            sealed(np.stack([returned for _, returned in rows])),
            weights,
        )


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
            raise FixData("the whole federation was asked about; no client's last model is known")
        return self.model.astype(np.float64)

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording, client = held.recording, held.client
        if client == EVERYBODY or program_in(recording) is not None:
            return cls(recording.clients)
        last = recording.last_sent(client)
        if last is None:
            return None
        model = _flat(recording, _finite(held, *last, f"sent to client {client!r}"))
        return cls(recording.clients, sealed(model))


@dataclass(frozen=True)
class RoundSum:
    """A round under secure aggregation: the model ``sent`` (P,), in the precision of the wire, and
    ``total`` (P,), the sum over ``participants`` (positions in the clients' names) of sent minus
    returned, or of the gradients where gradients are sent."""

    number: int
    sent: NDArray[np.floating[Any]]
    total: NDArray[np.float64]
    participants: NDArray[np.int64]


@kind
@dataclass(frozen=True)
class Sums(SummedMessages):
    """The sum of each round's updates and who took part; never a single update.

    Iterating reads one round after the other, so that memory does not grow with their number.
    ``participation`` (T, N) is 1 where the client of the column took part in the round of the row.
    """

    name: ClassVar[str] = "sums of updates"
    clients: tuple[str, ...]
    rounds: NDArray[np.int64]
    participation: NDArray[np.float64]
    _rows: NDArray[Any]
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

    def __len__(self) -> int:
        return len(self.rounds)

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

    @classmethod
    def read(cls, held: Held) -> Self | None:
        if not held.target.asked.sums or program_in(held.recording) is not None:
            return None
        recording = held.recording
        place = {name: position for position, name in enumerate(recording.clients)}

        def rounds() -> Iterator[RoundSum]:
            for entry, sent, total in recording.aggregates():
                if entry.participants is None:
                    raise ListenLonger(
                        f"{recording.path}: round {entry.number} does not say who took part; "
                        "without the participants of every round nobody can tell which client did "
                        "what: record them"
                    )
                model, added = (
                    _flat(recording, _finite(held, entry.number, message, "to or from all clients"))
                    for message in (sent, total)
                )
                who = np.array([place[c] for c in entry.participants], dtype=np.int64)
                yield RoundSum(entry.number, model, added, np.sort(who))

        return cls.of_rounds(recording.clients, rounds())


@kind
@dataclass(frozen=True)
class Releases(Messages):
    """The messages on the link of a client that runs a program, as they were: an `Exchange` a round
    in which it took part. ``weights``: the record counts that it reported (NaN: none)."""

    name: ClassVar[str] = "individual releases"
    exchanges: tuple[Exchange, ...]
    weights: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.exchanges)

    def first(self, rounds: int) -> Releases:
        """What was heard after so many rounds."""
        return replace(self, exchanges=self.exchanges[:rounds], weights=self.weights[:rounds])

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording, client = held.recording, held.client
        program = program_in(recording)
        summed = bool(recording.rounds) and all(entry.aggregated for entry in recording.rounds)
        if client == EVERYBODY or program is None or summed:
            return None
        observed, weights = _exchanges(held)
        return cls(program.assembled(observed), weights)


@kind
@dataclass(frozen=True)
class SummedReleases(SummedMessages):
    """What clients that run a program released, added up over all of them in every round (secure
    aggregation), beside what they were sent: never a single release. ``clients``: whose."""

    name: ClassVar[str] = "sums of releases"
    exchanges: tuple[Exchange, ...]
    clients: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.exchanges)

    def first(self, rounds: int) -> SummedReleases:
        """What was heard after so many rounds."""
        return replace(self, exchanges=self.exchanges[:rounds])

    @classmethod
    def read(cls, held: Held) -> Self | None:
        recording = held.recording
        program = program_in(recording)
        if program is None or not recording.rounds:
            return None
        if not all(entry.aggregated for entry in recording.rounds):
            return None
        observed = []
        for entry, sent, total in recording.aggregates():
            if set(entry.participants or ()) != set(recording.clients):
                raise ListenLonger(
                    f"{recording.path}: not everybody took part in round {entry.number}, or nobody "
                    "said who; sums of releases are read where all clients are in each"
                )
            both = (_finite(held, entry.number, m, "to or from all clients") for m in (sent, total))
            observed.append(Exchange(entry.number, *both))
        return cls(program.assembled(observed), recording.clients)


def _exchanges(held: Held) -> tuple[list[Exchange], NDArray[np.float64]]:
    """What a client was sent and returned in each round, and the record counts that it reported."""
    observed, weights = [], []
    for entry, sent, returned in held.recording.releases(held.client):
        ways = ((sent, "sent to"), (returned, "returned by"))
        both = (
            _finite(held, entry.number, message, f"{way} client {held.client!r}")
            for message, way in ways
        )
        observed.append(Exchange(entry.number, *both))
        weights.append(entry.weights.get(held.client, np.nan))
    if not observed:
        raise ListenLonger(
            f"client {held.client!r} never took part; there is nothing to listen to: record more "
            "rounds or audit another client"
        )
    return observed, sealed(np.array(weights))


def _finite(held: Held, number: int, message: Message, way: str) -> Message:
    """The message, read-only, if its numbers are numbers."""
    for name, array in message.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FixRecording(
                f"{held.recording.path}: round {number}: {name!r} {way} "
                "holds NaN or infinity (a diverged federation?); lower the learning rate or audit "
                "fewer rounds"
            )
    return {name: sealed(array) for name, array in message.items()}


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
