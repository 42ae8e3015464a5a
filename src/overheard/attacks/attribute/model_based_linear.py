"""The residual of a client's model, ranked (driouich2022 Algorithm 3).

For linear least squares and a binary attribute. The paper runs it on the reconstructed local model
(`ModelBasedLinear`) and, in its section 5 and appendix A.2, on the last global and the last
returned model (`overheard.attacks.attribute.model_based`); how many ones there are follows from the
messages (Proposition 2) whichever model is ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.local_model.exact_linear import affine_map
from overheard.decoding.affine_map import AffineMap
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
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
