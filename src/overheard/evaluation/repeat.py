"""Did clients that train no network answer as their program says? Their true records answer again.

Beside `replay`, which does the same for networks. A program without chance gives one answer, to
rounding; one that draws at random is not checked, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overheard.errors import OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import MOST_OFF, ROUNDS
from overheard.programs.program import Program
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.knowledge import Releases
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat

_HEARING = Threat("replay", frozenset({Releases}), "")


def repeated(
    recording: Recording, program: Program, truth: Mapping[str, Records], clients: Sequence[str]
) -> tuple[Replay, ...]:
    """Whether each client's messages are what the program makes of its records."""
    return tuple(_repeated(recording, program, truth, client) for client in clients)


def _repeated(
    recording: Recording, program: Program, truth: Mapping[str, Records], client: str
) -> Replay:
    if client not in truth:
        return _unchecked(client, "truth/ has no records of it")
    if program.chance:
        return _unchecked(client, "the program draws at random, and nobody repeats that")
    try:
        heard = observe(recording, _HEARING, LOCAL_MODEL, client).know(Releases).exchanges
        some = heard[:: max(1, -(-len(heard) // ROUNDS))]
        rng = stream(0, "repeat")
        offs = [
            program.distance(one.returned, program.respond(one.sent, truth[client], rng))
            for one in some
        ]
    except OverheardError as error:
        return _unchecked(client, str(error))
    worst = max(range(len(some)), key=offs.__getitem__)
    return Replay(
        client=client,
        outcome="does not fit" if offs[worst] else "fits",
        rounds=tuple(one.number for one in some),
        round=some[worst].number,
        off=min(offs[worst], MOST_OFF),
        by_chance=0.0,
    )


def _unchecked(client: str, reason: str) -> Replay:
    return Replay(client=client, outcome="cannot be checked", reason=reason)
