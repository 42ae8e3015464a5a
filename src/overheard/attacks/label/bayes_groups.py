"""Mean label of each group as a posterior, from the whole update (our answer to leprovost2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label.heard import gradients, output_rows, outside
from overheard.decoding.group_posterior import Grouped, group_posterior
from overheard.programs.gradient_rows import GradientRows
from overheard.transcript.guess import GroupMeans
from overheard.transcript.knowledge import AuxiliaryData, GroupCounts, Groups, Link, LocalTraining
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BayesGroups:
    """Reads the update as a noisy linear measurement of the groups' mean labels, with all that is
    unknown of the records as noise whose covariance the auxiliary records show, and returns the
    posterior: a mean and a standard deviation per group, nothing tuned by hand.

    Settings: ``layers``, the whole update or, as in the paper, its last layer only; ``rounds``, how
    many of the rounds heard are used together (spread evenly); ``records``, the most auxiliary
    records that are used (the time grows with their cube).
    """

    name: ClassVar[str] = "bayes_groups"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, AuxiliaryData, Groups})
    uses: ClassVar[frozenset[type[Any]]] = frozenset({GroupCounts})

    layers: Literal["all", "last"] = "all"
    rounds: int = 8
    records: int = 2000

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(LocalTraining).recipe
        known = outside(view, recipe).thinned(self.records, rng)
        heard = gradients(view.know(Link), recipe).spread(self.rounds)
        n = len(known.labels)
        gram, overlap, noise = np.zeros((n, n)), np.zeros(n), 0.0
        predictions = []
        for model, mean, rounding in zip(heard.models, heard.means, heard.noise, strict=True):
            outputs, rows = output_rows(recipe, model, known.inputs)
            predictions.append(outputs)
            residuals = outputs - known.labels
            used = GradientRows((rows.output_layer,)) if self.layers == "last" else rows
            slopes = used.since()
            inner = slopes.gram(slopes) * np.outer(residuals, residuals)
            # every round has the same weight, however large its residuals are
            scale = 1 / max(float(np.trace(inner)) / n, 1e-300)
            gram += inner * scale
            total = mean[-used.size :] * known.size / 2
            overlap += residuals * slopes.project(used.blocks(total)) * scale
            noise += scale * (known.size / 2) ** 2 * float(np.mean(rounding**2)) / len(heard)
        posterior = group_posterior(
            gram,
            overlap,
            known.labels,
            predictions,
            Grouped(
                known.groups,
                len(known.values),
                known.size,
                known.counts if known.known else None,
            ),
            float(np.sqrt(noise)),
        )
        target = recipe.target
        return GroupMeans(
            known.values,
            target.decode_values(posterior.means),
            posterior.sd * abs(target.scale),
            {
                "counts": "known" if known.known else "estimated",
                "directions": posterior.directions,
                "bits_leaked": posterior.bits(),
                "rounds": len(heard),
            },
        )
