"""What is known of the groups' mean labels without the client's gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.label.heard import gradients, outside, sort
from overheard.learning.dense import predict
from overheard.transcript.guess import GroupMeans
from overheard.transcript.knowledge import AuxiliaryData, Groups, Link, LocalTraining
from overheard.transcript.view import View


@dataclass(frozen=True)
class Naive:
    """Takes the mean prediction of the current model on the auxiliary records of each group
    (leprovost2023's own baseline)."""

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, AuxiliaryData, Groups})

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(LocalTraining).recipe
        known = outside(view, recipe)
        model = gradients(view.know(Link), recipe).models[-1]
        means = known.mean(predict(recipe.dense, model, known.inputs)[:, 0].astype(np.float64))
        return _no_claim(known.values, recipe.target.decode_values(means))


@dataclass(frozen=True)
class AuxiliaryMean:
    """Takes the mean label of the auxiliary records of each group: a stranger's guess, which needs
    neither the model nor a single message."""

    name: ClassVar[str] = "auxiliary_mean"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({AuxiliaryData, Groups})

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        auxiliary, sorting = view.know(AuxiliaryData), view.know(Groups)
        groups = sort(auxiliary, sorting)
        sums = np.bincount(groups, auxiliary.labels.astype(np.float64))
        return _no_claim(sorting.values, sums / np.bincount(groups))


def _no_claim(groups: tuple[Any, ...], means: np.ndarray[Any, Any]) -> GroupMeans:
    return GroupMeans(groups, means, np.full(len(groups), np.nan))
