"""What is known of the clients without listening: nothing that tells one from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.decoding.mixed_model import DEFAULT
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Broadcast
from overheard.transcript.view import View


@dataclass(frozen=True)
class Nobody:
    """Says that nobody has the property, and gives every client the same prior probability: what
    any attack on sums must do better than."""

    name: ClassVar[str] = "nobody"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Broadcast})

    share: float = DEFAULT.positives[0] / sum(DEFAULT.positives)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        clients = view.know(Broadcast).clients
        return ClientProperty(
            np.full(len(clients), self.share), np.zeros(len(clients), dtype=bool), clients
        )
