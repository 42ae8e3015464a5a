"""From a recording and a threat model to a view: the only door through which attacks are fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from overheard.errors import FixConfig, FixData, FixRecording, ListenLonger
from overheard.foreign.limits import check
from overheard.learning.recipe import Layout, Recipe
from overheard.learning.records import Records
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Broadcast,
    CandidatePool,
    EverybodysRecords,
    GroupCounts,
    Groups,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
    RoundSum,
    ShardSize,
    Sums,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.store import Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import View

LABEL_COLUMN = "__label__"
MEMBER_COLUMN = "__member__"  # in truth/ only
POSITIVE_COLUMN = "__positive__"  # in truth/ only
EVERYBODY = ""  # the client of a view of the whole federation


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
    source = Target.parse(asked.source(target.key))  # whose side knowledge serves
    knowledge: dict[type[Any], Any] = {}
    for kind, load in _LOADERS.items():
        if kind in threat.grants:
            try:
                piece = load(recording, source, client)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise FixRecording(
                    f"{recording.path / 'side'}: {kind.__name__} for {target.key!r} is not what "
                    f"the format says ({type(error).__name__}: {error}); record again"
                ) from error
            if piece is not None:
                knowledge[kind] = piece
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


def recipe_of(recording: Recording) -> Recipe | None:
    """The training recipe that the recording carries, if any."""
    content = recording.side("LocalTraining")
    if content is None:
        return None
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FixRecording(f"{recording.path}: training recipe: {where}: {first['msg']}") from error


def _link(recording: Recording, target: Target, client: str) -> Link | None:
    if client == EVERYBODY:
        return None
    if any(entry.aggregated for entry in recording.rounds):
        raise ListenLonger(
            f"{recording.path} holds sums of updates only, under secure aggregation: there is no "
            "link to listen to; audit as 'secure-server'"
        )
    rounds, sent, returned, weights = recording.link(client)
    if not len(rounds):
        raise ListenLonger(
            f"client {client!r} never took part; there is nothing to listen to: record more "
            "rounds or audit another client"
        )
    recipe = recipe_of(recording)
    layout = recipe.model.layout() if recipe else tuple((n, a.shape[1:]) for n, a in sent.items())
    return Link(
        recording.payload,
        _sealed(rounds),
        _flat(recording, client, rounds, layout, sent, "sent to"),
        _flat(recording, client, rounds, layout, returned, "returned by"),
        _sealed(np.array(weights)),
    )


def _broadcast(recording: Recording, target: Target, client: str) -> Broadcast | None:
    if client == EVERYBODY:
        return Broadcast(recording.clients)
    last = recording.last_sent(client)
    if last is None:
        return None
    number, sent = last
    recipe = recipe_of(recording)
    layout = recipe.model.layout() if recipe else tuple((n, a.shape) for n, a in sent.items())
    arrays = {name: array[None] for name, array in sent.items()}
    model = _flat(recording, client, np.array([number]), layout, arrays, "sent to")[0]
    return Broadcast(recording.clients, model)


def _sums(recording: Recording, target: Target, client: str) -> Sums | None:
    if not target.asked.sums:
        return None
    recipe = recipe_of(recording)
    names = recording.clients
    place = {name: position for position, name in enumerate(names)}

    def heard() -> Iterator[RoundSum]:
        for entry, sent, total in recording.aggregates():
            if entry.participants is None:
                raise ListenLonger(
                    f"{recording.path}: round {entry.number} does not say who took part; without "
                    "the participants of every round nobody can tell which client did what: "
                    "record them"
                )
            layout = (
                recipe.model.layout() if recipe else tuple((n, a.shape) for n, a in sent.items())
            )
            row = np.array([entry.number])
            flat = [
                _flat(recording, "all", row, layout, {n: a[None] for n, a in arrays.items()}, way)
                for arrays, way in ((sent, "sent to"), (total, "summed over"))
            ]
            who = np.array([place[c] for c in entry.participants], dtype=np.int64)
            yield RoundSum(entry.number, flat[0][0], flat[1][0], np.sort(who))

    return Sums.of(names, heard())


def _target_record(recording: Recording, target: Target, client: str) -> TargetRecord | None:
    tables = recording.side("TargetRecord", target.key)
    if not tables:
        return None
    (records,) = tables.values()
    sealed = Records({n: _sealed(v) for n, v in records.columns.items()})
    return TargetRecord(sealed.without(LABEL_COLUMN), sealed[LABEL_COLUMN])


def _behaviour(recording: Recording, target: Target, client: str) -> SuspectedBehaviour | None:
    content = recording.side("SuspectedBehaviour", target.key)
    return None if content is None else SuspectedBehaviour(str(content["name"]))


def _shard_size(recording: Recording, target: Target, client: str) -> ShardSize | None:
    content = recording.side("ShardSize", target.key)
    return None if content is None else ShardSize(int(content["records"]))


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only: several attacks share a view, and none may change what others see."""
    array.flags.writeable = False
    return array


