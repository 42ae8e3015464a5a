"""Who takes part in a round?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.randomness import stream


def participants(clients: int, share: float, seed: int, number: int) -> NDArray[np.int64]:
    """The clients of a round, uniformly at random without replacement."""
    count = max(1, round(share * clients))
    if count == clients:
        return np.arange(clients)
    chosen = stream(seed, "participation", number).choice(clients, count, replace=False)
    return np.sort(chosen).astype(np.int64)
