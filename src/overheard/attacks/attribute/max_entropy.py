"""The least committal reading of the updates: a linear measurement of the secret, decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.attribute.dense_measurement import dense_measurement
from overheard.attacks.attribute.linear_moments import linear_moments
from overheard.decoding.ladder import decode
from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import Measurement, from_rows
from overheard.learning.records import encode
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
    probabilities that reproduce them: exact where the measurements suffice, calibrated where not.
    On linear least squares two messages give what an oracle holding the attribute would need to
    fit a logistic regression of it on everything else.

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
        measurement, misfit = measure(view, self.rounds)
        # Least squares tells d + 2 numbers however long one listens, and opposite secrets may
        # share them (driouich2022 Proposition 1): only the convex problem says so honestly.
        few = measurement.rank < measurement.unknowns
        moments_only = few and view.know(LocalTraining).recipe.linear_least_squares
        posterior = max_entropy(measurement) if moments_only else decode(measurement)
        return AttributeValues(
            posterior.probabilities,
            view.know(AttributeDomain).values,
            {
                "method": posterior.method,
                "rank": posterior.rank,
                "unknowns": posterior.unknowns,
                "chi2": posterior.chi2_per_equation,
                "misfit": misfit,
                "entropy_bits": float(np.mean(posterior.entropy_bits)),
            },
        )


def measure(view: View, most: int) -> tuple[Measurement, float]:
    """What the messages say about the attribute, as a whitened linear measurement.

    And the mean square of what they say that no attribute explains, in units of the assumed
    noise: about one or less, unless recipe, model or records are not what they are said to be.
    """
    recipe, link = view.know(LocalTraining).recipe, view.know(Link)
    domain, records = view.know(AttributeDomain), view.know(PublicRecords).records
    labels = recipe.target.encode_values(view.know(Labels).values)
    if recipe.linear_least_squares and recipe.full_batch:
        moments, phi = linear_moments(
            link, recipe, records, labels, domain.column, domain.values, most
        )
        width = phi.shape[1]
        features = np.zeros((len(phi), len(domain.values), len(moments.total)))
        for k in range(1, len(domain.values)):
            features[:, k] = phi @ moments.rows[:, (k - 1) * width : k * width].T
        return from_rows(features, moments.total, 1.0), moments.chi2
    candidates = np.stack(
        [encode(recipe.encoding, records, {domain.column: v}) for v in domain.values]
    )
    measurement = dense_measurement(link, recipe, candidates, labels, most)
    return measurement, measurement.misfit
