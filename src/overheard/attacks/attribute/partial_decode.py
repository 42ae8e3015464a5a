"""When only some of the client's records are known: decode those against the unknown rest.

The unknown ``n_u`` records add ``n_u`` times the mean gradient, plus noise with ``n_u`` times the
covariance of one record's gradient (decoders.md section 1). Mean and covariance are those of the
known records, each value of the attribute weighed by its probability, so the mean's own error adds
``n_u^2 / n_k`` times the covariance. The known records are then decoded by generalised least
squares. Few records show few directions of a covariance in tens of thousands of dimensions; for
what they do not show, each dense layer has the product form ``E[delta delta'] x E[a a']`` mixed in,
any other layer its variances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.front import (
    answer,
    candidate_inputs,
    labels_of,
    public_ties,
    refuse_many,
    refuse_unseen,
)
from overheard.attacks.stranger import beforehand
from overheard.attacks.wire import heard, only, rate_of, refuse_several_steps, rounding
from overheard.decoding.counts import decode_tied
from overheard.decoding.limits import BLOCK
from overheard.decoding.measurement import Measurement, from_gram
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows, Outer
from overheard.programs.private import client_rows
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PartialDecode:
    """Decodes the records that are known while the client trained on more: what the unknown ones
    add is modelled as Gaussian, with mean and covariance of the known records' gradients, and the
    equations are weighed against it (generalised least squares).

    Settings: ``product``, the weight of the product form in the covariance. The first round heard
    is used: the unknown records deviate in the same way in every round, so more add little.
    """

    name: ClassVar[str] = "partial_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {AttributePrior, AuxiliaryData, AppliedDefence}
    )

    product: float = 0.6

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        refuse_unseen(view)
        recipe, link = view.know(LocalTraining).recipe, heard(view)
        labels, inputs, prior = labels_of(view), candidate_inputs(view), beforehand(view)
        known = len(labels)
        unknown = _unknown(link, recipe, known)
        # the unknown rest's covariance is made of every candidate's gradient: a larger matrix
        every = known * (2 * len(inputs) - 1)
        refuse_many(every // 2, "give fewer records, or all: max_entropy")
        equations = _measure(link, recipe, inputs, labels, unknown, prior, self.product)
        ties = public_ties(view)
        coverage = known / (known + unknown)
        notes = {"known": known, "unknown": unknown, "coverage": coverage}
        return answer(view, decode_tied(equations, ties, prior), ties, notes)


def _unknown(link: Link, recipe: Recipe, known: int) -> int:
    """How many records the client trained on that are not known."""
    refuse_several_steps(link, recipe)
    reported = np.unique(link.weights[np.isfinite(link.weights)])
    if len(reported) != 1:
        raise ChooseAnotherAttack(
            "the client reported no number of records, or several; how many are unknown must be "
            "known"
        )
    if reported[0] < known:
        raise FixData(
            f"{known} records are known but the client reported {reported[0]:g}; drop the records "
            "that it did not train on"
        )
    if known < 2:
        raise FixData("one known record says nothing about the others; give at least two")
    return int(reported[0]) - known


def _measure(
    link: Link,
    recipe: Recipe,
    inputs: Array,
    labels: Array,
    unknown: int,
    shares: Array,
    product: float,
) -> Measurement:
    """The known records' differences, weighed against rounding and the unknown rest."""
    scale = (len(labels) + unknown) / rate_of(link, recipe)
    link = only(link, np.arange(1))
    theta = link.sent[0].astype(np.float64)
    rows = [client_rows(recipe, theta, x, labels) for x in inputs]
    variance = float(np.mean((rounding(link)[0] * scale) ** 2))
    update = link.updates()[0] * scale
    products, projections = _whitened(rows, update, variance, unknown, shares, product)
    return from_gram(products, projections, 1.0, candidates=len(inputs))


