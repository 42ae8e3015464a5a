"""How sure is the adversary, and is it right to be? Counts of its posteriors, never a record.

A guess is sorted by the probability that the attack gives to the value it chose. In each bin the
share that is right belongs beside that probability: an attack whose two numbers agree may be
taken at its word.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from overheard.evaluation.intervals import share_interval
from overheard.evaluation.record import Bin, Calibration

Array = NDArray[np.float64]
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Narrow where it matters: what is known for certain is the last bin."""
BEYOND = 0.99
MOST_ROWS = 20
OVERCONFIDENT = 0.05
"""Claims beyond what is right by more than this mislead whoever relies on them."""


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": raw}


def _unpacked(content: dict[str, Any]) -> NDArray[Any]:
    raw = base64.b64decode(content["bytes"])
    return np.frombuffer(raw, np.dtype(content["dtype"])).reshape(content["shape"]).copy()


Scores = Annotated[Array, PlainValidator(_unpacked), PlainSerializer(_packed)]
"""One number a record; written down and read back bit for bit where an audit is kept."""


@dataclass(frozen=True)
class Posterior:
    """Per record: probability of the chosen value, whether it is right, bits over the client's own
    shares and, where there is one, over a stranger (``beyond``). ``prior``: the part of these bits
    that was there before listening."""

    confidence: Scores
    hits: Scores
    bits: Scores
    beyond: Scores | None = None
    prior: Scores | None = None

    @property
    def listened(self) -> Array:
        """Bits that listening added."""
        return self.bits if self.prior is None else self.bits - self.prior

    @property
    def evidence(self) -> float:
        """Bits over the better guess without listening, over all records."""
        over = [self.bits] if self.beyond is None else [self.bits, self.beyond]
        return float(min(gains.sum() for gains in over))

    def rows(self, most: int = MOST_ROWS) -> tuple[int, ...]:
        """Row numbers, from 0, of the records known beyond 99% and rightly, the most bits first."""
        known = np.flatnonzero((self.confidence > BEYOND) & (self.hits > 0))
        order = np.lexsort((known, -self.confidence[known], -self.bits[known]))
        return tuple(int(row) for row in known[order][:most])


def joined(parts: Sequence[Posterior]) -> Posterior:
    """The records of several clients as one."""
    over = [p.beyond for p in parts if p.beyond is not None]
    return Posterior(
        np.concatenate([p.confidence for p in parts]),
        np.concatenate([p.hits for p in parts]),
        np.concatenate([p.bits for p in parts]),
        np.concatenate(over) if over and len(over) == len(parts) else None,
    )


def overconfident(found: Posterior) -> str:
    """In words, by how much an attack is surer than right; empty where that may be chance.

    More than 5 points, and beyond three standard errors of what it claims or of what it got.
    """
    claimed, right = float(found.confidence.mean()), float(found.hits.mean())
    n = len(found.hits)
    promised = float((found.confidence * (1 - found.confidence)).sum()) / n**2
    error = np.sqrt(max(promised, right * (1 - right) / n))
    if claimed - right <= OVERCONFIDENT or claimed - right <= 3 * error:
        return ""
    return f"{claimed:.0%} sure on average, and right for {right:.0%}"


def calibration(found: Posterior, bins: bool = False, rows: bool = False) -> Calibration:
    """What goes into the audit's record; ``rows`` only where somebody asked for them."""
    known = found.confidence > BEYOND
    return Calibration(
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
