"""What somebody guesses who does not listen: the population's commonest value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import AttributeDomain, AttributePrior, PublicRecords
from overheard.transcript.view import View


@dataclass(frozen=True)
class Majority:
    """Gives every record the population's shares, and so guesses the commonest value for all."""

    name: ClassVar[str] = "majority"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {PublicRecords, AttributeDomain, AttributePrior}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        records = len(view.know(PublicRecords).records)
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
        probabilities = np.tile(shares / shares.sum(), (records, 1))
        return AttributeValues(probabilities, view.know(AttributeDomain).values)
