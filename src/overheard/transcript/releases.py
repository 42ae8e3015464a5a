"""What do clients send that train no network, and what is known of what they do?

Beside `Link`: the messages of such a link have no model in them and may differ in names and shapes,
each way and from round to round, so they are held as they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording, ListenLonger
from overheard.programs.program import Exchange, Message, Program
from overheard.transcript.kind import (
    EVERYBODY,
    Held,
    Messages,
    SummedMessages,
    Training,
    kind,
    program_in,
    sealed,
)


@kind
@dataclass(frozen=True)
class ClientProgram(Training):
    """What clients do that train no network: what every participant is told."""

    name: ClassVar[str] = "client program"
    program: Program

    def content(self) -> Any:
        return self.program.model_dump(mode="json")

    @classmethod
    def read(cls, held: Held) -> Self | None:
        program = program_in(held.recording)
        return None if program is None else cls(program)


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
        heard = [
            Exchange(
                entry.number,
                _checked(held, entry.number, sent, "sent to"),
                _checked(held, entry.number, returned, "returned by"),
            )
            for entry, sent, returned in recording.releases(client)
        ]
        if not heard:
            raise ListenLonger(
                f"client {client!r} never took part; there is nothing to listen to: record more "
                "rounds or audit another client"
            )
        weights = {e.number: e.weights.get(client, np.nan) for e in recording.rounds}
        reported = sealed(np.array([weights[one.number] for one in heard]))
        return cls(program.assembled(heard), reported)


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
        heard = []
        for entry, sent, total in recording.aggregates():
            if set(entry.participants or ()) != set(recording.clients):
                raise ListenLonger(
                    f"{recording.path}: not everybody took part in round {entry.number}, or nobody "
                    "said who; sums of releases are read where all clients are in each"
                )
            ways = (_checked(held, entry.number, a, "in a sum with") for a in (sent, total))
            heard.append(Exchange(entry.number, *ways))
        return cls(program.assembled(heard), recording.clients)


def _checked(held: Held, number: int, arrays: Message, way: str) -> Message:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FixRecording(
                f"{held.recording.path}: round {number}: {name!r} {way} client {held.client!r} "
                "holds NaN or infinity (a diverged federation?); audit fewer rounds"
            )
    return {name: sealed(array) for name, array in arrays.items()}
