"""The local optimum by a map of the right form: least squares or logistic, mini-batches or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.decoding.batch_noise import LocalRecipe
from overheard.decoding.logistic_surrogate import decode_logistic
from overheard.decoding.surrogate import LocalOptimum, decode_least_squares
from overheard.errors import ChooseAnotherAttack
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import Link, LocalTraining
from overheard.transcript.view import View


@dataclass(frozen=True)
class Structured:
    """Keeps the form that the loss dictates for what a client does to a model and fits only what
    its records decide, with the mini-batch noise as prior for the curvature. Linear least squares
    and two-class logistic regression, any batch size and number of local steps; it returns its
    own uncertainty and the number of directions that the messages identify. Where mini-batches of
    least squares say nothing beyond the last returned model, it returns that, and flags it."""

    name: ClassVar[str] = "structured"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link, recipe = view.know(Link), view.know(LocalTraining).recipe
        found = decode(link, recipe, int(rng.integers(2**31)))
        diagnostics: dict[str, float | int | str] = {
            "identified": found.identified,
            "parameters": len(found.estimate),
            "misfit": found.misfit,
            "noise_sd": found.noise_sd,
            "trusted": found.trusted,
        }
        if found.trusted == 0.0:
            diagnostics["flag"] = (
                f"{len(link)} rounds say nothing clear of {len(found.estimate)} parameters: "
                "this is the last returned model"
            )
        return LocalModel(found.estimate, found.estimate_sd, found.identified, diagnostics)


def decode(link: Link, recipe: Recipe, seed: int) -> LocalOptimum:
    """The surrogate's optimum for a client's link."""
    if not (recipe.logistic_regression or recipe.linear_least_squares):
        raise ChooseAnotherAttack(
            "knows the form of least squares and of two-class logistic regression only"
        )
    if recipe.pull:
        raise ChooseAnotherAttack("does not know FedProx's pull towards the model sent")
    local = local_recipe(link, recipe)
    sent = link.sent.astype(np.float64)
    returned = sent - link.updates()
    if recipe.logistic_regression:
        bias = recipe.model.size - 1 if recipe.model.bias else None
        return decode_logistic(sent, returned, local, bias, seed)
    return decode_least_squares(sent, returned, local)


def local_recipe(link: Link, recipe: Recipe) -> LocalRecipe:
    """The client's local training in numbers; its size is the record count that it reports."""
    sizes = link.weights[np.isfinite(link.weights)]
    if not len(sizes):
        raise ChooseAnotherAttack("needs the client's number of records, which it did not report")
    records = int(sizes[-1])
    if link.gradients:
        return LocalRecipe(1.0, 1, records, records)
    batch = min(recipe.batch_size or records, records)
    return LocalRecipe(recipe.learning_rate, recipe.local_steps(records), batch, records)
