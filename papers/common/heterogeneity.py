"""How far apart clients are, as xu2021 (Figure 1a) and driouich2022 (Table 4, Figure 2) say it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AT_INFINITY = (
    "Where a rare category separates the classes a local optimum lies at infinity: the distance "
    "then says how far the search for it went."
)


def relative(model: Array, reference: Array) -> float:
    """||model - reference|| / ||reference||."""
    return float(np.linalg.norm(model - reference) / np.linalg.norm(reference))


def mean_distances(optima: Mapping[str, Array]) -> dict[str, float]:
    """Each client's mean of ||theta_i - theta_j|| / ||theta_j|| over the others j."""
    apart: dict[str, list[float]] = {client: [] for client in optima}
    for mine, other in permutations(optima, 2):
        apart[mine].append(relative(optima[mine], optima[other]))
    return {client: float(np.mean(found)) for client, found in apart.items()}
