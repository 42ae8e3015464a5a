"""An attack in one file: copy it to src/overheard/attacks/ and change what it does."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls

from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.records import encode
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import View


@dataclass(frozen=True)
class ShareOfValues:
    """Asks how common each value is at the client: mixes the updates that it would have sent if
    everybody had the same value, until the mixture is nearest to the one heard. Every record gets
    these shares.

    Solves: (θ − θ′) / rate ≈ Σᵥ shareᵥ · mean of gᵢ(v)

    Settings: ``rounds``, how many of the rounds heard are used, the first ones.
    """

    name: ClassVar[str] = "share_of_values"
    paper: ClassVar[str] = "yours2030"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Messages, ClientProgram, PublicRecords, Labels, AttributeDomain}
    )

    rounds: int = 3

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        link, recipe = view.know(Messages), view.know(ClientProgram).plain_recipe
        records, domain = view.know(PublicRecords).records, view.know(AttributeDomain)
        if not recipe.full_batch or recipe.epochs > 1:
            raise ChooseAnotherAttack(
                "works on one full-batch step a round; this client takes more"
            )
        labels = recipe.target.encode_values(view.know(Labels).values)
        observed, pure = [], []
        for sent, update in zip(link.sent, link.updates(), strict=True):
            if len(observed) == self.rounds:
                break
            observed.append(update / recipe.learning_rate)
            theta, each = sent.astype(np.float64), []
            for value in domain.values:
                inputs = encode(recipe.encoding, records, {domain.column: value})
                rows = network(recipe).rows(theta, inputs, labels)
                each.append(rows.total() / len(labels))
            pure.append(each)
        shares, residual = nnls(np.concatenate(pure, axis=1).T, np.concatenate(observed))
        shares = (shares + 1e-9) / (shares + 1e-9).sum()
        probabilities = np.tile(shares, (len(labels), 1))
        return AttributeValues(probabilities, domain.values, {"residual": float(residual)})
