"""The residual of the reconstructed local model, ranked (driouich2022 Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.local_model.exact_linear import affine_map
from overheard.decoding.affine_map import AffineMap
from overheard.errors import ChooseAnotherAttack
from overheard.learning.recipe import Recipe
from overheard.learning.records import encode
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View


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
        recipe = view.know(LocalTraining).recipe
        domain = view.know(AttributeDomain)
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
        fit = affine_map(view.know(Link), recipe)
        records = view.know(PublicRecords).records
        low, high = (
            float(encode(recipe.encoding, records, {domain.column: v})[0, inputs.start])
            for v in domain.values
        )
        public = encode(recipe.encoding, records, {domain.column: domain.values[0]})
        public[:, inputs.start] = 0.0
        labels = recipe.target.encode_values(view.know(Labels).values)
        scores = (solve_for_attribute(recipe, fit, inputs.start, public, labels) - low) / (
            high - low
        )
        share = share_of_ones(recipe, fit, inputs.start, low, high)
        if share is None:
            chosen = (scores > 0.5).astype(np.int64)
        else:
            ones = ceil(round(share * len(scores), 6))
            chosen = np.zeros(len(scores), dtype=np.int64)
            chosen[np.argsort(-scores, kind="stable")[:ones]] = 1
        return AttributeValues(
            certain(chosen, domain.values),
            domain.values,
            {"identified": fit.identified, "share_of_ones": -1.0 if share is None else share},
            claims=False,
        )


def solve_for_attribute(
    recipe: Recipe,
    fit: AffineMap,
    position: int,
    public: NDArray[np.float64],
    labels: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Line 3 of Algorithm 3: (y - X_p theta_p) / theta_s for every record."""
    theta = fit.fixed_point
    offset = theta[-1] if recipe.dense.bias else 0.0
    weight = theta[position]
    if weight == 0.0:
        raise ChooseAnotherAttack("the local model does not use the attribute at all")
    return np.asarray((labels - public @ theta[: recipe.dense.inputs] - offset) / weight)


def share_of_ones(
    recipe: Recipe, fit: AffineMap, position: int, low: float, high: float
) -> float | None:
    """Line 2 (Proposition 2): the share of records with the second value; one local step only.

    With one step W = 2 lr X'X/m, so that the attribute's entries hold s's/m and, with a bias,
    1's/m. None where the update map does not hold them.
    """
    if recipe.algorithm == "fedprox" or (recipe.algorithm == "fedavg" and recipe.epochs != 1):
        return None
    rate = 1.0 if recipe.algorithm == "fedsgd" else recipe.learning_rate
    second_moments = fit.W / (2 * rate)
    if recipe.dense.bias:
        mean = second_moments[position, -1]
        share = (mean - low) / (high - low)
    elif low == 0.0:
        share = second_moments[position, position] / high**2
    else:
        return None
    return float(np.clip(share, 0.0, 1.0))
