"""Which labels do the records have, or on average the groups of them?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.evaluation.baselines import imputed_group_means
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.programs.program import Terms
from overheard.programs.records import Value
from overheard.questions.question import Metric, Question
from overheard.transcript.guess import GroupMeans, LabelValues
from overheard.transcript.kind import LABEL_COLUMN
from overheard.transcript.knowledge import Groups
from overheard.transcript.target import Target
from overheard.transcript.view import Attack

Array = NDArray[np.float64]
MEAN_ABSOLUTE_ERROR = Metric("mean_absolute_error", "error")
"""In the label's own units."""


def label_errors(guess: LabelValues, labels: NDArray[Any]) -> Array:
    """Absolute error of each record's label, in the label's own units."""
    if guess.values.shape != labels.shape:
        raise FixData(f"{len(guess.values)} labels were guessed for {len(labels)} records")
    return np.asarray(np.abs(guess.values - labels), dtype=np.float64)


def group_mean_errors(
    means: Array, groups: tuple[Value, ...], column: NDArray[Any], labels: NDArray[Any]
) -> Array:
    """Absolute error of the mean label of each group that the client has, in the label's units."""
    there = np.isin(groups, column)
    truth = [labels[column == group].mean() for group in np.asarray(groups)[there]]
    return np.asarray(np.abs(means[there] - truth), dtype=np.float64)


def score(case: Case) -> Scorer:
    """Errors of labels, or of groups' mean labels. The baselines of each: imputation from the other
    clients' records, and the best constant guess, which is the client's own median."""
    recipe, records, client = case.recipe, case.records, case.view.client
    labels = records[recipe.target.column]
    imputed = case.imputer.label_errors(recipe, case.truth, client)
    sorting = case.view.know(Groups) if Groups in case.view.kinds else None
    mean_errors: Array | None = None
    if sorting is not None:
        means = imputed_group_means(recipe, case.truth, client, sorting.column, sorting.values)
        if means is not None:
            mean_errors = group_mean_errors(means, sorting.values, records[sorting.column], labels)

    def scored(attack: Attack, guess: GroupMeans | LabelValues, seconds: float) -> Scored:
        details, own = dict(guess.diagnostics), labels
        if isinstance(guess, GroupMeans):
            assert sorting is not None
            column = records[sorting.column]
            own = np.array([labels[column == group].mean() for group in np.unique(column)])
            units = group_mean_errors(guess.means, guess.groups, column, labels)
            claims = guess.sd[np.isin(guess.groups, column)]
            asked, free = sorting.column, mean_errors
        else:
            units, claims = label_errors(guess, labels), guess.sd
            asked, free = None, imputed
        if np.isfinite(claims).all():
            details["covered"] = float(np.mean(units <= 1.96 * claims))
        more = {"attribute": asked, "majority": float(np.abs(own - np.median(own)).mean())}
        return case.scored(attack, seconds, units, details, free, None, **more)

    return scored


def hidden(target: Target, recipe: Terms | None) -> tuple[str, ...]:
    """The label itself, under its own name and under that of side knowledge."""
    return (LABEL_COLUMN, *((recipe.target.column,) if recipe else ()))


QUESTION = Question(
    name="label",
    asks="which labels do the records have?",
    metric=MEAN_ABSOLUTE_ERROR,
    answers=(GroupMeans, LabelValues),
    score=score,
    hidden=hidden,
)
