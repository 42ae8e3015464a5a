"""The least committal reading of the updates: solve for the secret's moments, then decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import from_rows
from overheard.decoding.moments import Moments, moments_of_secret, statistics
from overheard.errors import ChooseAnotherAttack
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records, Value, encode
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View


@dataclass(frozen=True)
class MaxEntropy:
    """Reads the updates as linear measurements of the attribute and returns the least committal
    probabilities that reproduce them. On linear least squares two messages give what an oracle
    holding the attribute would need to fit a logistic regression of it on everything else.

    Settings: ``rounds``, how many of the rounds heard are used (spread evenly).
    """

    name: ClassVar[str] = "max_entropy"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )

    rounds: int = 100

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        recipe = view.know(LocalTraining).recipe
        if not (recipe.linear_least_squares and recipe.full_batch):
            raise ChooseAnotherAttack("decodes linear least squares with full batches only")
        domain = view.know(AttributeDomain)
        records = view.know(PublicRecords).records
        labels = recipe.target.encode_values(view.know(Labels).values)
        moments, phi = linear_moments(
            view.know(Link), recipe, records, labels, domain.column, domain.values, self.rounds
        )
        features = np.zeros((len(phi), len(domain.values), len(moments.total)))
        width = phi.shape[1]
        for k in range(1, len(domain.values)):
            features[:, k] = phi @ moments.rows[:, (k - 1) * width : k * width].T
        posterior = max_entropy(from_rows(features, moments.total, 1.0))
        return AttributeValues(
            posterior.probabilities,
            domain.values,
            {
                "rank": posterior.rank,
                "unknowns": posterior.unknowns,
                "chi2": moments.chi2,
                "bits_leaked": float(np.mean(posterior.bits_leaked())),
                "method": posterior.method,
            },
        )


def linear_moments(
    link: Link,
    recipe: Recipe,
    records: Records,
    labels: NDArray[np.float64],
    column: str,
    values: tuple[Value, ...],
    most: int,
) -> tuple[Moments, NDArray[np.float64]]:
    """The secret column's moments and each record's statistics (DECODERS section 2)."""
    inputs = recipe.encoding.inputs_of(column)
    public = encode(recipe.encoding, records, {column: values[0]})
    blocks = np.zeros((len(values), recipe.encoding.width))
    for k, value in enumerate(values):
        one = encode(recipe.encoding, records.take(np.arange(1)), {column: value})
        blocks[k, inputs] = one[0, inputs]
    public[:, inputs] = 0.0
    phi = statistics(public, labels)
    used = np.unique(np.linspace(0, len(link) - 1, min(most, len(link))).round().astype(int))
    gradient = link.payload == "gradient"
    rate = 1.0 if gradient else recipe.learning_rate
    moments = moments_of_secret(
        link.sent[used].astype(np.float64),
        link.updates()[used],
        rounding(link)[used],
        phi,
        blocks,
        step=2 * rate / len(phi),
        steps=1 if gradient else recipe.epochs,
        bias=recipe.model.bias,
        proximal=recipe.proximal * rate,
    )
    return moments, phi


def rounding(link: Link) -> NDArray[np.float64]:
    """Standard deviation of the rounding of each number on the wire: a unit in the last place.

    A client's arithmetic has the same precision as its messages and rounds several times before
    sending; one unit (instead of 1/sqrt(12)) allows for that. Floored at the typical size of the
    numbers it was computed from: of a model, the model's own; of a gradient, the largest gradient
    heard, because near the optimum a gradient is a small difference of large terms.
    """
    messages = link.returned.astype(np.float64)
    if link.payload == "gradient":
        floor = np.abs(messages).max()
    else:
        floor = np.sqrt(np.mean(messages**2))
    size = np.maximum(np.abs(messages), floor).astype(link.returned.dtype)
    return np.asarray(np.spacing(size), dtype=np.float64)
