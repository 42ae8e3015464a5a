"""Which value does an attribute have, for every record?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from overheard.evaluation import metrics
from overheard.evaluation.baselines import (
    algorithm3_bound,
    best_stranger,
    imputation,
    majority_share,
)
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.evaluation.sureness import Posterior
from overheard.programs.program import Told
from overheard.questions.metrics import ACCURACY
from overheard.questions.question import Question
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import AttributeDomain, PublicRecords
from overheard.transcript.observe import LABEL_COLUMN
from overheard.transcript.target import Target
from overheard.transcript.view import Attack


def score(case: Case) -> Scorer:
    """The share of records whose value is guessed right.

    It is asked of the records that the adversary knows: the first ones of the truth.
    """
    client, name = case.view.client, case.target.column
    if PublicRecords in case.view.kinds:
        known = len(case.view.know(PublicRecords).records)
        inside = case.records.take(np.arange(min(known, len(case.records))))
        case = replace(case, truth={**case.truth, client: inside})
    recipe, truth, column = case.recipe, case.truth, case.records[name]
    cut: dict[str, str] = {}
    if AttributeDomain in case.view.kinds:
        domain = case.view.know(AttributeDomain)
        values = domain.values
        if domain.spread:
            cut["right_is"] = f"the right one of {len(values)} ranges: {'; '.join(domain.words)}"
    else:
        values = tuple(sorted({v for r in truth.values() for v in r[name].tolist()}))
    others = imputation(recipe, truth, client, name, values, case.seed, case.target.columns)
    stranger = best_stranger(case.view, others, column, values)
    free = (majority_share(column, values), None if stranger is None else stranger.hits)
    bound = algorithm3_bound(recipe.of(client), case.records, name, values)
    own = metrics.log2_shares(column, values)

    def scored(attack: Attack, guess: AttributeValues, seconds: float) -> Scored:
        hits = metrics.attribute_hits(guess, column)
        details: dict[str, float | int | str] = {
            "balanced_accuracy": metrics.balanced_accuracy(guess, column),
            **metrics.rare_value(guess, column),
            **guess.diagnostics,
            **cut,
        }
        claimed = None
        if guess.claims:
            bits = metrics.attribute_bits(guess, column)
            beyond = None if stranger is None else bits + own - stranger.log2
            before = None if stranger is None or stranger.prior is None else stranger.prior - own
            claimed = Posterior(guess.probabilities.max(axis=1), hits, bits, beyond, before)
            details["calibration_error"] = metrics.calibration_error(guess, column)
        if guess.labels is not None:
            classes = case.records[recipe.target.column]
            details["label_accuracy"] = float(metrics.attribute_hits(guess.labels, classes).mean())
        promised = bound if attack.name == "model_based_linear" else None
        return case.scored_hits(attack, seconds, hits, details, claimed, free, bound=promised)

    return scored


def hidden(target: Target, recipe: Told | None) -> tuple[str, ...]:
    """Its columns; where that is the label, under the name of side knowledge, too."""
    label = (LABEL_COLUMN,) if recipe and recipe.target.column in target.columns else ()
    return (*target.columns, *label)


QUESTION = Question(
    name="attribute",
    title="Sensitive attributes",
    asks="which value does an attribute have, for every record?",
    metric=ACCURACY,
    answers=(AttributeValues,),
    score=score,
    hidden=hidden,
    column="must",
    sums=True,
    short=True,
    removable=True,
)
