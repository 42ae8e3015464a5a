"""Fares of six Indian airlines, each a client, for the linear regressions of driouich2022.

The paper's own fares (100,000 bookings of ten airlines, secret: the journey type) are not public.
This table, published on Kaggle as "Flight Price Prediction", is as near as we found: 300,153 fares
of flights between six cities, asked for 1 to 49 days ahead in 2022. Its licence is not stated, so
it is not fetched: bring your own copy.

The target is the ``price`` in rupees, as in the paper (the plan scales it).

Two secrets, each 0 or 1. ``class``: 1 is Business; only Air_India and Vistara sell it, so on the
other four a guess is right without listening. ``direct``: 1 where there is no stop. The columns
``stops`` (which says so) and ``flight`` (which all but does) are left out. ``duration`` stays, as
a listing shows it, and gives ``direct`` away: the rule "at most 3.2 hours" is right for 99.98 %
of fares. Read the imputation baseline, or set ``drop = ["duration"]``.

``limit`` draws that many fares of each airline: by default 20,000, in all 105,109, about the
paper's number; 0 keeps all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import table
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

SOURCE = SOURCES["flights"]
SENSITIVE = ("class", "direct")

CATEGORIES = ("source_city", "departure_time", "arrival_time", "destination_city")
NUMERIC = ("duration", "days_left")


def load(
    folder: str | Path | None = None, seed: int = 0, limit: int = 20_000, drop: Sequence[str] = ()
) -> Dataset:
    """The fares; ``seed`` draws the ``limit`` fares of each airline."""
    public = (*CATEGORIES, *NUMERIC)
    if unknown := sorted(set(drop) - set(public)):
        raise FixConfig(f"flights: cannot drop {unknown[0]!r}; choose from {', '.join(public)}")
    if limit < 0:
        raise FixConfig(f"flights: limit {limit} is negative; 0 keeps every fare")
    (file,) = SOURCE.locate(folder)
    wanted = ["airline", "stops", "class", "price", *public]
    column = table(file, wanted, "Clean_Dataset.csv")
    records = {
        "airline": column["airline"],
        **{name: column[name] for name in public if name not in drop},
        "class": (column["class"] == "Business").astype(np.float64),
        "direct": (column["stops"] == "zero").astype(np.float64),
        "price": column["price"],
    }
    rows = [
        _draw(np.flatnonzero(column["airline"] == airline), limit, seed, str(airline))
        for airline in np.unique(column["airline"])
    ]
    return SOURCE.dataset(
        Records(records).take(np.concatenate(rows)),
        client="airline",
        target="price",
        task="regression",
        sensitive=SENSITIVE,
    )


def _draw(rows: np.ndarray, limit: int, seed: int, airline: str) -> np.ndarray:
    """At most ``limit`` of the rows, in the order of the table."""
    if not limit or len(rows) <= limit:
        return rows
    return np.sort(stream(seed, "flights", airline).choice(rows, limit, replace=False))
