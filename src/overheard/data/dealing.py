"""Records dealt to clients, with some left that are nobody's.

The records are shuffled once by the seed. The first ones go to the clients, so many to each: a
smaller federation is a part of a larger one. The last ones are a public set of the same population
(`Dataset.outside`), from which values, shares and an adversary's auxiliary records come.

One victim and perhaps some others is how lyu2021 splits its tables; many equal clients of images is
how kerkouche2023 splits MNIST and the like. An image is a row of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.data.source import Source
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

VICTIM, CLIENT, IMAGE, TARGET = "victim", "client", "image", "class"
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Split:
    """``victim``: its number of records; ``participants`` counts the victim too; ``public``: how
    many records are nobody's; ``attributes``: the sensitive columns."""

    victim: int
    attributes: Sequence[str]
    participants: int = 1
    public: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Shares:
    """``clients`` clients of so many ``records`` each, and ``auxiliary`` images of nobody's."""

    clients: int = 50
    records: int = 10
    auxiliary: int = 6000
    seed: int = 0


def deal(
    source: Source,
    columns: Sequence[NDArray[np.generic]],
    labels: NDArray[np.generic],
    how: Split,
    **roles: Any,
) -> Dataset:
    """A victim, other participants and a public set; columns are c000, c001, ..."""
    names = [f"c{j:03d}" for j in range(len(columns))]
    if unknown := sorted(set(how.attributes) - set(names)):
        raise FixConfig(
            f"{source.name}: no column {unknown[0]!r}; the columns are c000 to {names[-1]}"
        )
    table = Records({**dict(zip(names, columns, strict=True)), TARGET: labels})
    sizes = (how.participants, how.victim, how.public)
    roles["sensitive"] = tuple(how.attributes)
    return _dealt(
        source, table, sizes, lambda i: f"participant {i + 1}" if i else VICTIM, how.seed, **roles
    )


def deal_images(
    source: Source,
    images: Bytes,
    labels: NDArray[np.generic],
    shape: tuple[int, int, int],
    how: Shares,
) -> Dataset:
    """So many equal clients, and images that are nobody's."""
    width = len(str(how.clients - 1))
    table = Records({IMAGE: images, TARGET: labels.astype(np.float64)})
    sizes = (how.clients, how.records, how.auxiliary)
    roles = {"sensitive": (), "images": {IMAGE: shape}}
    return _dealt(source, table, sizes, lambda i: f"client {i:0{width}d}", how.seed, **roles)


def _dealt(
    source: Source,
    table: Records,
    sizes: tuple[int, int, int],
    name: Callable[[int], str],
    seed: int,
    **roles: Any,
) -> Dataset:
    """``sizes``: how many clients, of how many records each, and how many are nobody's; ``name``:
    of a client, by its number."""
    clients, each, nobodys = sizes
    wanted, rows = clients * each, len(table)
    if clients < 1 or each < 1 or nobodys < 0 or wanted + nobodys > rows:
        raise FixConfig(
            f"{source.name}: {clients} client(s) of {each} records and {nobodys} of nobody's "
            f"cannot be dealt of {rows}: ask for at least 1 client of 1 record, and no more in all"
        )
    names = np.repeat([name(number) for number in range(clients)], each)
    order = stream(seed, source.name, "records").permutation(rows)
    return source.dataset(
        Records({CLIENT: names, **table.take(order[:wanted]).columns}),
        client=CLIENT,
        target=TARGET,
        task="classification",
        outside=table.take(order[rows - nobodys :]) if nobodys else None,
        **roles,
    )
