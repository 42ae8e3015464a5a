"""driouich2022: the numbers of its Table 1, and the fares that stand in for its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from overheard.data.dataset import Dataset
from papers.data import flights

NOT_THEIR_FARES = "The paper's fares (10 airlines, Amadeus) are not public; these are other fares."


def claims(rows: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Table 1, given as the paper prints it: per method ten clients and the mean, in per cent."""
    found: dict[tuple[str, str], float] = {}
    for method, numbers in rows.items():
        *clients, mean = (float(x) / 100 for x in numbers.split())
        found |= {(method, f"client {i}"): value for i, value in enumerate(clients)}
        found[method, "mean"] = mean
    return found


ADULT_CLAIMS = claims(
    {
        "l2_lbfgs": "75.2 76.5 60.3 61.2 60.4 60.9 61.2 60.6 60.0 62.3 67.2",
        "gumbel": "62.2 67.7 61.1 68.0 68.2 57.3 64.3 64.3 64.3 64.3 64.2",
        "global": "69.9 77.5 80.2 61.3 61.3 62.3 60.0 62.1 60.3 60.6 65.6",
        "last returned": "71.2 72.3 73.8 60.4 65.6 69.0 61.5 62.0 60.1 62.3 65.8",
        "local": "79.4 78.4 83.5 69.9 69.4 69.2 70.3 70.5 70.6 70.9 73.7",
    }
)
FLIGHT_MEANS = {"l2_lbfgs": 0.673, "gumbel": 0.669, "global": 0.735, "last returned": 0.706}
FLIGHT_MEANS["local"] = 0.769


def fares(limit: int, seed: int, attribute: str, drop: tuple[str, ...] = ()) -> Dataset:
    """The airlines' fares; the other attribute under audit stays public."""
    dataset = flights.load(limit=limit, seed=seed, drop=drop)
    return replace(dataset, sensitive=(attribute,))
