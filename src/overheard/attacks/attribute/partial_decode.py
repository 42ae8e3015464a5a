"""When only a part is known: decode what is known against everything that it leaves open.

Some of the client's records may not be known at all; of the others some columns, or the label, may
be missing, or a share of the cells may be wrong (`overheard.attacks.completions`). What a record
adds beyond its mean is noise (`overheard.decoding.nuisance`), whose mean and covariance are those
of auxiliary records. Without auxiliary records those of the known ones serve, each value of the
attribute weighed by its probability, so that the mean's own error adds ``n_u^2 / n_k`` times the
covariance, and nothing is left to judge the answer by.

Few records show few directions of a covariance in tens of thousands of dimensions; for what they do
not show, each dense layer has the product form ``E[delta delta'] x E[a a']`` mixed in, any other
layer its variances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.completions import Imagined, imagined
from overheard.attacks.deviations import People, people
from overheard.attacks.front import answer, refuse_many, refuse_unseen
from overheard.attacks.wire import heard, only, rate_of, refuse_several_steps, rounding
from overheard.decoding.counts import averaged, decode_tied
from overheard.decoding.ladder import POOR_FIT
from overheard.decoding.limits import BLOCK
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import from_gram, from_rows
from overheard.decoding.noisy import noisy_posterior
from overheard.decoding.nuisance import Block, Filtered, filtered
from overheard.decoding.tempering import temperature_of, tempered
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
    WrongCells,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]


LOOKED_AT = 500
"""Parameters that tell how large deviations are, beside gradients: to a few per cent."""
UNLIKE = 4.0
"""Noise beyond that of the simulated clients, in variance, that says that something is wrong."""


@dataclass(frozen=True)
class PartialDecode:
    """Decodes a client of whom only a part is known: some of its records, some of their columns,
    with or without labels, with or without wrong cells. What is open adds noise of known mean and
    covariance; the secret is filtered out of it (generalised least squares), the filter is judged
    by deviations that it has not seen, and simulated clients say how far to believe it.

    Settings: ``product``, the weight of the product form in the covariance. The first round heard
    is used: what is open deviates in the same way in every round, so more add little.
    """

    name: ClassVar[str] = "partial_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {Labels, AttributePrior, AuxiliaryData, AppliedDefence, WrongCells}
    )

    product: float = 0.6

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        refuse_unseen(view)
        return self.decoded(view, imagined(view, rng), rng)

    def decoded(self, view: View, may_be: Imagined, rng: np.random.Generator) -> AttributeValues:
        """The answer if the records may be this."""
        recipe, link = view.know(LocalTraining).recipe, heard(view)
        known = len(view.know(PublicRecords).records)
        unknown = _unknown(link, recipe, known)
        refuse_many(may_be.prior.size - known, "give fewer records, or all: max_entropy")
        everybody = people(may_be, unknown, rng)
        link = only(link, np.arange(1))
        blocks = _blocks(link, recipe, everybody, known + unknown, self.product)
        made = filtered(blocks, everybody.sums, 1 - self.product)
        notes = {"known": known, "unknown": unknown, "coverage": known / (known + unknown)}
        ties, values = may_be.ties, may_be.prior.shape[1]
        if made.noise is None:
            equations = from_gram(made.products, made.projections[0], 1.0, candidates=values)
            return answer(view, decode_tied(equations, ties, may_be.prior), ties, notes)
        posterior, judged = _judged(made, everybody, values)
        return answer(view, averaged(posterior, ties), ties, notes | judged)


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


def _judged(made: Filtered, everybody: People, values: int) -> tuple[Posterior, dict[str, float]]:
    """The answer, believed as far as the answers about simulated clients deserve it."""
    known, candidates = everybody.prior.shape
    ways = candidates // values
    features = np.zeros((known, candidates, made.products.shape[1]))
    features[:, 1:] = made.products.reshape(known, candidates - 1, -1)
    messages = [from_rows(features, heard, made.noise) for heard in made.projections]
    solved = [noisy_posterior(one, everybody.prior) for one in messages]
    prior, mine, *answers = (
        p.reshape(known, values, ways).sum(axis=2)
        for p in (everybody.prior, *(one.probabilities for one, _ in solved))
    )
    (found, raised), *theirs = solved
    secrets = everybody.secrets // ways
    power = temperature_of(answers, list(secrets), prior)
    calm = [tempered(p, prior, power) for p in answers]
    right = [float((p.argmax(axis=1) == s).mean()) for p, s in zip(calm, secrets, strict=True)]
    flag = POOR_FIT if raised > UNLIKE * max(more for _, more in theirs) else ""
    notes = {
        "temperature": power,
        "noise_raised": raised,
        "simulated_accuracy": float(np.mean(right)),
        "simulated_certainty": float(np.mean([p.max(axis=1).mean() for p in calm])),
    }
    return replace(found, probabilities=tempered(mine, prior, power), flag=flag), notes


def _blocks(
    link: Link, recipe: Recipe, everybody: People, records: int, product: float
) -> Iterator[Block]:
    """Gradients and message, whitened by a part of the deviations' covariance that has every
    direction, and rounding.

    In the eigenvectors of ``E[delta delta']`` and ``E[a a']`` the product form is diagonal.
    """
    theta, scale = link.sent[0].astype(np.float64), records / rate_of(link, recipe)
    rounded = float(np.mean((rounding(link)[0] * scale) ** 2))
    rows = client_rows(recipe, theta, everybody.inputs, everybody.labels)
    chances = everybody.chances
    times = product * _times(rows, everybody)
    for layer, target in zip(rows.layers, rows.blocks(link.updates()[0] * scale), strict=True):
        if not isinstance(layer, Outer):
            written = layer.explicit().astype(np.float64)
            variance = _shrunk(chances @ written**2, len(written))
            spread = times * variance + rounded
            yield written / np.sqrt(spread), target / np.sqrt(spread), rounded / spread
            continue
        a, delta = layer.inputs.astype(np.float64), layer.errors.astype(np.float64)
        if layer.bias:
            a = np.column_stack([a, np.ones(len(a))])
        of_a, turn_a = _moments(a, chances)
        of_delta, turn_delta = _moments(delta, chances)
        a, delta = a @ turn_a, delta @ turn_delta
        target = turn_delta.T @ target @ turn_a
        spread = times * np.outer(of_delta, of_a) + rounded
        units = max(1, BLOCK // a.size)
        for start in range(0, delta.shape[1], units):
            part = slice(start, start + units)
            sd = np.sqrt(spread[part])
            made = (delta[:, part, None] * (a[:, None, :] / sd)).reshape(len(a), -1)
            yield made, (target[part] / sd).ravel(), (rounded / spread[part]).ravel()


def _times(rows: GradientRows, everybody: People) -> float:
    """How many whole gradients' squares all deviations together have."""
    step = -(-rows.size // LOOKED_AT)
    some = rows.columns(np.arange(0, rows.size, step)).astype(np.float64)
    apart = everybody.sums.suppressed @ some
    return float((apart**2).sum() / max((everybody.chances @ some**2).sum(), 1e-300))


def _moments(v: Array, chances: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the second moments of v (N, d)."""
    found, vectors = np.linalg.eigh((v * chances[:, None]).T @ v)
    return _shrunk(np.maximum(found, 0.0), len(v)), vectors


def _shrunk(variances: Array, records: int) -> Array:
    """What no record shows may still vary in others: as if one more were average."""
    return np.asarray((records * variances + variances.mean()) / (records + 1))
