"""driouich2022: what does a client's model say of its records' attribute?

In the paper's order and symbols: theta_s is the weight of the sensitive attribute s, theta_p those
of the public attributes X_p, rho the share of ones.

- Algorithm 3 (`algorithm_3`) is for a binary attribute and linear least squares: it solves every
  record for s and calls the highest ones, as many as the messages count (Proposition 2), whichever
  model is asked. `ModelBasedLinear` runs it on the local model, which Observation 1 of xu2021
  decodes exactly; Proposition 3 bounds its accuracy (`evaluation.baselines`).
- Algorithm 4 (`algorithm_4`) is for any model and any finite domain: for every record the value of
  least squared error of the model's prediction.
- Section 5: the reconstructed local model (`ModelBasedLocal`, the paper's OursLocal), the model
  last sent (`ModelBasedGlobal`, OursGlobal) and the model last returned (`ModelBasedLastReturned`,
  OursLastReturned) "follow the same procedure as in Algo. 3 and Algo. 4": Algorithm 3 where it
  applies, else Algorithm 4.

With a logistic model and a binary attribute Algorithm 4 reads one bit of the model, the sign of
the attribute's weight: a prediction lies between 0 and 1, so that the value which raises it is
nearer to a label of 1, the other to one of 0. Whatever the model, it says "s = y" or "s = 1 - y".

The gradient-based attacks of its Tables 1 to 3, `l2_lbfgs` and `gumbel`, are in `papers.lyu2021`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import LastReturned
from overheard.attacks.papers.lyu2021 import NEEDS, guess_points, true_labels
from overheard.attacks.papers.xu2021 import ExactLinear, LearnedMap, affine_map
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import AttributeDomain, ClientProgram, Messages
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]


def algorithm_3(view: View, theta: Array | None = None) -> AttributeValues:
    """Algorithm 3, with ``theta`` in place of the local model where it is given.

    Refused of other models and attributes, and where too few messages were observed. Where the ones
    cannot be counted (several local steps), s is rounded to the nearer value, as the paper says
    before it counts: on a linear model this is Algorithm 4.
    """
    recipe, domain = view.know(ClientProgram).plain_recipe, view.know(AttributeDomain)
    places = recipe.encoding.inputs_of(domain.columns)
    if len(domain.values) != 2 or len(places) != 1:
        raise ChooseAnotherAttack(
            f"{domain.column!r} takes {len(domain.values)} values in {len(places)} inputs; "
            "Algorithm 3 is for two values in one input"
        )
    # line 1: the local model (xu2021, Observation 1)
    fit, position = affine_map(view.know(Messages), recipe), places[0]
    theta = fit.estimate if theta is None else theta
    # line 2: rho, the share of ones
    candidates, labels = guess_points(view), true_labels(view)
    low, high = candidates[:, 0, position].tolist()
    share = share_of_ones(recipe, fit.W, position, low, high)
    # line 3: X_p theta_p + s theta_s = y for every record, where s is 0 at `low` and 1 at `high`
    weight = theta[position] * (high - low)
    if weight == 0.0:
        raise ChooseAnotherAttack("the model does not use the attribute at all")
    solved = (labels - network(recipe).predict(theta, candidates[0])[:, 0]) / weight
    # line 4: the highest ceil(rho m) are ones
    ones = solved > 0.5
    if share is not None:
        ones[:] = False
        ones[np.argsort(-solved, kind="stable")[: ceil(round(share * len(ones), 6))]] = True
    details = {"identified": fit.identified, "share_of_ones": -1.0 if share is None else share}
    chosen = certain(ones.astype(np.int64), domain.values)
    return AttributeValues(chosen, domain.values, details, claims=False)


def share_of_ones(recipe: Recipe, W: Array, position: int, low: float, high: float) -> float | None:
    """Proposition 2: the share of records with the second value; one local step only.

    With one step W = 2 lr X'X/m, so that the attribute's entries hold s's/m and, with a bias,
    1's/m. None where the update map does not hold them.
    """
    if recipe.pull or not recipe.one_step:
        return None
    second_moments = W / (2 * recipe.rate)
    if recipe.model.bias:
        share = (second_moments[position, -1] - low) / (high - low)
    elif low == 0.0:
        share = second_moments[position, position] / high**2
    else:
        return None
    return float(np.clip(share, 0.0, 1.0))


def algorithm_4(view: View, theta: Array) -> AttributeValues:
    """Line 2 of Algorithm 4 for all records and values at once."""
    recipe, values = view.know(ClientProgram).plain_recipe, view.know(AttributeDomain).values
    predicted, loss = network(recipe).predict(theta, guess_points(view)), loss_named(recipe.loss)
    wanted = true_labels(view)[:, None]
    if loss.classes:  # F gives probabilities where the target is a class
        predicted = loss.chances(predicted)
        wanted = wanted == np.arange(predicted.shape[-1])
    errors = ((predicted - wanted) ** 2).sum(axis=-1)  # ||F(theta, X_p, s) - y||^2 (K, m)
    return AttributeValues(certain(errors.argmin(axis=0), values), values, claims=False)


def infer(view: View, theta: Array) -> AttributeValues:
    """Algorithm 3 where it applies, else Algorithm 4, with this model for the local one."""
    try:
        return algorithm_3(view, theta)
    except (ChooseAnotherAttack, ListenLonger):
        return algorithm_4(view, theta)


class ModelBased:
    """What the attacks on a client's model have in common."""

    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = NEEDS


@dataclass(frozen=True)
class ModelBasedLinear(ModelBased):
    """Reconstructs the client's local model, solves each record for the attribute that would make
    the model right, and calls the highest of them ones: as many as Proposition 2 counts (one local
    step), or those nearer to one than to zero (several steps).

    Solves: sᵢ = (yᵢ − θₚ·xᵢ) / θₛ, the ⌈ρm⌉ largest are 1 (driouich2022, Algorithm 3)
    """

    name: ClassVar[str] = "model_based_linear"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return algorithm_3(view)


@dataclass(frozen=True)
class ModelBasedLocal(ModelBased):
    """Reconstructs the client's local model (exactly for linear least squares, else by xu2021's
    learned map) and for every record takes the value with which it predicts the label best; on a
    linear model as many ones as the messages count.

    Solves: sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ*))² (driouich2022, Algorithm 4; on a linear model
    Algorithm 3)

    Settings: ``learned_map``, how the map is learned where no exact solution exists.
    """

    name: ClassVar[str] = "model_based_local"
    slow: ClassVar[bool] = True

    learned_map: LearnedMap = field(default_factory=LearnedMap)

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        recipe = view.know(ClientProgram).plain_recipe
        exact = recipe.linear_least_squares and recipe.full_batch
        reconstruct = ExactLinear() if exact else self.learned_map
        return infer(view, reconstruct(view, rng).parameters)


@dataclass(frozen=True)
class ModelBasedGlobal(ModelBased):
    """For every record takes the value with which the model last sent predicts the label best; on a
    linear model as many ones as the messages count.

    Solves: sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ))² (driouich2022, Algorithm 4; on a linear model
    Algorithm 3)
    """

    name: ClassVar[str] = "model_based_global"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return infer(view, view.know(Messages).of_network().sent[-1].astype(np.float64))


@dataclass(frozen=True)
class ModelBasedLastReturned(ModelBased):
    """For every record takes the value with which the client's last model predicts it best; on a
    linear model as many ones as the messages count.

    Solves: sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ′))² (driouich2022, Algorithm 4; on a linear model
    Algorithm 3)
    """

    name: ClassVar[str] = "model_based_last_returned"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        return infer(view, LastReturned()(view, rng).parameters)
