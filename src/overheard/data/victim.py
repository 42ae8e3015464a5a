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
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

VICTIM = "victim"
CLIENT, TARGET = "client", "class"


@dataclass(frozen=True)
class Source:
    """What a dataset says of its source: name, where it comes from, licence."""

    name: str
    origin: str
    licence: str


def deal(
    source: Source,
    columns: Sequence[NDArray[np.generic]],
    labels: NDArray[np.generic],
    attributes: Sequence[str],
    victim: int,
    participants: int,
    public: int,
    seed: int,
) -> Dataset:
    """The dataset of a victim, the other participants and a public set; columns are c000, c001, ...

    ``victim``: its number of records; ``participants`` counts the victim too.
    """
    names = [f"c{j:03d}" for j in range(len(columns))]
    if unknown := sorted(set(attributes) - set(names)):
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
    order = stream(seed, source.name, "records").permutation(rows)
    client = [VICTIM if i == 0 else f"participant {i + 1}" for i in range(participants)]
    table = Records({**dict(zip(names, columns, strict=True)), TARGET: labels})
    inside = table.take(order[:wanted])
    return Dataset(
        name=source.name,
        records=Records({CLIENT: np.repeat(client, victim), **inside.columns}),
        client=CLIENT,
        target=TARGET,
        task="classification",
        sensitive=tuple(attributes),
        origin=source.origin,
        licence=source.licence,
        outside=table.take(order[rows - public :]) if public else None,
    )
