"""From a recording and a threat model to a view: the only door through which attacks are fed."""

from __future__ import annotations

from typing import Any

from overheard.errors import FixConfig, FixData
from overheard.transcript.kind import EVERYBODY, LABEL_COLUMN, Held, kinds, read, recipe_of, told_of
from overheard.transcript.knowledge import InTheClear
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import View

__all__ = [
    "EVERYBODY", "LABEL_COLUMN", "MEMBER_COLUMN", "POSITIVE_COLUMN", "in_the_clear", "observe",
    "recipe_of", "told_of",
]  # fmt: skip
MEMBER_COLUMN = "__member__"  # in truth/ only
POSITIVE_COLUMN = "__positive__"  # in truth/ only


def observe(recording: Recording, threat: Threat, target: Target, client: str) -> View:
    """What the adversary of ``threat`` holds when it asks ``target`` about ``client``.

    Kinds that are granted but absent from the recording are simply not in the view. What is asked
    of all clients at once, as a property is, has "" as its ``client``.
    """
    asked = target.asked
    if asked.together != (client == EVERYBODY):
        raise FixConfig(
            f"{target.key!r} is asked of {client!r}; a property is asked of the whole federation "
            "(client ''), anything else of one client"
        )
    if client != EVERYBODY and client not in recording.clients:
        raise FixConfig(f"no client {client!r}; the clients are {', '.join(recording.clients)}")
    if threat.isolates:
        _check_isolated(recording, threat, client)
    # a question may ask what side knowledge for another one is enough to answer
    held = Held(recording, Target.parse(asked.source(target.key)), client)
    pieces = {kind: read(kind, held) for kind in kinds().values() if kind in threat.grants}
    knowledge: dict[type[Any], Any] = {k: p for k, p in pieces.items() if p is not None}
    return View(client, target, threat.name, knowledge)


def _check_isolated(recording: Recording, threat: Threat, client: str) -> None:
    isolated = recording.about.get("isolated", "")
    if not isolated:
        raise FixConfig(
            f"{recording.path}: no client was isolated here, so {threat.name!r} was not at work; "
            "audit as 'server', or record with training.isolate"
        )
    if client != isolated:
        raise FixData(
            f"client {client!r} was not isolated, only {isolated!r} was; audit it as 'server'"
        )


def in_the_clear(recording: Recording) -> InTheClear:
    """What the messages said besides the models; nothing if the recorder noticed nothing."""
    return read(InTheClear, Held(recording, LOCAL_MODEL, EVERYBODY)) or InTheClear((), {})