def _flat(
    recording: Recording,
    client: str,
    rounds: NDArray[np.int64],
    layout: Layout,
    arrays: dict[str, NDArray[Any]],
    way: str,
) -> NDArray[Any]:
    expected = {name: tuple(shape) for name, shape in layout}
    heard = {name: array.shape[1:] for name, array in arrays.items()}
    if expected != heard:
        raise FixRecording(
            f"{recording.path}: the messages carry {heard} but the declared model has {expected}; "
            "they come from a different model, or the recipe's wire_names are wrong"
        )
    for name, array in arrays.items():
        bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if bad.any():
            raise FixRecording(
                f"{recording.path}: round {rounds[bad.argmax()]}: {name!r} {way} client "
                f"{client!r} holds NaN or infinity (a diverged federation?); lower the learning "
                "rate or audit fewer rounds"
            )
    flat = [arrays[n].reshape(len(rounds), -1) for n, _ in layout]
    return _sealed(np.concatenate(flat, axis=1))


def _training(recording: Recording, target: Target, client: str) -> LocalTraining | None:
    recipe = recipe_of(recording)
    return None if recipe is None else LocalTraining(recipe)


def _records(recording: Recording, target: Target, client: str) -> PublicRecords | None:
    tables = recording.side("PublicRecords", target.key)
    if not tables or client not in tables:
        return None
    return PublicRecords(_without_secret(recording, target, tables[client]))


def _without_secret(recording: Recording, target: Target, records: Records) -> Records:
    """The records, read-only, after a check that what is asked for is not among them."""
    hidden = target.asked.hidden(target, recipe_of(recording))
    if shown := [column for column in hidden if column in records.columns]:
        raise FixRecording(
            f"{recording.path / 'side'}: the public records for {target.key!r} contain the "
            f"sensitive column {shown[0]!r}; no attack may see it, so record again without it"
        )
    return Records({n: _sealed(v) for n, v in records.columns.items()})


def _pool(recording: Recording, target: Target, client: str) -> CandidatePool | None:
    tables = recording.side("CandidatePool", target.key)
    if not tables or client not in tables:
        return None
    records = _without_secret(recording, target, tables[client])
    return CandidatePool(records.without(LABEL_COLUMN), records[LABEL_COLUMN])


def _labels(recording: Recording, target: Target, client: str) -> Labels | None:
    tables = recording.side("Labels", target.key)
    if not tables or client not in tables:
        return None
    return Labels(_sealed(tables[client][LABEL_COLUMN]))


def _everybody(recording: Recording, target: Target, client: str) -> EverybodysRecords | None:
    tables, labels = (
        recording.side("PublicRecords", target.key),
        recording.side("Labels", target.key),
    )
    if not tables or not labels:
        return None
    return EverybodysRecords(
        {who: _without_secret(recording, target, table) for who, table in tables.items()},
        {who: _sealed(table[LABEL_COLUMN]) for who, table in labels.items()},
    )


def _domain(recording: Recording, target: Target, client: str) -> AttributeDomain | None:
    content = recording.side("AttributeDomain", target.key)
    if content is None:
        return None
    if content["column"] != target.column:
        raise ValueError(f"it is about {content['column']!r}")
    check("domain_values", len(content["values"]), recording.path / "side")
    spread = tuple(map(float, content.get("spread", ())))
    return AttributeDomain(content["column"], tuple(content["values"]), spread)


def _prior(recording: Recording, target: Target, client: str) -> AttributePrior | None:
    content = recording.side("AttributePrior", target.key)
    return None if content is None else AttributePrior(tuple(map(float, content["shares"])))


def _auxiliary(recording: Recording, target: Target, client: str) -> AuxiliaryData | None:
    tables = recording.side("AuxiliaryData", target.key)
    if not tables:
        return None
    (records,) = tables.values()
    sealed = Records({n: _sealed(v) for n, v in records.columns.items()})
    return AuxiliaryData(sealed.without(LABEL_COLUMN), sealed[LABEL_COLUMN])


def _groups(recording: Recording, target: Target, client: str) -> Groups | None:
    content = recording.side("Groups", target.key)
    return None if content is None else Groups(content["column"], tuple(content["values"]))


def _counts(recording: Recording, target: Target, client: str) -> GroupCounts | None:
    content = recording.side("GroupCounts", target.key)
    if content is None or client not in content:
        return None
    return GroupCounts(tuple(map(int, content[client])))


def _defence(recording: Recording, target: Target, client: str) -> AppliedDefence | None:
    content = recording.side("AppliedDefence")
    if content is None:
        return None
    norm = content["clip_norm"]
    return AppliedDefence(
        tuple(map(str, content["names"])),
        None if norm is None else float(norm),
        float(content["noise_sd"]),
    )


_LOADERS: dict[type[Any], Callable[[Recording, Target, str], Any]] = {
    Link: _link,
    Broadcast: _broadcast,
    LocalTraining: _training,
    PublicRecords: _records,
    Labels: _labels,
    AttributeDomain: _domain,
    AttributePrior: _prior,
    CandidatePool: _pool,
    AuxiliaryData: _auxiliary,
    Groups: _groups,
    GroupCounts: _counts,
    Sums: _sums,
    TargetRecord: _target_record,
    SuspectedBehaviour: _behaviour,
    ShardSize: _shard_size,
    AppliedDefence: _defence,
    EverybodysRecords: _everybody,
}
