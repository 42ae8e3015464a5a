"""Who has the property that the audit asks about: holders of a target record, or the dishonest.

Everything here is settled by the seed before the first round. The target records are taken out of
the records that no client holds, and the adversary's auxiliary data are the rest of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from overheard.errors import FixConfig
from overheard.federation.federation import PropertyConfig
from overheard.federation.pool import together
from overheard.programs.records import Records
from overheard.randomness import stream


@dataclass(frozen=True)
class PropertySecret:
    """The clients that have one property, if it is known who they are.

    ``record``: for membership, the one that they hold; ``behaviour``: else, what they do.
    """

    column: str
    positives: tuple[str, ...] | None
    record: Records | None = None
    behaviour: str = ""


@dataclass(frozen=True)
class Properties:
    """What is asked of each of the ``clients``, the answers, and what the adversary has: records
    like theirs, and how many each of them holds."""

    clients: tuple[str, ...]
    secrets: tuple[PropertySecret, ...]
    auxiliary: Records
    shard: int

    @property
    def dishonest(self) -> frozenset[str]:
        """The clients that do not do as they are told."""
        return frozenset(c for s in self.secrets if s.behaviour for c in s.positives or ())


def settle(
    asked: PropertyConfig, clients: dict[str, Records], outside: Records | None, seed: int
) -> tuple[Properties, dict[str, Records]]:
    """The properties, and the clients' records with the target records in place of some.

    A holder of the target record has it in place of one of its own, so that all clients keep the
    same number of records.
    """
    names = list(clients)
    sizes = {len(records) for records in clients.values()}
    if len(sizes) > 1:
        raise FixConfig(
            f"[property]: the clients hold {min(sizes)} to {max(sizes)} records; the attacks take "
            "all shards to be of one size: use a source of equal clients, such as mnist"
        )
    (shard,) = sizes
    if asked.positives > len(names):
        raise FixConfig(
            f"property.positives = {asked.positives} of {len(names)} clients; ask for fewer"
        )
    if outside is None or len(outside) <= asked.targets + 1:
        there = 0 if outside is None else len(outside)
        raise FixConfig(
            f"[property]: {there} records are held by no client, and the adversary needs some of "
            "its own: use a source that keeps some out (auxiliary or public in data.options)"
        )
    if asked.targets > 1 and asked.kind != "membership":
        raise FixConfig(f"property.targets belongs to kind = 'membership', not {asked.kind!r}")
    if asked.targets > shard:
        raise FixConfig(
            f"property.targets = {asked.targets}, but a client holds {shard} records; ask for fewer"
        )
    rows = stream(seed, "target record").permutation(len(outside))
    secrets = []
    for number in range(asked.targets):
        draw = stream(seed, "positives", number).permutation(len(names))
        positives = tuple(sorted(names[k] for k in draw[: asked.positives]))
        if asked.kind != "membership":
            secrets.append(misbehaving(asked.kind, positives))
            continue
        record = outside.take(rows[number : number + 1])
        for name in positives:
            clients = {**clients, name: _with(clients[name], number, record)}
        secrets.append(holding(record, number, positives))
    taken = asked.targets if asked.kind == "membership" else 0
    auxiliary = outside.take(np.sort(rows[taken:]))
    return Properties(tuple(names), tuple(secrets), auxiliary, shard), clients


def misbehaving(behaviour: str, positives: tuple[str, ...] | None) -> PropertySecret:
    """The property of doing something else than training."""
    column = "free-rider" if behaviour == "free-rider" else "poisoning"
    return PropertySecret(column, positives, behaviour=behaviour)


def holding(record: Records, number: int, positives: tuple[str, ...] | None) -> PropertySecret:
    """The property of holding a target record, the ``number``-th that is asked about."""
    column = "membership" if number == 0 else f"membership-{number + 1}"
    return PropertySecret(column, positives, record)


def _with(records: Records, row: int, record: Records) -> Records:
    """The records with this one in the place of a row."""
    rows = np.arange(len(records))
    rows[row] = len(records)
    return together(records, record).take(rows)