def _whitened(
    gradients: list[GradientRows],
    update: Array,
    rounding_variance: float,
    unknown: int,
    shares: Array,
    product: float,
) -> tuple[Array, Array]:
    """Inner products of differences, and with the residual, under the inverse covariance.

    The covariance is ``c ((1 - product) S + product K) + rounding``: S the sample covariance, of
    low rank, taken in by Woodbury's identity after whitening by the rest.
    """
    known, values = shares.shape
    times = unknown * (1 + unknown / known)
    weights = np.sqrt(times * (1 - product) * shares / known)
    free = known * (values - 1)
    every = free + known * values + 1
    inner = np.zeros((every, every))
    for rows, target in _blocks(gradients, update, shares, times * product, rounding_variance):
        # rows: (known, values, block) whitened gradients of every candidate
        mean = np.einsum("ik,ikb->b", shares, rows) / known
        base = rows[:, 0]
        left = target - base.sum(axis=0) - unknown * mean
        centred = (rows - mean) * weights[:, :, None]
        stacked = np.concatenate(
            [
                (rows[:, 1:] - base[:, None]).reshape(free, -1),
                centred.reshape(known * values, -1),
                left[None],
            ]
        )
        inner += stacked @ stacked.T
    low = inner[free:-1, free:-1] + np.eye(known * values)
    factor = linalg.cho_factor(low, lower=True)
    cross = inner[:free, free:-1]
    products = inner[:free, :free] - cross @ linalg.cho_solve(factor, cross.T)
    projections = inner[:free, -1] - cross @ linalg.cho_solve(factor, inner[free:-1, -1])
    return (products + products.T) / 2, projections


def _blocks(
    gradients: list[GradientRows],
    update: Array,
    shares: Array,
    times: float,
    rounding: float,
) -> Iterator[tuple[Array, Array]]:
    """Gradients (known, values, block) and update (block,), whitened by product form + rounding.

    In the eigenvectors of ``E[delta delta']`` and ``E[a a']`` the product form is diagonal.
    """
    known, values = shares.shape
    stacked = zip(*(g.layers for g in gradients), strict=True)
    for layers, target in zip(stacked, gradients[0].blocks(update), strict=True):
        dense = [layer for layer in layers if isinstance(layer, Outer)]
        if not dense:
            written = np.stack([layer.explicit() for layer in layers], axis=1).astype(np.float64)
            variance = np.einsum("ik,ikb,ikb->b", shares, written, written) / known
            sd = np.sqrt(times * (known * variance + variance.mean()) / (known + 1) + rounding)
            yield written / sd, target / sd
            continue
        a = np.stack([layer.inputs for layer in dense], axis=1).astype(np.float64)
        delta = np.stack([layer.errors for layer in dense], axis=1).astype(np.float64)
        if dense[0].bias:
            a = np.concatenate([a, np.ones((known, values, 1))], axis=2)
        of_a, turn_a = _moments(a, shares)
        of_delta, turn_delta = _moments(delta, shares)
        a, delta = a @ turn_a, delta @ turn_delta
        target = turn_delta.T @ target @ turn_a
        sd = np.sqrt(times * np.outer(of_delta, of_a) + rounding)
        units = max(1, BLOCK // (known * values * a.shape[2]))
        for start in range(0, delta.shape[2], units):
            part = slice(start, start + units)
            rows = delta[:, :, part, None] * (a[:, :, None, :] / sd[part])
            yield rows.reshape(known, values, -1), (target[part] / sd[part]).ravel()


def _moments(v: Array, shares: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the second moments of v (known, values, d)."""
    weighted = (v * (shares / len(shares))[:, :, None]).reshape(-1, v.shape[2])
    found, vectors = np.linalg.eigh(weighted.T @ v.reshape(-1, v.shape[2]))
    found, known = np.maximum(found, 0.0), len(shares)
    # what no known record shows may still vary in the others: as if one more were average
    return (known * found + found.mean()) / (known + 1), vectors
