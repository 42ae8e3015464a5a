"""When only a part is known: decode what is known against everything that it leaves open.

Some of the client's records may not be known at all; of the others some columns, or the label, may
be missing (`overheard.attacks.completions`). What is open adds noise, whose mean and covariance are
those of auxiliary records; without any, those of the known ones (`overheard.decoding.nuisance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.completions import imagined
from overheard.attacks.deviations import People, people
from overheard.attacks.front import answer, refuse_many, refuse_unseen
from overheard.attacks.wire import heard, only, rate_of, refuse_several_steps, rounding
from overheard.decoding.chains import sampled
from overheard.decoding.counts import decode_tied, group_means
from overheard.decoding.ladder import POOR_FIT
from overheard.decoding.limits import BLOCK
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import from_rows
from overheard.decoding.nuisance import Block, whitened
from overheard.decoding.tempering import temperature_of, tempered
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import Outer
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


UNLIKE = 4.0
"""Noise beyond that of the simulated clients, in variance, that says that something is wrong."""
ROUNDS = 3
"""That are used, spread evenly: two more change less than a point."""


@dataclass(frozen=True)
class PartialDecode:
    """Decodes a client of whom only a part is known: some of its records, some of their columns,
    with or without labels. What is open adds noise of known mean and covariance, judged by samples
    that its directions were not made from; chains sample what each record may be, and simulated
    clients say how far to believe them.
    """

    name: ClassVar[str] = "partial_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {Labels, AttributePrior, AuxiliaryData, AppliedDefence}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        refuse_unseen(view)
        may_be = imagined(view, rng)
        recipe, link = view.know(LocalTraining).recipe, heard(view)
        known = len(view.know(PublicRecords).records)
        unknown = _unknown(link, recipe, known)
        refuse_many(may_be.prior.size - known, "give fewer records, or all: max_entropy")
        everybody = people(may_be, unknown, rng)
        # large networks have equations enough in one
        most = ROUNDS if link.sent.shape[1] < 1e4 / ROUNDS else 1
        link = only(link, np.unique(np.linspace(0, len(link.sent) - 1, most).astype(int)))
        blocks = _blocks(link, recipe, everybody, known + unknown)
        made, messages = whitened(blocks, everybody.sums)
        features = np.zeros((known, everybody.prior.shape[1], made.shape[1]))
        features[:, 1:] = made.reshape(known, -1, made.shape[1])
        notes = {"known": known, "unknown": unknown, "coverage": known / (known + unknown)}
        ties = may_be.ties
        if not everybody.sums.heldout.shape[0]:
            equations = from_rows(features, messages[0], 1.0)
            return answer(view, decode_tied(equations, ties, may_be.prior), ties, notes)
        posterior, judged = _judged(features, messages, everybody, ties, rng)
        return answer(view, posterior, ties, notes | judged)


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


def _judged(
    features: Array,
    messages: Array,
    everybody: People,
    ties: NDArray[np.intp],
    rng: np.random.Generator,
) -> tuple[Posterior, dict[str, float]]:
    """The answer, believed as far as the answers about simulated clients deserve it."""
    simulated, secrets = len(messages) - 1, everybody.secrets
    chains = np.repeat(np.arange(simulated + 1), [4] + [2] * simulated)
    found, left = sampled(features, everybody.prior, messages[chains], rng)
    prior = group_means(everybody.prior, ties)
    mine, *answers = (
        group_means(found[chains == n].mean(axis=0), ties) for n in range(simulated + 1)
    )
    power = temperature_of(answers, list(secrets), prior)
    calm = [tempered(p, prior, power) for p in answers]
    right = [float((p.argmax(axis=1) == s).mean()) for p, s in zip(calm, secrets, strict=True)]
    unexplained = float(left[chains == 0].mean() / left[chains > 0].max())
    notes = {
        "temperature": power,
        "unexplained": unexplained,
        "simulated_accuracy": float(np.mean(right)),
        "simulated_certainty": float(np.mean([p.max(axis=1).mean() for p in calm])),
    }
    flag = POOR_FIT if unexplained > UNLIKE else ""
    p, rank, unknowns = tempered(mine, prior, power), features.shape[2], prior.size - len(prior)
    return Posterior(p, float(left[0]), rank, unknowns, 0, True, "chains", flag), notes


def _blocks(link: Link, recipe: Recipe, everybody: People, records: int) -> Iterator[Block]:
    """Gradients and message, whitened by a part of the deviations' covariance that has every
    direction, and rounding.

    In the eigenvectors of ``E[delta delta']`` and ``E[a a']`` the product form is diagonal.
    """
    scale = records / rate_of(link, recipe)
    rounded = float(np.mean((rounding(link)[0] * scale) ** 2))
    models = link.sent.astype(np.float64)
    rows = [client_rows(recipe, one, everybody.inputs, everybody.labels) for one in models]
    targets = [list(r.blocks(u * scale)) for r, u in zip(rows, link.updates(), strict=True)]
    chances = everybody.chances
    for number, layer in enumerate(rows[0].layers):
        same: list[Any] = [r.layers[number] for r in rows]
        heard_of = [np.asarray(t[number], np.float64) for t in targets]
        if not isinstance(layer, Outer):
            written = [of.explicit().astype(np.float64) for of in same]
            variance = _shrunk(chances @ written[0] ** 2, len(written[0]))
            spread = records * variance + rounded
            yield from _rounds(written, heard_of, spread, rounded, records * chances)
            continue
        a = [_fed(of) for of in same]
        delta = [of.errors.astype(np.float64) for of in same]
        of_a, turn_a = _moments(a[0], chances)
        of_delta, turn_delta = _moments(delta[0], chances)
        a, delta = [one @ turn_a for one in a], [one @ turn_delta for one in delta]
        turned = [turn_delta.T @ target @ turn_a for target in heard_of]
        spread = records * np.outer(of_delta, of_a) + rounded
        units = max(1, BLOCK // a[0].size)
        for start in range(0, len(of_delta), units):
            part = slice(start, start + units)
            made = [
                (d[:, part, None] * f[:, None, :]).reshape(len(f), -1)
                for d, f in zip(delta, a, strict=True)
            ]
            parts = [target[part].ravel() for target in turned]
            yield from _rounds(made, parts, spread[part].ravel(), rounded, records * chances)


def _fed(layer: Outer) -> Array:
    """A layer's inputs, and a one for the bias."""
    ones = np.ones((len(layer.inputs), int(layer.bias)))
    return np.column_stack([layer.inputs.astype(np.float64), ones])


def _rounds(
    rows: list[Array], targets: list[Array], spread: Array, rounded: float, chances: Array
) -> Iterator[Block]:
    """The first round, and what others say beyond it: models that differ little make gradients
    that differ little, and what differs is as good a measurement as any once it stands alone."""
    yield rows[0] / np.sqrt(spread), targets[0] / np.sqrt(spread), rounded / spread
    for row, target in zip(rows[1:], targets[1:], strict=True):
        apart = row - rows[0]
        spread = chances @ apart**2 + 2 * rounded
        yield apart / np.sqrt(spread), (target - targets[0]) / np.sqrt(spread), 2 * rounded / spread


def _moments(v: Array, chances: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the second moments of v (N, d)."""
    found, vectors = np.linalg.eigh((v * chances[:, None]).T @ v)
    return _shrunk(np.maximum(found, 0.0), len(v)), vectors


def _shrunk(variances: Array, records: int) -> Array:
    """What no record shows may still vary in others: as if one more were average."""
    return np.asarray((records * variances + variances.mean()) / (records + 1))
