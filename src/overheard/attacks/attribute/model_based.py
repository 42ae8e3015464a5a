"""The value that makes a model most right about a record (driouich2022 Algorithm 4).

Any model, any finite domain: for every record the value of least squared error of the model's
prediction. Launched on the model last sent, the model last returned and the reconstructed local
model (the paper's OursGlobal, OursLastReturned and OursLocal).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from overheard.attacks.local_model.baseline import LastReturned
from overheard.attacks.local_model.exact_linear import ExactLinear
from overheard.attacks.local_model.learned_map import LearnedMap
from overheard.learning.dense import predict
from overheard.learning.recipe import Recipe
from overheard.learning.records import encode_each
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


def best_values(view: View, parameters: Array) -> AttributeValues:
    """Line 2 of Algorithm 4 for all records and values at once."""
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    records = view.know(PublicRecords).records
    labels = recipe.target.encode_values(view.know(Labels).values)
    candidates = encode_each(recipe.encoding, records, domain.column, domain.values)
    errors = squared_errors(recipe, parameters, candidates, labels)
    choice = certain(errors.argmin(axis=0), domain.values)
    return AttributeValues(choice, domain.values, claims=False)


def squared_errors(recipe: Recipe, parameters: Array, candidates: Array, labels: Array) -> Array:
    """||F(theta, x, s) - y||^2 (K, m); F gives probabilities where the target is a class."""
    outputs = np.asarray(predict(recipe.dense, parameters, candidates))
    if recipe.loss == "squared_error":
        return np.asarray((outputs[..., 0] - labels) ** 2)
    if outputs.shape[-1] == 1:
        return np.asarray((expit(outputs[..., 0]) - labels) ** 2)
    one_hot = labels[:, None] == np.arange(outputs.shape[-1])
    return np.asarray(((softmax(outputs, axis=-1) - one_hot) ** 2).sum(axis=-1))


@dataclass(frozen=True)
class ModelBasedGlobal:
    """For every record takes the value with which the model last sent predicts the label best."""

    name: ClassVar[str] = "model_based_global"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return best_values(view, view.know(Link).sent[-1].astype(np.float64))


@dataclass(frozen=True)
class ModelBasedLastReturned:
    """For every record takes the value with which the client's last model predicts it best."""

    name: ClassVar[str] = "model_based_last_returned"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return best_values(view, LastReturned()(view, rng).parameters)


@dataclass(frozen=True)
class ModelBasedLocal:
    """Reconstructs the client's local model (exactly for linear least squares, else by xu2021's
    learned map) and for every record takes the value with which it predicts the label best.

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
        return best_values(view, reconstruct(view, rng).parameters)
