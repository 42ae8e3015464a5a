"""One victim, perhaps some others, and a public set: how lyu2021 splits its tables.

The records are shuffled once by the seed. The last ones are nobody's: a public set of the same
population (`Dataset.outside`), from which values, shares and auxiliary records come. The first
``victim`` records are the client "victim", so a smaller victim is a part of a larger one; each of
the ``participants`` - 1 others gets as many of those that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.data.source import Source
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

VICTIM = "victim"
CLIENT, TARGET = "client", "class"


@dataclass(frozen=True)
class Split:
    """``victim``: its number of records; ``participants`` counts the victim too; ``public``: how
    many records are nobody's; ``attributes``: the sensitive columns."""

    victim: int
    attributes: Sequence[str]
    participants: int = 1
    public: int = 1000
    seed: int = 0


def deal(
    source: Source,
    columns: Sequence[NDArray[np.generic]],
    labels: NDArray[np.generic],
    how: Split,
) -> Dataset:
    """The victim, the other participants and a public set; columns are c000, c001, ..."""
    victim, participants, public = how.victim, how.participants, how.public
    names = [f"c{j:03d}" for j in range(len(columns))]
    if unknown := sorted(set(how.attributes) - set(names)):
        raise FixConfig(
            f"{source.name}: no column {unknown[0]!r}; the columns are c000 to {names[-1]}"
        )
    if victim < 1 or participants < 1 or public < 0:
        raise FixConfig(
            f"{source.name}: victim = {victim}, participants = {participants}, public = {public}; "
            "a victim of at least 1 record, at least 1 participant and a public set of 0 or more"
        )
    wanted, rows = victim * participants, len(labels)
    if wanted + public > rows:
        raise FixConfig(
            f"{source.name}: {participants} participant(s) of {victim} records and a public set of "
            f"{public} need {wanted + public} records; there are {rows}: ask for fewer"
        )
    client = [VICTIM if i == 0 else f"participant {i + 1}" for i in range(participants)]
    table = Records({**dict(zip(names, columns, strict=True)), TARGET: labels})
    inside, outside = shuffled(source, table, wanted, public, how.seed)
    return source.dataset(
        Records({CLIENT: np.repeat(client, victim), **inside.columns}),
        client=CLIENT,
        target=TARGET,
        task="classification",
        sensitive=tuple(how.attributes),
        outside=outside,
    )


def shuffled(
    source: Source, table: Records, first: int, last: int, seed: int
) -> tuple[Records, Records | None]:
    """The first and the last so many records of the table, shuffled by the seed."""
    rows = len(table)
    order = stream(seed, source.name, "records").permutation(rows)
    return table.take(order[:first]), table.take(order[rows - last :]) if last else None
