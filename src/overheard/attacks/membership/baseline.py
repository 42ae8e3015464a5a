"""What somebody guesses about membership who does not listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.transcript.guess import Membership
from overheard.transcript.knowledge import CandidatePool
from overheard.transcript.view import View


@dataclass(frozen=True)
class Coin:
    """Tosses a coin for every record of the pool: what is known before anybody listens."""

    name: ClassVar[str] = "coin"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({CandidatePool})

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        tosses = rng.random(len(view.know(CandidatePool).labels)) < 0.5
        # barely more likely than not: a toss is no knowledge, and says so
        return Membership(np.where(tosses, 0.5 + 1e-6, 0.5 - 1e-6))
