"""Ours: a matched filter a round, then a binary linear mixed model over all rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.property.readings import Collected, FilterSettings, collect, readings
from overheard.attacks.property.sums_heard import NEEDS, USES, adversary_of, attendance
from overheard.decoding.contribution import Contributions, contributions
from overheard.decoding.mixed_chains import Posterior, posterior
from overheard.decoding.mixed_model import Settings
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import View

Array = NDArray[np.float64]
SURE_TO = 0.05
"""Standard error of a sampled probability beyond which an answer flags itself."""


@dataclass(frozen=True)
class MatchedFilter:
    """Projects each round's sum on the direction that best tells the property, known in closed form
    from auxiliary gradients, and weighs all rounds together: a calibrated probability for each
    client, from far fewer rounds than there are clients.

    For a suspected behaviour (poisoning, free riding) it also scores each client's contribution.
    Settings: ``every``, after how many rounds the evidence is weighed anew; the filter's and the
    mixed model's own.
    """

    name: ClassVar[str] = "matched_filter"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    uses: ClassVar[frozenset[type[Any]]] = USES

    every: int = 10
    filter: FilterSettings = field(default_factory=FilterSettings)
    model: Settings = field(default_factory=Settings)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        sums, adversary = view.know(Sums), adversary_of(view)
        told = collect(readings(adversary, sums, rng, self.filter), sums.participation)
        found, history = self.over_rounds(told, rng)
        last = found[len(told.y)]
        score = None if adversary.targets is not None else contribution(told).mean
        return ClientProperty(
            last.probabilities,
            last.chosen,
            sums.clients,
            {
                "rounds": len(told.y),
                "effect_size": told.size(len(told.y)),
                "expected_f1": last.expected_f1,
                "gamma": last.gamma,
                "scale": last.scale,
                "persistent": last.persistent,
                "disagreement": last.disagreement,
                **attendance(sums.participation),
                **flagged(last),
            },
            history,
            score,
        )

    def over_rounds(
        self, told: Collected, rng: np.random.Generator, target: int = 0
    ) -> tuple[dict[int, Posterior], Array]:
        """The posterior after every so many rounds and after the last, and after each round (T, N).

        A round between two of them has the one before.
        """
        rounds, clients = told.participation.shape
        history = np.full((rounds, clients), self.model.share)
        found: dict[int, Posterior] = {}
        states = None
        for heard in sorted({*range(self.every, rounds + 1, self.every), rounds}):
            one = posterior(told.evidence(heard, target), rng, self.model, states)
            states, found[heard] = one.states, one
            history[heard - 1 :] = one.probabilities
        return found, history


def flagged(found: Posterior) -> dict[str, str]:
    """A warning where the chains have not come to one answer: their mean is then uncertain."""
    error = found.disagreement / np.sqrt(len(found.states))
    if error <= SURE_TO:
        return {}
    return {
        "flag": "chains disagree: its probabilities are means over samples, uncertain here by "
        f"about {error:.2f}; ask again with another seed, or listen longer"
    }


def contribution(told: Collected) -> Contributions:
    """Each client's share of an honest client's contribution along the mean gradient."""
    count, honest = told.participation.sum(axis=1), told.honest[:, 0]
    shares = count + told.y[:, 0] / honest
    variance = (count + told.offset[:, 0] ** 2) / honest**2
    return contributions(shares, variance, told.participation)
