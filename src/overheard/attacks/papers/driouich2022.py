"""What does a client's model say of its records' attribute? driouich2022's Algorithms 3 and 4.

Algorithm 3 ranks the residual of a client's model, for linear least squares and a binary attribute.
The paper runs it on the reconstructed local model (`ModelBasedLinear`) and, in its section 5 and
appendix A.2, on the last global and the last returned model; how many ones there are follows from
the messages (Proposition 2) whichever model is ranked.

The others are launched on the model last sent, the model last returned and the reconstructed local
model (the paper's OursGlobal, OursLastReturned and OursLocal). "These follow the same procedure as
in Algo. 3 and Algo. 4" (section 5): Algorithm 3 where it applies, that is for a binary attribute of
linear least squares whose ones Proposition 2 counts; otherwise Algorithm 4, for any model and any
finite domain: for every record the value of least squared error of the model's prediction.

With a logistic model and a binary attribute Algorithm 4 reads one bit of the model, the sign of
the attribute's weight: a prediction lies between 0 and 1, so that the value which raises it is
nearer to a label of 1, the other to one of 0. Whatever the model, it says "s = y" or "s = 1 - y".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import LastReturned
from overheard.attacks.papers.xu2021 import ExactLinear, LearnedMap, affine_map
from overheard.decoding.affine_map import AffineMap
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode, encode_each
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """A binary attribute that is one input of a linear model.

    position: of the input; low, high: what the input is for either value; public: (m, d) inputs,
    0 at ``position``; labels: (m,).
    """

    recipe: Recipe
    position: int
    low: float
    high: float
    public: Array
    labels: Array

    def scores(self, theta: Array) -> Array:
        """Line 3: (y - X_p theta_p) / theta_s for every record; 0 at ``low`` and 1 at ``high``."""
        offset = theta[-1] if self.recipe.model.bias else 0.0
        weight = theta[self.position]
        if weight == 0.0:
            raise ChooseAnotherAttack("the model does not use the attribute at all")
        weights = theta[: self.recipe.model.inputs]
        solved = (self.labels - self.public @ weights - offset) / weight
        return np.asarray((solved - self.low) / (self.high - self.low))

    def share_of_ones(self, fit: AffineMap) -> float | None:
        """Line 2 (Proposition 2): the share of records with the second value; one local step only.

        With one step W = 2 lr X'X/m, so that the attribute's entries hold s's/m and, with a bias,
        1's/m. None where the update map does not hold them.
        """
        recipe = self.recipe
        if recipe.pull or not recipe.one_step:
            return None
        second_moments = fit.W / (2 * recipe.rate)
        if recipe.model.bias:
            mean = second_moments[self.position, -1]
            share = (mean - self.low) / (self.high - self.low)
        elif self.low == 0.0:
            share = second_moments[self.position, self.position] / self.high**2
        else:
            return None
        return float(np.clip(share, 0.0, 1.0))


def asked(view: View) -> Asked:
    """The question as Algorithm 3 takes it; `ChooseAnotherAttack` where it does not."""
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    if len(domain.values) != 2:
        raise ChooseAnotherAttack(
            f"{domain.column!r} takes {len(domain.values)} values; Algorithm 3 is for two"
        )
    inputs = recipe.encoding.inputs_of(domain.column)
    if inputs.stop - inputs.start != 1:
        raise ChooseAnotherAttack(
            f"{domain.column!r} is encoded as {inputs.stop - inputs.start} inputs; "
            "Algorithm 3 is for one"
        )
    records = view.know(PublicRecords).records
    low, high = (
        float(encode(recipe.encoding, records, {domain.column: v})[0, inputs.start])
        for v in domain.values
    )
    public = encode(recipe.encoding, records, {domain.column: domain.values[0]})
    public[:, inputs.start] = 0.0
    labels = recipe.target.encode_values(view.know(Labels).values)
    return Asked(recipe, inputs.start, low, high, public, labels)


def ranked(
    view: View, question: Asked, theta: Array, share: float, identified: int
) -> AttributeValues:
    """Line 4: the ceil(share m) highest scores are ones."""
    scores = question.scores(theta)
    chosen = np.zeros(len(scores), dtype=np.int64)
    chosen[np.argsort(-scores, kind="stable")[: ceil(round(share * len(scores), 6))]] = 1
    values = view.know(AttributeDomain).values
    diagnostics = {"identified": identified, "share_of_ones": share}
    return AttributeValues(certain(chosen, values), values, diagnostics, claims=False)


def algorithm_3(view: View, theta: Array) -> AttributeValues | None:
    """Algorithm 3 with ``theta`` for the local model.

    None where it does not apply: another model, attribute or local training than Proposition 2's,
    or too few messages to count the ones.
    """
    recipe = view.know(LocalTraining).recipe
    if not (recipe.linear_least_squares and recipe.full_batch):
        return None
    try:
        question, fit = asked(view), affine_map(view.know(Link), recipe)
    except (ChooseAnotherAttack, ListenLonger):
        return None
    share = question.share_of_ones(fit)
    return None if share is None else ranked(view, question, theta, share, fit.identified)


@dataclass(frozen=True)
class ModelBasedLinear:
    """Reconstructs the client's local model, solves each record for the attribute that would make
    the model right, and calls the highest of them ones: as many as Proposition 2 counts (one local
    step), or those nearer to one than to zero (several steps)."""

    name: ClassVar[str] = "model_based_linear"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        question = asked(view)
        fit = affine_map(view.know(Link), question.recipe)
        share = question.share_of_ones(fit)
        if share is not None:
            return ranked(view, question, fit.fixed_point, share, fit.identified)
        chosen = (question.scores(fit.fixed_point) > 0.5).astype(np.int64)
        values = view.know(AttributeDomain).values
        diagnostics = {"identified": fit.identified, "share_of_ones": -1.0}
        return AttributeValues(certain(chosen, values), values, diagnostics, claims=False)


NEEDS: frozenset[type[Any]] = frozenset(
    {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
)


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
