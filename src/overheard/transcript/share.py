"""What may be handed on of a recording: one target's view under one threat model, and no more.

A recording as it is made is for nobody else, not even without ``truth/``: the public records of
each target hold the secrets of the others. Here everything is left out that is not named: the
messages that the threat model hears, the kinds of knowledge that it grants for this target, and of
the header the names of clients and data. Each client's rows are put into a random order: the
owner's may be that of a column which is left out.

What the messages themselves give away stays in them; that is what an audit measures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from secrets import randbits
from typing import Any

from overheard.errors import FixConfig, FixRecording, ListenLonger
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.kind import LABEL_COLUMN, Knowledge, kinds, program_in
from overheard.transcript.knowledge import ClientProgram, Messages, Sums
from overheard.transcript.store import Recorder, Recording, sent_to
from overheard.transcript.target import Target, chosen_targets, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import isolated_in


@dataclass(frozen=True)
class Shared:
    """What was written: the kinds of knowledge, the clients, and what its owner should know."""

    path: Path
    kinds: tuple[str, ...]
    clients: tuple[str, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]


def share(
    recording: Recording,
    target: str,
    threat: Threat,
    out: str | Path,
    clients: Iterable[str] = (),
    keep: Iterable[str] = (),
) -> Shared:
    """Write to ``out`` what the adversary of ``threat`` holds who asks ``target``.

    It is a recording that opens and verifies, on which attacks run; it has no ``truth/``, so that
    nothing is scored. ``clients``: these links only (default: each client's). ``keep``: columns
    that are secrets of other targets and may be known all the same; without them, an attack that
    needs a client's whole record does not run, and says which column it lacks.
    """
    (asked,) = chosen_targets(targets_in(recording.targets), [target], "the recording")
    names = _observed(recording, threat, tuple(clients))
    secrets = _secrets(recording, asked)
    for column in keep:
        if column not in secrets:
            others = ", ".join(sorted(secrets)) or "none"
            raise FixConfig(f"{column!r} is no secret of another target; they are: {others}")
        secrets.remove(column)
    about = {key: recording.about[key] for key in ("data", "origin") if key in recording.about}
    about["clients"] = list(names)
    if threat.isolates:
        about["isolated"] = recording.about["isolated"]
    written: list[str] = []
    left_out: set[str] = set()
    secret = randbits(128)
    with Recorder(out, recording.payload, about) as recorder:
        known = kinds()
        for name, content, key in recording.described(asked.asked.source(asked.key)):
            if known.get(name) not in threat.grants:
                continue
            content, gone = _without(known[name], content, secrets, names)
            left_out |= gone
            if known[name].per_client:
                content = {c: _shuffled(piece, c, secret) for c, piece in content.items()}
            if content:
                recorder.side(name, content, key)
                written.append(name)
        if Messages in threat.grants:
            _copy_rounds(recording, recorder, names)
        else:
            for entry, sent, total in recording.aggregates():
                recorder.aggregated(entry.number, sent, total, entry.participants)
        if not recording.closed:
            recorder.release()
    names_out = tuple(sorted(left_out))
    return Shared(Path(out), tuple(written), names, names_out, _remarks(recording, names_out))


def _observed(recording: Recording, threat: Threat, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The clients whose links are shared; refuses what the threat model does not hear."""
    if not recording.rounds:
        raise FixRecording(f"{recording.path}: no round was recorded; there is nothing to share")
    for name in wanted:
        if name not in recording.clients:
            raise FixConfig(f"no client {name!r}; the clients are {', '.join(recording.clients)}")
    if Messages in threat.grants:
        if any(entry.aggregated for entry in recording.rounds):
            raise ListenLonger(
                f"{recording.path} holds sums of updates only: there is no link to share; share "
                "it for 'secure-server'"
            )
    elif Sums not in threat.grants:
        raise FixConfig(f"the threat model {threat.name!r} hears nothing; choose another")
    elif wanted:
        raise FixConfig(f"{threat.name!r} hears sums over all clients; leave the clients out")
    if not threat.isolates:
        return tuple(c for c in recording.clients if not wanted or c in wanted)
    isolated = isolated_in(recording, threat)
    if set(wanted) - {isolated}:
        raise FixConfig(f"only {isolated!r} was isolated; share the others for 'server'")
    return (isolated,)


def _secrets(recording: Recording, asked: Target) -> set[str]:
    """The columns that other targets ask about; `LABEL_COLUMN` where labels are asked about."""
    others = {Target.parse(key) for key in recording.targets} - {asked}
    program = program_in(recording)
    found = {column for other in others for column in other.asked.hidden(other, program)}
    return found - set(asked.columns)


def _without(
    kind: type[Knowledge], content: Any, secrets: set[str], clients: Collection[str]
) -> tuple[Any, set[str]]:
    """A piece of knowledge without other secrets and other clients, and what was left out."""
    if kind.by_place:
        return {}, {kind.name}
    if kind.per_client:
        content = {c: piece for c, piece in content.items() if c in clients}
    elif kind is ClientProgram and "own" in content:
        own = {c: encoding for c, encoding in content["own"].items() if c in clients}
        content = {**content, "own": own}
    tables = isinstance(content, dict) and any(isinstance(t, Records) for t in content.values())
    if not tables or kind.of_outsiders:
        return content, set()
    gone = {column for table in content.values() for column in table.columns} & secrets
    if LABEL_COLUMN in gone:  # the table is of no use without its labels
        return {}, gone
    return {c: table.without(*gone) for c, table in content.items()}, gone


def _shuffled(piece: Any, client: str, secret: int) -> Any:
    """A client's rows in an order that nobody can draw again, the same for all of its tables of one
    length: public records and their labels stay together."""
    if not isinstance(piece, Records):
        return piece
    return piece.take(stream(secret, client, len(piece)).permutation(len(piece)))


def _remarks(recording: Recording, left_out: tuple[str, ...]) -> tuple[str, ...]:
    lines = []
    if left_out:
        lines.append(
            f"left out, as secrets of other targets or since rows are in another order here: "
            f"{', '.join(left_out)}. An attack that needs whole records does not run without "
            "them; --keep names a column that may be known"
        )
    private = getattr(program_in(recording), "private", None)
    random = recording.side("AppliedDefence") is not None or private
    # few enough to try: whoever has the messages needs no header for them
    if random and recording.seed is not None and abs(recording.seed) < 1 << 64:
        lines.append(
            f"the defence drew its noise from the seed {recording.seed}. It is not in the folder, "
            "but there are few such numbers, and whoever guesses it draws the noise again: to "
            "share this federation, simulate it with a secret --seed of 20 digits or more"
        )
    return tuple(lines)


def _copy_rounds(recording: Recording, recorder: Recorder, clients: Collection[str]) -> None:
    """What went over the links of these clients; a round in which none took part is left out."""
    for entry in recording.rounds:
        back = [client for client in clients if ("returned", client) in entry.spans]
        wanted = dict.fromkeys([sent_to(client, entry) for client in back])
        wanted |= dict.fromkeys([("returned", client) for client in back])
        if back:
            observed = dict(zip(wanted, recording.messages(entry, wanted), strict=True))
            weights = {c: w for c, w in entry.weights.items() if c in clients}
            recorder.messages(entry.number, observed, {"weights": weights})
