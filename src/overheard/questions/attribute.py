"""Which value does an attribute have, for every record?"""

from __future__ import annotations

from itertools import pairwise

from overheard.evaluation import metrics
from overheard.evaluation.baselines import Imputed, best_imputation, majority_share
from overheard.evaluation.scoring import Case, Posterior, Scored, Scorer
from overheard.programs.program import Terms
from overheard.questions.question import ACCURACY, Question
from overheard.transcript.guess import AttributeValues
from overheard.transcript.kind import LABEL_COLUMN
from overheard.transcript.knowledge import AttributeDomain, PublicRecords
from overheard.transcript.target import Target, joined
from overheard.transcript.view import Attack


def score(case: Case) -> Scorer:
    """The share of records whose value is guessed right.

    It is asked of the records that the adversary knows: the first ones of the truth.
    """
    client, name, truth = case.view.client, case.target.column, case.truth
    recipe, records, column = case.recipe, case.records, case.records[name]
    if PublicRecords in case.view.kinds:
        column = column[: len(case.view.know(PublicRecords).records)]
    cut: dict[str, str] = {}
    if AttributeDomain in case.view.kinds:
        domain = case.view.know(AttributeDomain)
        values = domain.values
        if domain.spread:
            cut["right_is"] = f"the right one of {len(values)} ranges: {'; '.join(ranges(domain))}"
    else:
        every = (joined(held, case.target)[name].tolist() for held in truth.values())
        values = tuple(sorted({value for held in every for value in held}))
    others = case.imputer.values(recipe, truth, client, case.target, values)
    if others is not None:
        others = Imputed(others.hits[: len(column)], others.log2[: len(column)])
    imputed = best_imputation(case.view, others, column, values)
    free = None if imputed is None else imputed.hits
    more = {"majority": majority_share(column, values), "n": len(column)}
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
            beyond = None if imputed is None else bits + own - imputed.log2
            claimed = Posterior(guess.probabilities.max(axis=1), hits, bits, beyond)
            details["calibration_error"] = metrics.calibration_error(guess, column)
        if guess.labels is not None:
            classes = records[recipe.target.column][: len(column)]
            details["label_accuracy"] = float(metrics.attribute_hits(guess.labels, classes).mean())
        return case.scored(attack, seconds, hits, details, free, claimed, **more)

    return scored


def hidden(target: Target, recipe: Terms | None) -> tuple[str, ...]:
    """Its columns; where that is the label, under the name of side knowledge, too."""
    label = (LABEL_COLUMN,) if recipe and recipe.target.column in target.columns else ()
    return (*target.columns, *label)


QUESTION = Question(
    name="attribute",
    asks="which value does an attribute have, for every record?",
    metric=ACCURACY,
    answers=(AttributeValues,),
    score=score,
    hidden=hidden,
    column=".+",
    sums=True,
)


def ranges(domain: AttributeDomain) -> tuple[str, ...]:
    """What each value stands for; of a bin its range, half-way to the middles beside it."""
    middles = sorted(v for v in domain.values if isinstance(v, int | float))
    if not domain.spread or len(middles) < len(domain.values):
        return tuple(map(str, domain.values))
    edges = [(low + high) / 2 for low, high in pairwise(middles)]
    # as few digits as put each edge between the middles that it parts
    for digits in range(4, 18):
        short = [f"{edge:.{digits}g}" for edge in edges]
        parted = zip(middles, map(float, short), middles[1:], strict=False)
        if all(low < edge < high for low, edge, high in parted):
            break
    ranges = (f"{low} to {high}" for low, high in pairwise(short))
    names = dict(zip(middles, (f"up to {short[0]}", *ranges, f"above {short[-1]}"), strict=True))
    return tuple(names[v] for v in domain.values if isinstance(v, int | float))
