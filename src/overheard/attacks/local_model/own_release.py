"""What a client's releases come to alone: the model that a server of this client would have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.transcript.guess import OwnModel
from overheard.transcript.knowledge import ClientProgram, Releases
from overheard.transcript.view import View


@dataclass(frozen=True)
class OwnRelease:
    """Takes the step that the server would take with this client's releases and nobody else's: of
    Newton's method towards the client's own optimum, of boosted trees to its own trees."""

    name: ClassVar[str] = "own_release"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Releases, ClientProgram})
    equation: ClassVar[str] = "model = server's step (release of this client alone)"

    def __call__(self, view: View, rng: np.random.Generator) -> OwnModel:
        program = view.know(ClientProgram).program
        if not program.makes_model:
            raise ChooseAnotherAttack(f"{program.family!r} is a program that makes no model")
        try:
            return OwnModel(program.own(view.know(Releases).exchanges))
        except FixConfig as error:
            raise ChooseAnotherAttack(f"the client alone makes no model ({error})") from error
