"""What is known of the groups' mean labels without the client's gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.label.heard import encoded, sort
from overheard.errors import ChooseAnotherAttack
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.transcript.guess import GroupMeans
from overheard.transcript.knowledge import AuxiliaryData, Broadcast, Groups, LocalTraining
from overheard.transcript.view import View


@dataclass(frozen=True)
class Naive:
    """Takes the mean prediction of the current model on the auxiliary records of each group
    (leprovost2023's own baseline)."""

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Broadcast, LocalTraining, AuxiliaryData, Groups}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(LocalTraining).recipe
        if not loss_named(recipe.loss).least_squares:
            raise ChooseAnotherAttack("labels are numbers here: works for squared error only")
        inputs, groups = encoded(view, recipe)
        predicted = network(recipe).predict(view.know(Broadcast).last(), inputs)[:, 0]
        means = np.bincount(groups, predicted.astype(np.float64)) / np.bincount(groups)
        return _no_claim(view.know(Groups).values, recipe.target.decode_values(means))


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
