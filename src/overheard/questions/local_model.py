"""Which model would the client have trained alone?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, FixData
from overheard.evaluation import metrics
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.programs.losses import loss_named
from overheard.programs.program import Message, Program, Terms
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.questions.question import Metric, Question
from overheard.randomness import stream
from overheard.transcript.guess import LocalModel, OwnModel
from overheard.transcript.knowledge import Messages
from overheard.transcript.view import Attack

Array = NDArray[np.float64]
AT_INFINITY = "at infinity (separable records): all are compared under a penalty of 1 / records"
"""What is said of an optimum that does not exist."""
EXCESS_LOSS = Metric("excess_loss", "error", limit=0.01, same=1e-4)
"""A model that loses at most 1% more than the optimum counts as the client's own; copies that lose
at most 0.01% more than one another are equally its own."""


def refuses(recipe: Terms, records: Records) -> str:
    """Why the client's own optimum is not one model."""
    if isinstance(recipe, Program):
        return "" if recipe.makes_model else "the clients run a program that makes no model"
    if not recipe.model.linear:
        return "a network's own optimum is not unique"
    if len(records) <= recipe.model.size:
        sizes = f"{len(records)} records for {recipe.model.size} parameters"
        return f"{sizes}: its own optimum is not unique"
    return ""


def score(case: Case) -> Scorer:
    """How much worse than the client's own optimum a model does on the client's records."""
    recipe, records = case.recipe.of(case.view.client), case.records
    if why := refuses(recipe, records):
        linear = isinstance(recipe, Recipe) and recipe.model.linear
        who = f"client {case.view.client!r} has " if linear else ""
        raise FixData(f"{who}{why}, so a guess at it cannot be scored")
    if isinstance(recipe, Program):
        return _score_program(case, recipe)
    optimum, penalty = metrics.comparable_optimum(recipe, records)
    infinite = {"optimum": AT_INFINITY} if penalty else {}

    def scored(attack: Attack, guess: LocalModel, seconds: float) -> Scored:
        units = metrics.excess_losses(recipe, guess, optimum, records, penalty)
        distance = np.linalg.norm(guess.parameters - optimum) / np.linalg.norm(optimum)
        details = {**guess.diagnostics, **infinite, "relative_distance": float(distance)}
        return case.scored(attack, seconds, units, details)

    return scored


def _score_program(case: Case, program: Program) -> Scorer:
    """The same against the model that the client's program makes of its records alone, in as many
    rounds as it took part in: squared errors of numbers, log losses of classes. ``agreement``: the
    share of the other clients' records of which both models say the same class, or the squared
    correlation of the numbers that they say. Without listening there is the global model.
    """
    records, client = case.records, case.view.client
    if Messages not in case.view.kinds:
        raise FixData("no release of a single client was observed: its own model is not asked for")
    observed = case.view.know(Messages).exchanges
    try:
        own = program.alone(records, len(observed), stream(case.seed, "alone"))
    except FixConfig as error:
        raise FixData(f"client {client!r} cannot make a model alone ({error})") from error
    loss = loss_named("cross_entropy" if program.target.classes else "squared_error")
    elsewhere = [held for name, held in case.truth.items() if name != client]

    def losses(model: Message) -> Array | None:
        outputs = program.predict(model, records)
        if outputs is None:
            return None
        return np.asarray(loss.values(outputs, program.target.encode(records)), np.float64)

    def says(model: Message) -> Array:
        outputs = np.concatenate([program.predict(model, held) for held in elsewhere])
        return np.asarray(loss.chances(outputs).argmax(axis=1) if loss.classes else outputs[:, 0])

    best, shared = losses(own), losses(observed[-1].sent)
    if best is None:
        raise FixData(f"client {client!r} grows no model alone, so a guess at it is not scored")
    size = max(float(best.mean()), 1e-12)

    def scored(attack: Attack, guess: OwnModel, seconds: float) -> Scored:
        mine, details = losses(guess.message), dict(guess.diagnostics)
        if mine is None:
            raise FixData("an answer without a model")
        if elsewhere:
            one, other = says(guess.message), says(own)
            same = one == other if loss.classes else np.corrcoef(one, other)[0, 1] ** 2
            details["agreement"] = float(np.mean(same))
        free = None if shared is None else (shared - best) / size
        return case.scored(attack, seconds, (mine - best) / size, details, free)

    return scored


QUESTION = Question(
    name="local_model",
    asks="which model would the client have trained alone?",
    metric=EXCESS_LOSS,
    answers=(LocalModel, OwnModel),
    score=score,
    side=None,
)
