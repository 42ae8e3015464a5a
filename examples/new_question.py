"""A question in one file: what share of the client's records has the attribute's last value?

With it come what does not listen, an attack, and nothing else. A package announces them:

    [project.entry-points."overheard.questions"]
    share = "new_question:QUESTION"
    [project.entry-points."overheard.attacks"]
    decoded_share = "new_question:DecodedShare"
    population_share = "new_question:PopulationShare"

Then `overheard attacks` lists them, audits ask it of every attribute, and reports and comparisons
show it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.attribute import MaxEntropy
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.questions.question import Metric, Question
from overheard.transcript.knowledge import AttributeDomain, AttributePrior
from overheard.transcript.view import View


@dataclass(frozen=True)
class Share:
    """The guess: a share of the client's records."""

    value: float
    diagnostics: Mapping[str, float | int | str] = field(default_factory=dict)


def score(case: Case) -> Scorer:
    """The absolute error; imputation takes the share among the other clients' records."""
    column = case.target.column
    value = case.view.know(AttributeDomain).values[-1]
    shares = {name: float(np.mean(r[column] == value)) for name, r in case.truth.items()}
    truth = shares.pop(case.view.client)
    imputed = np.array([abs(np.mean(list(shares.values())) - truth)]) if shares else None

    def scored(attack: Any, guess: Share, seconds: float) -> Scored:
        units = np.array([abs(guess.value - truth)])
        return case.scored(attack, seconds, units, guess.diagnostics, imputed, n=1)

    return scored


QUESTION = Question(
    name="share",
    asks="what share of the client's records has an attribute?",
    metric=Metric("share_error", "error"),
    answers=(Share,),
    score=score,
    column=".+",
    side="attribute",
)


@dataclass(frozen=True)
class DecodedShare:
    """Decodes every record as `max_entropy` does, and takes the mean of the probabilities."""

    name: ClassVar[str] = "decoded_share"
    paper: ClassVar[str] = "yours2030"
    question: ClassVar[str] = "share"
    needs: ClassVar[frozenset[type[Any]]] = MaxEntropy.needs
    uses: ClassVar[frozenset[type[Any]]] = MaxEntropy.uses

    def __call__(self, view: View, rng: np.random.Generator) -> Share:
        decoded = MaxEntropy()(view, rng)
        return Share(float(decoded.probabilities[:, -1].mean()), decoded.diagnostics)


@dataclass(frozen=True)
class PopulationShare:
    """Takes the share in the whole population, which is known, and does not listen."""

    name: ClassVar[str] = "population_share"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "share"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({AttributePrior})

    def __call__(self, view: View, rng: np.random.Generator) -> Share:
        return Share(view.know(AttributePrior).shares[-1])


if __name__ == "__main__":
    print(f"{QUESTION.name}: {QUESTION.asks}")
