"""Which decoder should be believed for equations that few records enter each?

What single cells prove is taken (`peeling`); the rest, with those records taken out of every
equation, goes to the ladder. Probabilities of 0 and 1 are proven up to the stated noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.counts import averaged, decode_tied, same_rows
from overheard.decoding.ladder import POOR_FIT
from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns
from overheard.decoding.peeling import peeled
from overheard.decoding.ridge import fits
from overheard.decoding.sparse_equations import SparseEquations


@dataclass(frozen=True)
class Found:
    """The posterior, which records single cells decided, and how many cells nothing explains."""

    posterior: Posterior
    proven: NDArray[np.bool_]
    contradictions: int


def decode_sparse(equations: SparseEquations, ties: NDArray[np.intp], prior: Any = None) -> Found:
    """Probabilities (m, K) of each record's candidates; ties (m,) number records alike."""
    p0 = check_prior(prior, equations.records, equations.candidates)
    alike = np.asarray(same_rows(np.column_stack([ties, p0])))  # a prior may tell records apart
    taken = peeled(equations, alike)
    proven = taken.values >= 0
    probabilities = p0.copy()
    probabilities[proven] = np.eye(equations.candidates)[taken.values[proven]]
    rest = ~proven
    unknowns = count_unknowns(p0)
    if rest.any():
        measured = equations.fixed(taken.values).only(rest).measurement()
        groups = np.unique(alike[rest], return_inverse=True)[1]
        found = decode_tied(measured, np.asarray(groups, dtype=np.intp), p0[rest])
        probabilities[rest] = found.probabilities
        rank = found.rank + int(proven.sum()) * (equations.candidates - 1)
        found = replace(found, probabilities=probabilities, rank=rank, unknowns=unknowns)
    else:
        left = equations.residual_at(taken.values)
        chi2 = float(left @ left)
        flag = "" if fits(chi2, len(left)) else POOR_FIT
        rank = unknowns
        found = Posterior(
            probabilities, chi2 / max(len(left), 1), rank, unknowns, 1, not flag, "peeling", flag
        )
    return Found(averaged(found, np.asarray(ties, dtype=np.intp)), proven, taken.contradictions)
