"""The local optimum by a map of the right form: least squares or logistic, mini-batches or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.client import record_count
from overheard.decoding.local_optimum import (
    LeastSquaresOptions,
    LocalOptimum,
    LocalRecipe,
    decode_least_squares,
)
from overheard.decoding.pseudo_records import PseudoRecordOptions, decode_logistic
from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.programs.program import Program
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import LocalModel, OwnModel
from overheard.transcript.knowledge import ClientProgram, Messages
from overheard.transcript.view import Kinds, View


@dataclass(frozen=True)
class Structured:
    """Keeps the form that the loss dictates for what a client does to a model and fits only what
    its records decide, with the mini-batch noise as prior for the curvature. Linear least squares
    and two-class logistic regression, any batch size and number of local steps; it returns its
    own uncertainty and the number of directions that the messages identify. Of programs that train
    no network it takes the step that the server would take with this client's releases and nobody
    else's: Newton's towards the client's own optimum, the client's own trees.

    Solves: θ′ = the client's own steps from θ on a few pseudo-records, fitted to all updates

    It goes from the last returned model towards the fitted optimum only as far as the optimum's own
    error allows, or simulated clients (logistic, mini-batches). ``trusted`` is the share of the
    way; where it is small the answer says little beyond the last returned model, and is flagged.
    """

    name: ClassVar[str] = "structured"
    aliases: ClassVar[dict[str, Any]] = {"own_release": {}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel | OwnModel:
        link, program = view.know(Messages), view.know(ClientProgram).program
        if not isinstance(program, Recipe):
            return own_model(program, link)
        result = decode(link, program, int(rng.integers(2**31)))
        diagnostics: dict[str, float | int | str] = {
            "identified": result.identified,
            "parameters": len(result.estimate),
            "reduced_chi2": result.chi2,
            "noise_sd": result.noise_sd,
            "trusted": result.trusted,
        }
        if result.trusted < PseudoRecordOptions().least_share:
            diagnostics["flag"] = (
                f"{len(link)} rounds say little of {len(result.estimate)} parameters beyond the "
                f"last returned model: the answer goes {result.trusted:.0%} of the way from it to "
                "a fitted optimum that is as uncertain as it is far"
            )
        return LocalModel(result.estimate, result.estimate_sd, result.identified, diagnostics)


def own_model(program: Program, observed: Messages) -> OwnModel:
    """The model that the server would make of one client's releases alone."""
    if not program.makes_model:
        raise ChooseAnotherAttack(f"{program.settings.name!r} is a program that makes no model")
    try:
        return OwnModel(program.own(observed.exchanges))
    except FixConfig as error:
        raise ChooseAnotherAttack(f"the client alone makes no model ({error})") from error


def decode(link: Messages, recipe: Recipe, seed: int) -> LocalOptimum:
    """The optimum of a client, from its link."""
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
    link.require(LeastSquaresOptions().least_rounds, "the noise of training")
    return decode_least_squares(sent, returned, local)


def local_recipe(link: Messages, recipe: Recipe) -> LocalRecipe:
    """The client's local training in numbers; its size is the record count that it reports."""
    records = record_count(link, "how many batches an epoch has")
    batch = records if link.gradients else min(recipe.batch_size or records, records)
    return LocalRecipe(recipe.rate, recipe.local_steps(records), batch, records)
