"""kerkouche2023's four methods: one set of detectors, four ways to disaggregate what they say.

BASELINE (section 5.1) disaggregates whole updates by least squares and averages the per-round
detectors' confidence in each; OLS, REG and PROLIN (section 5.2) disaggregate the single linear
feature (t = 1) of each round's own detector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from overheard.attacks.property.detectors import Detected, DetectorSettings, detected
from overheard.attacks.property.sums_heard import NEEDS, USES, attendance
from overheard.decoding.relaxed_likelihood import relaxed_likelihood, ridge
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import View

Array = NDArray[np.float64]
PAPER = "kerkouche2023"
PENALTY = 5.0  # the lambda of kerkouche2023's REG
ROUNDING = 1e-6
"""Of a probability: what other arithmetic makes of the same numbers."""


def updates_told_apart(told: Detected, rounds: int) -> Array:
    """BASELINE: mean over the detectors of their confidence in each client's mean update (N,).

    The mean update of a client is row i of pinv(A) B; a detector's answer to it is the same
    combination of its answers to the sums.
    """
    inverse = np.linalg.pinv(told.participation[:rounds])
    answers = told.answers[:rounds, :rounds] @ inverse.T + told.intercepts[:rounds, None]
    return np.asarray(expit(answers).mean(axis=0))


def least_squares(told: Detected, rounds: int) -> Array:
    """OLS: the sigmoid of each client's expected feature (N,), all rounds weighing the same."""
    return np.asarray(expit(ridge(told.features(rounds), 0.0, weighted=False)))


def ridge_regression(told: Detected, rounds: int) -> Array:
    """REG: rounds weigh 1 - OVL, and lambda is 5."""
    return np.asarray(expit(ridge(told.features(rounds), PENALTY)))


def prolin(told: Detected, rounds: int, steps: int = 3000, rate: float = 0.01) -> Array:
    """PROLIN: the relaxed most likely assignment (N,)."""
    features = told.features(rounds)
    return relaxed_likelihood(features, ridge(features, PENALTY), steps, rate)


def above_half(probabilities: Array) -> NDArray[np.bool_]:
    """Who is accused. One of whom nothing was heard stands at one half, but for rounding."""
    return probabilities > 0.5 + ROUNDING


@dataclass(frozen=True)
class OnDetectors(ABC):
    """What the paper's four attacks share: detectors of all rounds, and what is made of them."""

    paper: ClassVar[str] = PAPER
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    uses: ClassVar[frozenset[type[Any]]] = USES
    slow: ClassVar[bool] = True

    detectors: DetectorSettings = field(default_factory=DetectorSettings)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        told = detected(view, self.detectors)
        probabilities = self.weigh(told)
        details = {"rounds": len(told.overlaps), "mean_overlap": float(told.overlaps.mean())}
        details |= attendance(told.participation)
        chosen = above_half(probabilities)
        return ClientProperty(probabilities, chosen, view.know(Sums).clients, details)

    @abstractmethod
    def weigh(self, told: Detected) -> Array:
        """A probability for each client from the features of all rounds."""


@dataclass(frozen=True)
class GradientDisaggregation(OnDetectors):
    """Least squares on whole updates gives each client's mean update, to which the detectors of all
    rounds are applied and their confidence averaged (the paper's BASELINE)."""

    name: ClassVar[str] = "gradient_disaggregation"

    def weigh(self, told: Detected) -> Array:
        return updates_told_apart(told, len(told.overlaps))


@dataclass(frozen=True)
class Ols(OnDetectors):
    """Least squares on each round's linear feature; a client is positive if the sigmoid of its
    expected feature is above one half (the paper's OLS)."""

    name: ClassVar[str] = "ols"

    def weigh(self, told: Detected) -> Array:
        return least_squares(told, len(told.overlaps))


@dataclass(frozen=True)
class Ridge(OnDetectors):
    """Ridge regression on each round's linear feature, rounds weighing one minus the overlap of the
    detector's two distributions, with a penalty of 5 (the paper's REG)."""

    name: ClassVar[str] = "ridge"

    def weigh(self, told: Detected) -> Array:
        return ridge_regression(told, len(told.overlaps))


@dataclass(frozen=True)
class Prolin(OnDetectors):
    """Searches the clients' properties and features that are most likely under the detectors'
    feature distributions and add up to what was heard (the paper's PROLIN, one linear feature).

    Settings: ``steps`` and ``rate`` of the search.
    """

    name: ClassVar[str] = "prolin"

    steps: int = 3000
    rate: float = 0.01

    def weigh(self, told: Detected) -> Array:
        return prolin(told, len(told.overlaps), self.steps, self.rate)
