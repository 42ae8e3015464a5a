"""What is asked about, whom must the adversary tell apart, and who has what it looks for?

An attribute is a column, or several columns at once, whose values are then the combinations that
occur. A pool mixes a client's records with outsiders. A property is that of holders of a target
record, or of the dishonest; who has it is settled by the seed before the first round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import MOST_VALUES, Dataset, bins_of, domain_of, is_binned, together
from overheard.errors import FixConfig, FixData
from overheard.federation.federation import Attribute, SoughtProperty
from overheard.programs.records import Encoding, Records, alike, encode, positions
from overheard.randomness import stream
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.store import MEMBER_COLUMN, POSITIVE_COLUMN


def columns_of(secrets: Iterable[Attribute]) -> tuple[str, ...]:
    """The columns of some secrets, each once."""
    each = ((secret,) if isinstance(secret, str) else secret for secret in secrets)
    return tuple(dict.fromkeys(column for columns in each for column in columns))


def domains(
    records: Records, secrets: Sequence[Attribute], bins: int | None
) -> dict[str, AttributeDomain]:
    """What each secret is called, and the values that it may take."""
    columns = columns_of(secrets)
    cut = {column for column in columns if is_binned(records, column, bins)}
    if bins and not cut:
        raise FixConfig(
            f"audit.bins = {bins} has no effect: no attribute under audit "
            f"({', '.join(columns) or 'there is none'}) is a number with more than {bins} values; "
            "leave it out, or ask for fewer bins"
        )
    found: list[AttributeDomain] = []
    for secret in secrets:
        if not isinstance(secret, str):
            found.append(_several(records, secret, cut))
        elif secret in cut:
            found.append(_binned(records, secret, bins))
        else:
            found.append(AttributeDomain(secret, domain_of(records, secret)))
    return {domain.column: domain for domain in found}


def _several(records: Records, columns: tuple[str, ...], cut: set[str]) -> AttributeDomain:
    if numbers := cut.intersection(columns):
        raise FixConfig(
            f"attributes {', '.join(columns)}: {min(numbers)!r} is a number that is cut into bins; "
            "columns that are asked about at once have few values each: ask about it alone"
        )
    domain = AttributeDomain.of_several(columns, records)
    if (many := len(domain.values)) > MOST_VALUES:
        raise FixConfig(
            f"attributes {', '.join(columns)}: {many} combinations of their values occur; at most "
            f"{MOST_VALUES} are asked about at once: leave a column out"
        )
    return domain


def _binned(records: Records, column: str, bins: int | None) -> AttributeDomain:
    """The middles of the bins of a number, and its spread within each."""
    values = bins_of(records, column, bins)
    which, middles = positions(records[column], values), np.asarray(values, dtype=np.float64)
    left = (records[column] - middles[which]) ** 2
    spread = tuple(float(np.sqrt(left[which == k].mean())) for k in range(len(values)))
    return AttributeDomain(column, values, spread)


def refuse_function_of_public(
    dataset: Dataset, encoding: Encoding, domain: AttributeDomain
) -> None:
    """Refuse an attribute that anybody can compute from the public inputs."""
    inside = encoding.inputs_of(domain.columns)
    inputs = encode(encoding, dataset.records)
    secret, public = inputs[:, inside], np.delete(inputs, inside, axis=1)
    design = np.column_stack([public, np.ones(len(public))])
    if not inside or len(design) <= design.shape[1]:
        return
    left = secret - design @ np.linalg.lstsq(design, secret, rcond=None)[0]
    if np.abs(left).max() <= 1e-8 * max(float(np.abs(secret).max()), 1e-300):
        raise FixData(
            f"attribute {domain.column!r} is a linear function of the public columns: anybody who "
            "has those can compute it, so there is nothing to infer; audit another column or drop "
            "the columns that give it away"
        )


def outsiders_of(
    dataset: Dataset, sensitive: Iterable[str], count: int, seed: int
) -> tuple[Records | None, Dataset]:
    """Records kept out of every client, and the dataset without them; None where none are asked.

    An outsider who agrees with somebody else in everything but the attribute under audit cannot be
    distinguished from that person by anybody, so only records without such a twin are taken.
    """
    if not count:
        return None, dataset
    single = _single(dataset.records.without(dataset.client), sensitive)
    order = stream(seed, "strangers").permutation(len(dataset.records))
    chosen = order[single[order]][:count]
    outside = kept_out(dataset, chosen, "audit.membership", count)
    if len(chosen) < count:
        raise FixData(
            f"audit.membership = {count}, but only {len(chosen)} records have no twin that agrees "
            "in everything public; ask for fewer"
        )
    return outside


def kept_out(
    dataset: Dataset, chosen: NDArray[np.int64], setting: str, count: int
) -> tuple[Records, Dataset]:
    """Records that no client holds, and the dataset without them."""
    rows = len(dataset.records)
    if count >= rows:
        raise FixConfig(
            f"{setting} = {count} leaves nothing for the clients: there are {rows} records; "
            "ask for fewer"
        )
    outside = np.isin(np.arange(rows), chosen)
    seen = dataset.records.without(dataset.client).take(outside)
    return seen, replace(dataset, records=dataset.records.take(~outside))


def apart(outsiders: Records, clients: Iterable[Records], sensitive: Iterable[str]) -> Records:
    """Those of given outsiders who agree with nobody else in everything but a secret."""
    single = _single(together(outsiders, *clients), sensitive)
    return outsiders.take(single[: len(outsiders)])


def _single(records: Records, sensitive: Iterable[str]) -> NDArray[np.bool_]:
    single = np.ones(len(records), dtype=bool)
    for column in tuple(sensitive) or ("",):
        group = alike(records.without(column).columns.values())
        single &= np.bincount(group)[group] == 1
    return single


def pool_of(members: Records, outsiders: Records, client: str, seed: int) -> Records:
    """The client's records and the outsiders, shuffled, with a column that says who is whose."""
    if not len(members) or not len(outsiders):
        raise FixData(
            f"client {client!r}: a pool of {len(members)} members and {len(outsiders)} non-members"
            "; both are needed, else there is nothing to tell apart"
        )
    everybody = together(members, outsiders)
    group = alike(everybody.columns.values())
    inside, outside = group[: len(members)], group[len(members) :]
    twins = int(np.isin(outside, inside).sum())
    if twins:
        raise FixData(
            f"client {client!r}: {twins} non-member(s) of the pool are among its own records; drop "
            "the duplicates"
        )
    order = stream(seed, "pool", client).permutation(len(everybody))
    member = np.asarray(order < len(members), dtype=np.float64)
    return Records({**everybody.take(order).columns, MEMBER_COLUMN: member})


