"""The value that makes a model most right about a record (driouich2022 Algorithms 3 and 4).

Launched on the model last sent, the model last returned and the reconstructed local model (the
paper's OursGlobal, OursLastReturned and OursLocal). "These follow the same procedure as in Algo. 3
and Algo. 4" (section 5): Algorithm 3 where it applies, that is for a binary attribute of linear
least squares whose ones Proposition 2 counts; otherwise Algorithm 4, for any model and any finite
domain: for every record the value of least squared error of the model's prediction.

With a logistic model and a binary attribute Algorithm 4 reads one bit of the model, the sign of
the attribute's weight: a prediction lies between 0 and 1, so that the value which raises it is
nearer to a label of 1, the other to one of 0. Whatever the model, it says "s = y" or "s = 1 - y".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.model_based_linear import algorithm_3
from overheard.attacks.baselines import LastReturned
from overheard.attacks.local_model.exact_linear import ExactLinear
from overheard.attacks.local_model.learned_map import LearnedMap
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode_each
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

NEEDS: frozenset[type[Any]] = frozenset(
    {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
)
Array = NDArray[np.float64]


def infer(view: View, parameters: Array) -> AttributeValues:
    """Algorithm 3 where it applies, else Algorithm 4, with this model for the local one."""
    return algorithm_3(view, parameters) or best_values(view, parameters)


def best_values(view: View, parameters: Array) -> AttributeValues:
    """Line 2 of Algorithm 4 for all records and values at once."""
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    records = view.know(PublicRecords).records
    labels = recipe.target.encode_values(view.know(Labels).values)
    candidates = encode_each(recipe.encoding, records, domain.settings)
    errors = squared_errors(recipe, parameters, candidates, labels)
    choice = certain(errors.argmin(axis=0), domain.values)
    return AttributeValues(choice, domain.values, claims=False)


def squared_errors(recipe: Recipe, parameters: Array, candidates: Array, labels: Array) -> Array:
    """||F(theta, x, s) - y||^2 (K, m); F gives probabilities where the target is a class."""
    outputs, loss = network(recipe).predict(parameters, candidates), loss_named(recipe.loss)
    if not loss.classes:
        return np.asarray((outputs[..., 0] - labels) ** 2)
    chances = loss.chances(outputs)
    if outputs.shape[-1] == 1:
        return np.asarray((chances[..., 1] - labels) ** 2)
    one_hot = labels[:, None] == np.arange(outputs.shape[-1])
    return np.asarray(((chances - one_hot) ** 2).sum(axis=-1))


@dataclass(frozen=True)
class ModelBasedGlobal:
    """For every record takes the value with which the model last sent predicts the label best; on a
    linear model as many ones as the messages count."""

    name: ClassVar[str] = "model_based_global"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return infer(view, view.know(Link).sent[-1].astype(np.float64))


@dataclass(frozen=True)
class ModelBasedLastReturned:
    """For every record takes the value with which the client's last model predicts it best; on a
    linear model as many ones as the messages count."""

    name: ClassVar[str] = "model_based_last_returned"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return infer(view, LastReturned()(view, rng).parameters)


@dataclass(frozen=True)
class ModelBasedLocal:
    """Reconstructs the client's local model (exactly for linear least squares, else by xu2021's
    learned map) and for every record takes the value with which it predicts the label best; on a
    linear model as many ones as the messages count.

    Settings: ``learned_map``, how the map is learned where no exact solution exists.
    """

    name: ClassVar[str] = "model_based_local"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    slow: ClassVar[bool] = True

    learned_map: LearnedMap = field(default_factory=LearnedMap)

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        recipe = view.know(LocalTraining).recipe
        exact = recipe.linear_least_squares and recipe.full_batch
        reconstruct = ExactLinear() if exact else self.learned_map
        return infer(view, reconstruct(view, rng).parameters)
