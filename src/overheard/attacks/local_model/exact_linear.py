"""The local optimum of linear least squares, exactly (xu2021 Observation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.decoding.affine_map import AffineMap, fit_affine_map
from overheard.errors import ChooseAnotherAttack
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import Link, LocalTraining
from overheard.transcript.view import View


@dataclass(frozen=True)
class ExactLinear:
    """Fits the affine map from models sent to models returned and takes the model that the client
    would leave unchanged. Exact once the models heard span the space, for any number of full-batch
    local steps and without the learning rate; it reports how many directions are identified.

    Settings: ``exact`` refuses (with `ListenLonger`) to estimate what is not identified.
    """

    name: ClassVar[str] = "exact_linear"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining})

    exact: bool = False

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        fit = affine_map(view.know(Link), view.know(LocalTraining).recipe, self.exact)
        return LocalModel(
            fit.fixed_point,
            fit.fixed_point_sd,
            fit.identified,
            {
                "identified": fit.identified,
                "flat": fit.flat,
                "parameters": len(fit.fixed_point),
                "condition": float(min(fit.condition, 1e300)),
                "residual": fit.residual,
            },
        )


def affine_map(link: Link, recipe: Recipe, exact: bool = False) -> AffineMap:
    """The client's update map, for federations in which it is affine."""
    if not recipe.linear_least_squares:
        raise ChooseAnotherAttack("works for linear least squares only; this model is not")
    if not recipe.full_batch:
        raise ChooseAnotherAttack("works for full batches only; this federation uses mini-batches")
    link.require(2, "an affine map")
    sent = link.sent.astype(np.float64)
    updates = link.updates()
    rounding = None
    if link.gradients:
        rounding = float(np.finfo(link.returned.dtype).eps * np.abs(updates).max() / np.sqrt(12))
    steps = 1 if link.gradients else recipe.epochs
    return fit_affine_map(sent, sent - updates, rounding_sd=rounding, steps=steps, exact=exact)
