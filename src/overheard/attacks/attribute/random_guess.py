"""What somebody gets who throws a die (lyu2021 section 4.3, "random")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import AttributeDomain, PublicRecords
from overheard.transcript.view import View


@dataclass(frozen=True)
class RandomGuess:
    """Picks one of the values at random for every record, all equally likely: right 1 / K times."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({PublicRecords, AttributeDomain})

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        values = view.know(AttributeDomain).values
        choice = rng.integers(0, len(values), len(view.know(PublicRecords).records))
        # barely more likely than the others: a throw is no knowledge, and says so
        probabilities = np.full((len(choice), len(values)), 1 / len(values))
        probabilities[np.arange(len(choice)), choice] += 1e-6
        return AttributeValues(probabilities / probabilities.sum(axis=1, keepdims=True), values)
