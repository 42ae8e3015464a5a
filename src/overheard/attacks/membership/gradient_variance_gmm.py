"""Membership from how well the model already fits each candidate (lyu2021 section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.gradient_matching import CosMatching
from overheard.attacks.membership.pool import candidates_of
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
FLOOR = 1e-9  # least variance of a component, relative to that of all candidates


@dataclass(frozen=True)
class GradientVarianceGmm:
    """Fits a mixture of two Gaussians to the variance of the last layer's gradient, one per
    candidate record and value of the attribute, at the last model the client returned; members are
    the component whose variances are nearer to zero (lyu2021 section 3.3). A record's probability
    is the mean over its values.

    Settings: ``start``, the share of the candidates with which the members' component starts;
    ``then``, the search for the attribute of those who are found, as if their membership were
    known (section 5.2), where the attribute is asked too.
    """

    name: ClassVar[str] = "gradient_variance_gmm"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, CandidatePool})
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributeDomain, AttributePrior})

    start: float = 0.5
    then: CosMatching | None = None

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        from sklearn.mixture import GaussianMixture

        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        pool = candidates_of(view)
        model = _last_model(link, recipe)
        variances = np.stack(
            [last_layer_variances(recipe, model, x, pool.labels) for x in pool.inputs]
        )
        values = variances.reshape(-1, 1)
        scale = float(values.std())
        if len(np.unique(values)) < 2 or scale == 0:
            raise ChooseAnotherAttack("all candidates have the same gradient variance here")
        # one component starts where the paper expects members: the variances nearest to zero
        ordered = np.sort(values[:, 0] / scale)
        cut = min(max(1, round(self.start * len(ordered))), len(ordered) - 1)
        halves = (ordered[:cut], ordered[cut:])
        mixture = GaussianMixture(
            2,
            weights_init=[cut / len(ordered), 1 - cut / len(ordered)],
            means_init=[[half.mean()] for half in halves],
            precisions_init=[[[1 / (half.var() + FLOOR)]] for half in halves],
            reg_covar=FLOOR,
            max_iter=500,
            random_state=int(rng.integers(2**31)),
        ).fit(values / scale)
        member = int(np.argmin(mixture.means_[:, 0]))
        p = mixture.predict_proba(values / scale)[:, member].reshape(variances.shape).mean(axis=0)
        members = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
        search = self.then if pool.domain is not None else None
        return Membership(
            members,
            None if search is None else _attribute(search, view, members > 0.5, rng),
            diagnostics={
                "member_variance": float(mixture.means_[member, 0]) * scale,
                "stranger_variance": float(mixture.means_[1 - member, 0]) * scale,
            },
        )


def _attribute(
    search: CosMatching, view: View, chosen: NDArray[np.bool_], rng: np.random.Generator
) -> AttributeValues:
    """Values of the pool's records: searched for those chosen, of the others the prior."""
    pool, values = view.know(CandidatePool), view.know(AttributeDomain).values
    shares = np.full(len(values), 1 / len(values))
    if AttributePrior in view.kinds:
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
    probabilities = np.tile(shares, (len(chosen), 1))
    if chosen.any():
        rows = np.flatnonzero(chosen)
        theirs = PublicRecords(pool.records.take(rows)), Labels(pool.labels[rows])
        probabilities[chosen] = search(view.knowing(*theirs), rng).probabilities
    return AttributeValues(probabilities, values, claims=False)


def _last_model(link: Link, recipe: Recipe) -> Array:
    """The model after the client's last step: what it returned, or one step along its gradient."""
    returned = link.returned[-1].astype(np.float64)
    if link.gradients:
        return np.asarray(link.sent[-1].astype(np.float64) - recipe.learning_rate * returned)
    return np.asarray(returned)


def last_layer_variances(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> Array:
    """Variance (n,) over the entries of each record's gradient by the last layer's weights."""
    last = network(recipe).rows(theta, inputs, labels).output_layer
    a, delta = last.inputs, last.errors
    entries = a.shape[1] * delta.shape[1]
    square = (a**2).sum(axis=1) * (delta**2).sum(axis=1) / entries
    mean = a.sum(axis=1) * delta.sum(axis=1) / entries
    return np.asarray(np.maximum(square - mean**2, 0.0), dtype=np.float64)
