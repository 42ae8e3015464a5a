"""Does a sum over clients hide what each of them released? Everybody's records, decoded at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.front import answer
from overheard.attacks.linear import decoded
from overheard.attacks.stranger import beforehand
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.program import Candidates
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    ClientProgram,
    EverybodysRecords,
    Releases,
    SummedReleases,
)
from overheard.transcript.view import View


@dataclass(frozen=True)
class LinearSum:
    """Reads the sum of what all clients released, which is all that secure aggregation of a program
    shows, as an exactly linear measurement of the attribute of every record of every client, and
    decodes them together: the clients are one pool.
    """

    name: ClassVar[str] = "linear_sum"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {SummedReleases, ClientProgram, EverybodysRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributePrior, AuxiliaryData})
    equation: ClassVar[str] = "Σ over clients of releases = Σᵢ φᵢ(sᵢ) over everybody's records"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        sums, domain = view.know(SummedReleases), view.know(AttributeDomain)
        everybody, names = view.know(EverybodysRecords), sums.clients
        program = view.know(ClientProgram).program.summed(len(names))
        if domain.spread or not set(domain.columns) & set(program.columns()):
            raise ChooseAnotherAttack("reads an attribute of few values that the program looks at")
        if silent := set(names) - set(everybody.records):
            raise FixData(f"the records of {min(silent)} are not known, and are in the sums too")
        owner = np.repeat(np.arange(len(names)), [len(everybody.labels[n]) for n in names])
        known = {
            column: np.concatenate([everybody.records[n][column] for n in names])
            for column in everybody.records[names[0]].columns
        }
        known[program.target.column] = np.concatenate([everybody.labels[n] for n in names])
        tables = tuple(
            Records({**known, **{c: np.full(len(owner), v) for c, v in value.items()}})
            for value in domain.settings
        )
        prior = np.concatenate(
            [beforehand(view, everybody.records[n], everybody.labels[n]) for n in names]
        )
        ties, heard = program.alike(tables[0]), Releases(sums.exchanges, np.full(len(sums), np.nan))
        posterior, notes = decoded(program, heard, Candidates(tables), ties, prior)
        mine = owner == names.index(view.client)
        own = replace(posterior, probabilities=posterior.probabilities[mine])
        return answer(view, own, ties[mine], notes)