def known_count(records: int, coverage: float) -> int:
    """How many of a client's records the adversary knows: at least one."""
    return max(1, round(coverage * records))


def known_first(clients: dict[str, Records], coverage: float, seed: int) -> dict[str, Records]:
    """Each client's records, a random share of them (those that are known) moved to the front."""
    if coverage == 1.0:
        return clients
    moved = {}
    for client, records in clients.items():
        order = stream(seed, "coverage", client).permutation(len(records))
        known = known_count(len(records), coverage)
        moved[client] = records.take(np.concatenate([np.sort(order[:known]), order[known:]]))
    return moved


@dataclass(frozen=True)
class PropertySecret:
    """The clients that have one property, if it is known who they are.

    ``behaviour``: what they do in place of training; else they hold ``record``, the ``number``-th
    that is asked about.
    """

    positives: tuple[str, ...] | None
    behaviour: str = ""
    record: Records | None = None
    number: int = 0

    @property
    def column(self) -> str:
        """What a target calls the property."""
        if self.behaviour:
            return "free-rider" if self.behaviour == "free-rider" else "poisoning"
        return f"membership-{self.number + 1}" if self.number else "membership"


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
        """The clients that do not do as the program says."""
        return frozenset(c for s in self.secrets if s.behaviour for c in s.positives or ())

    def holders(self, secret: PropertySecret) -> dict[str, Records]:
        """For evaluation: who has a property; nothing where that is not known."""
        if secret.positives is None:
            return {}
        flags = {c: np.array([float(c in secret.positives)]) for c in self.clients}
        return {c: Records({POSITIVE_COLUMN: flag}) for c, flag in flags.items()}


def settle(
    asked: SoughtProperty, clients: dict[str, Records], outside: Records | None, seed: int
) -> tuple[Properties, dict[str, Records]]:
    """The properties, and the clients' records with the target records in place of some.

    A holder of the target record has it in place of one of its own, so that all clients keep the
    same number of records.
    """
    names = list(clients)
    if asked.kind is None:
        raise FixConfig("[property]: kind: say what some clients have or do, such as 'membership'")
    sizes = {len(records) for records in clients.values()}
    if len(sizes) > 1:
        raise FixConfig(
            f"[property]: the clients hold {min(sizes)} to {max(sizes)} records; the attacks take "
            "all shards to be of one size: use a source of equal clients, such as mnist"
        )
    (shard,) = sizes
    count = 5 if asked.positives is None else asked.positives
    if not isinstance(count, int) or count > len(names):
        raise FixConfig(f"property.positives = {count} of {len(names)} clients; ask for fewer")
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
        positives = tuple(sorted(names[k] for k in draw[:count]))
        if asked.kind != "membership":
            secrets.append(PropertySecret(positives, asked.kind))
            continue
        record = outside.take(rows[number : number + 1])
        for name in positives:
            clients = {**clients, name: _with(clients[name], number, record)}
        secrets.append(PropertySecret(positives, record=record, number=number))
    taken = asked.targets if asked.kind == "membership" else 0
    auxiliary = outside.take(np.sort(rows[taken:]))
    return Properties(tuple(names), tuple(secrets), auxiliary, shard), clients


def _with(records: Records, row: int, record: Records) -> Records:
    """The records with this one in the place of a row."""
    rows = np.arange(len(records))
    rows[row] = len(records)
    return together(records, record).take(rows)
