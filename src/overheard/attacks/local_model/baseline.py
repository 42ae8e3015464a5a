"""What the wire shows outright: the last model returned, and the last model sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.errors import ChooseAnotherAttack
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import Broadcast, Link
from overheard.transcript.view import View


@dataclass(frozen=True)
class LastReturned:
    """Takes the last model that the client returned for its local model (xu2021's baseline)."""

    name: ClassVar[str] = "last_returned"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link = view.know(Link)
        if link.gradients:
            raise ChooseAnotherAttack("the clients return gradients, not models")
        return _as_is(link.returned[-1].astype(np.float64))


@dataclass(frozen=True)
class GlobalModel:
    """Takes the last model that the server sent for the client's local model: what every
    participant has without listening to anybody."""

    name: ClassVar[str] = "global_model"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Broadcast})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        return _as_is(view.know(Broadcast).last())


def _as_is(parameters: np.ndarray[Any, np.dtype[np.float64]]) -> LocalModel:
    return LocalModel(parameters, np.full(len(parameters), np.nan), identified=0)
