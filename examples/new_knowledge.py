"""A new kind of knowledge in one file, and an attack that is granted it, in an audit.

Many clients publish sums about themselves: "41% of our patients are women". Here that is a kind of
knowledge: `ColumnMean`. The simulator writes it down for every client, a recording carries it, a
threat model grants it; nothing else has to be told of it.

    python examples/new_knowledge.py
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from overheard import (
    Audit,
    AuditOptions,
    Recording,
    audit,
    parse_config,
    plan,
    simulate,
    threat_named,
)
from overheard.attacks.attribute import MaxEntropy
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.transcript.guess import AttributeValues
from overheard.transcript.kind import Disclosure, Knowledge, kind
from overheard.transcript.view import View


@kind
@dataclass(frozen=True)
class ColumnMean(Knowledge):
    """The mean of the sensitive column at the client, which the client published itself."""

    name: ClassVar[str] = "column mean"
    per_client: ClassVar[bool] = True
    column: str
    mean: float
    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise FixData(f"a mean over {self.records} records; give at least one")

    @classmethod
    def disclosed(cls, world: Disclosure) -> Mapping[str, Self]:
        """What simulations and descriptions write down; only this hook knows the records."""
        column = world.target.column
        return {
            client: cls(column, float(mine[column].mean()), len(mine))
            for client, mine in world.clients.items()
            if column in mine.columns and mine[column].dtype.kind == "f"
        }


@dataclass(frozen=True)
class PublishedMean:
    """Decodes the update, and then says yes for as many records as the published mean counts: those
    for which yes is likeliest."""

    name: ClassVar[str] = "published_mean"
    paper: ClassVar[str] = "yours2030"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = MaxEntropy.needs | {ColumnMean}
    uses: ClassVar[frozenset[type[Any]]] = MaxEntropy.uses

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        known, guess = view.know(ColumnMean), MaxEntropy()(view, rng)
        if guess.values != (0.0, 1.0) or known.records != len(guess.probabilities):
            raise ChooseAnotherAttack("works on columns of zeros and ones of which all are known")
        yes = np.argsort(-guess.probabilities[:, 1], kind="stable")
        share = np.full(known.records, 0.02)
        share[yes[: round(known.mean * known.records)]] = 0.98
        return replace(guess, probabilities=np.column_stack([1 - share, share]))


CONFIG = {
    "data": {"source": "randhie"},
    "model": {"name": "linear"},
    "training": {"rounds": 1, "learning_rate": 0.05},
    "audit": {"attributes": ["female"]},
}


def main(folder: str) -> Audit:
    """Simulate, audit with the new knowledge, and print what it was worth at each client."""
    recording = Recording.open(simulate(plan(parse_config(CONFIG)), f"{folder}/run"))
    knowing = threat_named("eavesdropper").granting(ColumnMean)
    attacks = ["max_entropy", PublishedMean()]
    asked = ["site 3", "site 5"]
    record = audit(recording, knowing, attacks, asked, options=AuditOptions(rounds=False))
    for row in record.pooled:
        print(f"{row.attack}: {row.value:.1%} right ({row.low:.1%} to {row.high:.1%})")
    return record


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
