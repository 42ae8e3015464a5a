"""Whom the adversary must tell apart, and whom it knows: pools of candidates, and coverage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig, FixData
from overheard.programs.records import Records, alike
from overheard.randomness import stream


@dataclass(frozen=True)
class Pool:
    """Candidate records in random order; ``member``: which are the client's."""

    records: Records
    member: NDArray[np.bool_]


def strangers(
    dataset: Dataset, sensitive: Iterable[str], count: int, seed: int
) -> tuple[Records | None, Dataset]:
    """Records kept out of every client, and the dataset without them; None where none are asked.

    A stranger who agrees with somebody else in everything but the attribute under audit cannot be
    told from that person by anybody, so only records without such a twin are taken.
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
            "in everything public; ask for fewer strangers"
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
    """Those of given strangers who agree with nobody else in everything but a secret."""
    single = _single(together(outsiders, *clients), sensitive)
    return outsiders.take(single[: len(outsiders)])


def together(*tables: Records) -> Records:
    """The rows of several tables, one after the other, with the columns of the first."""
    columns = {
        name: np.concatenate([table[name] for table in tables]) for name in tables[0].columns
    }
    return Records(columns)


def _single(records: Records, sensitive: Iterable[str]) -> NDArray[np.bool_]:
    single = np.ones(len(records), dtype=bool)
    for column in tuple(sensitive) or ("",):
        group = alike(records.without(column).columns.values())
        single &= np.bincount(group)[group] == 1
    return single


def pool_of(members: Records, outsiders: Records, client: str, seed: int) -> Pool:
    """The client's records and the strangers, shuffled."""
    if not len(members) or not len(outsiders):
        raise FixData(
            f"client {client!r}: a pool of {len(members)} members and {len(outsiders)} strangers; "
            "both are needed, else there is nothing to tell apart"
        )
    everybody = together(members, outsiders)
    group = alike(everybody.columns.values())
    inside, outside = group[: len(members)], group[len(members) :]
    twins = int(np.isin(outside, inside).sum())
    if twins:
        raise FixData(
            f"client {client!r}: {twins} stranger(s) of the pool are among its own records; drop "
            "the duplicates"
        )
    order = stream(seed, "pool", client).permutation(len(everybody))
    return Pool(everybody.take(order), np.asarray(order < len(members)))


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
