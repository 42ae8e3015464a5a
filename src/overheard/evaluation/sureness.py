"""How sure is the adversary, and is it right to be? Counts of its posteriors, never a record.

A guess is sorted by the probability that the attack gives to the value it chose. In each bin the
share that is right belongs beside that probability: an attack whose two numbers agree may be
taken at its word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.intervals import share_interval
from overheard.evaluation.record import Bin, Sureness

Array = NDArray[np.float64]
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Narrow where it matters: what is known for certain is the last bin."""
BEYOND = 0.99
MOST_ROWS = 20


@dataclass(frozen=True)
class Posterior:
    """Per record: probability of the chosen value, whether it is right, bits over the shares."""

    confidence: Array
    hits: Array
    bits: Array

    def rows(self, most: int = MOST_ROWS) -> tuple[int, ...]:
        """Row numbers, from 0, of the records known beyond 99% and rightly, the most bits first."""
        known = np.flatnonzero((self.confidence > BEYOND) & (self.hits > 0))
        order = np.lexsort((known, -self.confidence[known], -self.bits[known]))
        return tuple(int(row) for row in known[order][:most])


def together(parts: Sequence[Posterior]) -> Posterior:
    """The records of several clients as one."""
    return Posterior(
        np.concatenate([p.confidence for p in parts]),
        np.concatenate([p.hits for p in parts]),
        np.concatenate([p.bits for p in parts]),
    )


def sureness(found: Posterior, bins: bool = False, rows: bool = False) -> Sureness:
    """What goes into the audit's record; ``rows`` only where somebody asked for them."""
    known = found.confidence > BEYOND
    return Sureness(
        bits=float(found.bits.mean()),
        certain=int(known.sum()),
        certain_right=int(found.hits[known].sum()),
        bins=_bins(found) if bins else (),
        rows=found.rows() if rows else (),
    )


def _bins(found: Posterior) -> tuple[Bin, ...]:
    # a coin flip is in the bin that begins at one half; 99% itself is not beyond 99%
    inner = np.array([np.nextafter(e, 1.0) if e == BEYOND else e for e in EDGES[1:-1]])
    place = np.searchsorted(inner, found.confidence, side="right")
    counted = []
    for which, (least, most) in enumerate(pairwise(EDGES)):
        here = place == which
        if not here.any():
            continue
        low, high = share_interval(found.hits[here])
        counted.append(
            Bin(
                least=least,
                most=most,
                n=int(here.sum()),
                confidence=float(found.confidence[here].mean()),
                right=float(found.hits[here].mean()),
                low=low,
                high=high,
            )
        )
    return tuple(counted)
