"""What labelled records from elsewhere tell without listening (lyu2021 section 4.3, "public")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.stranger import told
from overheard.errors import ChooseAnotherAttack
from overheard.programs.records import encode
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    ClientProgram,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View


@dataclass(frozen=True)
class PublicModel:
    """Trains a logistic regression of the attribute on the other attributes of records from
    elsewhere, whose values are known, and applies it to the client's records. Never listens.

    Settings: ``records``, how many of the auxiliary records are used (lyu2021: 100 or 1000).
    """

    name: ClassVar[str] = "public_model"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {PublicRecords, AttributeDomain, AuxiliaryData}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({LocalTraining, ClientProgram})

    records: int = 1000

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        from sklearn.linear_model import LogisticRegression

        recipe, domain = told(view), view.know(AttributeDomain)
        known = view.know(AuxiliaryData).records
        if not set(domain.columns) <= set(known.columns):
            raise ChooseAnotherAttack(f"the auxiliary records do not tell {domain.column!r}")
        known = known.take(np.arange(min(self.records, len(known))))
        secret = domain.positions(known)
        shown = np.unique(secret)
        if len(shown) < 2:
            raise ChooseAnotherAttack("the auxiliary records show one value only: nothing to learn")
        others, mine = (
            encode(recipe.encoding, records, domain.settings[0])
            for records in (known, view.know(PublicRecords).records)
        )
        own = recipe.encoding.inputs_of_all(domain.columns)
        others, mine = np.delete(others, own, axis=1), np.delete(mine, own, axis=1)
        model = LogisticRegression(max_iter=2000).fit(others, secret)
        probabilities = np.zeros((len(mine), len(domain.values)))
        probabilities[:, shown] = model.predict_proba(mine)
        return AttributeValues(probabilities, domain.values, {"trained_on": len(known)})
