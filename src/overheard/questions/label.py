"""Which labels do the records have, or on average the groups of them?"""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from overheard.evaluation import metrics
from overheard.evaluation.baselines import imputed_label_errors, strange_group_means
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.programs.program import Told
from overheard.programs.records import Records
from overheard.questions.metrics import errors
from overheard.questions.question import Question
from overheard.transcript.guess import GroupMeans, LabelValues
from overheard.transcript.knowledge import Groups
from overheard.transcript.observe import LABEL_COLUMN
from overheard.transcript.target import Target
from overheard.transcript.view import Attack

Array = NDArray[np.float64]


MEAN_ABSOLUTE_ERROR = errors(
    name="mean_absolute_error",
    axis="Mean absolute error",
    of=lambda attribute: (
        Markup("each record's label, in the label's own units")
        if attribute is None
        else Markup("the mean label of each group, in the label's own units")
    ),
    rule="Labels: an error below that of a stranger's prediction and of every other guess.",
    caption="Labels of <bdi>{}</bdi>",
)


def score(case: Case) -> Scorer:
    """Errors of labels, or of groups' mean labels; a stranger's are the baseline of each."""
    recipe, records, client = case.recipe, case.records, case.view.client
    labels = records[recipe.target.column]
    imputed = imputed_label_errors(recipe, case.truth, client, case.seed)
    sorting = case.view.know(Groups) if Groups in case.view.kinds else None
    strange: Array | None = None
    if sorting is not None:
        means = strange_group_means(recipe, case.truth, client, sorting.column, sorting.values)
        if means is not None:
            strange = metrics.group_mean_errors(
                means, sorting.values, records[sorting.column], labels
            )

    def scored(attack: Attack, guess: GroupMeans | LabelValues, seconds: float) -> Scored:
        details = dict(guess.diagnostics)
        if isinstance(guess, GroupMeans):
            assert sorting is not None
            column = records[sorting.column]
            units = metrics.group_mean_errors(guess.means, guess.groups, column, labels)
            claims = metrics.in_groups_present(guess.sd, guess.groups, column)
            asked, stranger = sorting.column, strange
        else:
            units, claims = metrics.label_errors(guess, labels), guess.sd
            asked, stranger = None, imputed
        if np.isfinite(claims).all():
            details["covered"] = float(np.mean(units <= 1.96 * claims))
        return case.scored_units(attack, seconds, units, details, stranger, attribute=asked)

    return scored


def hidden(target: Target, recipe: Told | None) -> tuple[str, ...]:
    """The label itself, under its own name and under that of side knowledge."""
    return (LABEL_COLUMN, *((recipe.target.column,) if recipe else ()))


def alone(recipe: Told, records: Records, attribute: str | None) -> float:
    """The mean error of the median label, or of the median of the groups' means."""
    labels = records[recipe.target.column].astype(np.float64)
    if attribute is not None:
        groups = records[attribute]
        labels = np.array([labels[groups == g].mean() for g in np.unique(groups)])
    return float(np.abs(labels - np.median(labels)).mean())


QUESTION = Question(
    name="label",
    title="Labels",
    asks="which labels do the records have?",
    metric=MEAN_ABSOLUTE_ERROR,
    answers=(GroupMeans, LabelValues),
    score=score,
    hidden=hidden,
    noun="label",
    secret=lambda attribute: "label" if attribute is None else f"mean label by {attribute}",
    alone=alone,
)
