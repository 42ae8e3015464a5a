"""Labels from one gradient of the last layer: leprovost2023, in the paper's order.

- K = 1, the label of a lone record in closed form, y = w.grad_w / grad_b + b - grad_b / 2
  (`SingleRecord`).
- K > 1, the mean label of each group ("meta-class"). The gradient of the last layer is a sum over
  records of residual times the layer's input. The paper puts the group's mean input, seen on
  auxiliary records, in the place of each record's, which leaves one unknown per group, and solves
  by Moore-Penrose pseudo-inverse (MP, `GroupMeansPinv`) or with Tikhonov regularisation (T,
  `GroupMeansTikhonov`). It does not say how strong; here it is what serves best on batches of
  auxiliary records whose means are known.
- Figure 1's naive attack, the current model's mean prediction, is `overheard.attacks.baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label import BayesGroups, Outside, gradients, output_rows, outside
from overheard.errors import ChooseAnotherAttack
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import GroupMeans, LabelValues
from overheard.transcript.knowledge import ClientProgram, Messages
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
STRENGTHS = np.geomspace(1e-4, 1e2, 40)
"""Tikhonov parameters that are tried, relative to the largest singular value."""


@dataclass(frozen=True)
class GroupMeansPinv:
    """Puts the group's mean features in the place of each record's and solves the last layer's
    gradient for one residual per group by pseudo-inverse (MP in the paper).

    Solves: (K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1], by pseudo-inverse (leprovost2023, K > 1)
    """

    name: ClassVar[str] = "group_means_pinv"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = BayesGroups.needs
    uses: ClassVar[Kinds] = BayesGroups.uses

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        return solved(view, 0, rng)


@dataclass(frozen=True)
class GroupMeansTikhonov(GroupMeansPinv):
    """The same with Tikhonov regularisation (T in the paper), of the strength that makes the
    smallest error on simulated clients drawn from the auxiliary records.

    Solves: (K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1], with Tikhonov's term (leprovost2023, K > 1)

    Settings: ``draws``, how many clients are simulated.
    """

    name: ClassVar[str] = "group_means_tikhonov"

    draws: int = 200

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        return solved(view, self.draws, rng)


@dataclass(frozen=True)
class LastLayer:
    """The linear system of the paper, and the auxiliary records behind it.

    features: (n, h + 1) inputs of the last layer with a one; residuals: (n,); matrix: (h + 1, C)
    mean features of each group; total: (h + 1,) K/2 times the observed gradient.
    """

    known: Outside
    features: Array
    residuals: Array
    matrix: Array
    prediction: Array
    total: Array

    def solve(self, totals: Array, strengths: Array) -> Array:
        """Mean residual of each group (b, s, C), for totals (b, h + 1) and strengths (s,)."""
        left, singular, right = np.linalg.svd(self.matrix, full_matrices=False)
        used = singular > 1e-12 * max(singular[0], 1e-300)
        penalised = singular**2 + (strengths[:, None] * singular[0]) ** 2
        gain = np.where(used, singular / np.where(used, penalised, 1), 0)
        sums = (gain * (totals @ left)[:, None]) @ right
        counts = self.known.counts
        return np.asarray(np.where(counts > 0, sums / np.where(counts > 0, counts, 1), 0))


def last_layer(view: View, recipe: Recipe) -> LastLayer:
    """The system at the last observed round."""
    if recipe.model.linear:
        raise ChooseAnotherAttack("needs a hidden layer: the last layer's inputs are its features")
    known = outside(view, recipe)
    observed = gradients(view.know(Messages), recipe)
    outputs, rows = output_rows(recipe, observed.models[-1], known.inputs)
    last = rows.output_layer
    ones = np.ones((len(known.labels), int(last.bias)))
    features = np.column_stack([last.inputs, ones]).astype(np.float64)
    matrix = known.mean(features).T * (known.counts > 0)
    total = observed.means[-1, -features.shape[1] :] * known.size / 2
    residuals = outputs - known.labels
    return LastLayer(known, features, residuals, matrix, known.mean(outputs), total)


def calibrated(layer: LastLayer, draws: int, rng: np.random.Generator) -> float:
    """The Tikhonov parameter with the smallest mean error on clients drawn from elsewhere.

    Each simulated client has the counts of the real one (or, if they are unknown, counts drawn
    from the auxiliary shares), and in each group that many auxiliary records, drawn with
    replacement.
    """
    known, how_many = layer.known, len(layer.known.values)
    members = [np.flatnonzero(known.groups == c) for c in range(how_many)]
    shares = np.array([len(own) for own in members]) / len(known.labels)
    outer = layer.residuals[:, None] * layer.features
    totals, truths = [], []
    for _ in range(draws):
        counts = known.counts if known.known else rng.multinomial(known.size, shares)
        drawn = [rng.choice(own, int(n)) for own, n in zip(members, counts, strict=True)]
        totals.append(outer[np.concatenate(drawn)].sum(axis=0))
        truths.append([known.labels[mine].mean() if len(mine) else np.nan for mine in drawn])
    means = layer.solve(np.array(totals), STRENGTHS)
    errors = np.abs(layer.prediction - means - np.array(truths)[:, None])
    return float(STRENGTHS[np.argmin(np.nanmean(errors, axis=2).mean(axis=0))])


def solved(view: View, draws: int, rng: np.random.Generator) -> GroupMeans:
    """The means in the label's own units, regularised as so many simulated clients ask for; these
    methods claim no uncertainty."""
    recipe = view.know(ClientProgram).plain_recipe
    layer = last_layer(view, recipe)
    strength = calibrated(layer, draws, rng) if draws else 0.0
    means = layer.solve(layer.total[None], np.array([strength]))[0, 0]
    groups = recipe.target.decode_values(layer.prediction - means)
    details = {"strength": strength, "counts": "known" if layer.known.known else "estimated"}
    return GroupMeans(layer.known.values, groups, np.full(len(groups), np.nan), details)


@dataclass(frozen=True)
class SingleRecord:
    """Reads a lone record's label off the last layer: the gradients of its weights and bias give
    the layer's input, hence the prediction, and the bias's gradient is twice the residual.

    Solves: y = w·∇w / ∇b + b − ∇b / 2 (leprovost2023, K = 1)
    """

    name: ClassVar[str] = "single_record"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram})

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        recipe, link = view.know(ClientProgram).plain_recipe, view.know(Messages)
        observed = gradients(link, recipe)
        shape = output_rows(recipe, observed.models[0], np.zeros((1, recipe.model.inputs)))[1]
        last = shape.output_layer
        if not last.bias:
            raise ChooseAnotherAttack("the formula needs the last layer's bias; there is none")
        sizes = link.weights[np.isfinite(link.weights)]
        if (sizes != 1).any():
            raise ChooseAnotherAttack(f"is for one record; the client has {sizes.max():g}")
        slopes, noises = observed.means[:, -1], observed.noise[:, -1] + np.finfo(np.float64).tiny
        best = int(np.argmax(np.abs(slopes) / noises))
        slope, noise = float(slopes[best]), float(noises[best])
        if abs(slope) <= noise:
            raise ChooseAnotherAttack(
                "the gradient of the last bias is zero: the model already predicts this record's "
                "label, and nothing shows which it is"
            )
        # one output: its weights, then its bias
        weight, bias = observed.models[best, -last.width : -1], observed.models[best, -1]
        features = observed.means[best, -last.width : -1] / slope
        label = float(weight @ features + bias - slope / 2)
        # rounding of either gradient moves the features, and with them the prediction
        unsure = observed.noise[best, -last.width : -1] ** 2 + (features * noise) ** 2
        sd = float(np.sqrt(weight**2 @ unsure) / abs(slope) + noise / 2)
        value, error = recipe.target.decode_values(np.array([label])), sd * abs(recipe.target.scale)
        return LabelValues(value, np.array([error]), {"round": int(link.rounds[best])})
