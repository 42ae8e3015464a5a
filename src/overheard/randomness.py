"""Random streams named by purpose and derived from one seed.

``stream(seed, "batches", round)`` gives the same generator wherever it is called,
so adding a consumer of randomness never shifts the draws of another.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: object) -> np.random.Generator:
    """A generator that depends on ``seed`` and the words of ``purpose`` only."""
    words = "\x1f".join([str(int(seed)), *(str(p) for p in purpose)])
    digest = hashlib.sha256(words.encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
