"""Which decoder should be believed for equations that few records enter each?

What single cells prove is taken (`peeling`); the rest, with those records taken out of every
equation, goes to the ladder; what the ladder is sure of makes cells smaller once more. `Found.proven` are
those that single cells decide without the ladder or a prior.
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


Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SURE = 0.9999
"""Confidence of the ladder that is taken for granted while other cells are looked at again."""
PASSES = 5


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
    found = _completed(equations, alike, p0, taken.values)
    values = taken.values
    for _ in range(PASSES):
        sure = (values < 0) & (found.confidence > SURE)
        if found.flag or not sure.any() or not (~sure & (values < 0)).any():
            break
        tried = peeled(equations, alike, np.where(sure, found.guess, values))
        again = _completed(equations, alike, p0, tried.values)
        if tried.contradictions > taken.contradictions or again.flag:
            break
        values, found = tried.values, again
    found = averaged(found, np.asarray(ties, dtype=np.intp))
    return Found(found, taken.values >= 0, taken.contradictions)


def _completed(
    equations: SparseEquations, alike: NDArray[np.intp], p0: Array, values: Ints
) -> Posterior:
    """The ladder's answer about the records that are not known yet (-1)."""
    rest, unknowns = values < 0, count_unknowns(p0)
    probabilities = np.eye(equations.candidates)[values]
    if rest.any():
        measured = equations.fixed(values).only(rest).measurement()
        groups = np.unique(alike[rest], return_inverse=True)[1]
        found = decode_tied(measured, np.asarray(groups, dtype=np.intp), p0[rest])
        probabilities[rest] = found.probabilities
        rank = found.rank + int((~rest).sum()) * (equations.candidates - 1)
        return replace(found, probabilities=probabilities, rank=rank, unknowns=unknowns)
    left = equations.residual_at(values)
    chi2, rows = float(left @ left), len(left)
    flag = "" if fits(chi2, rows) else POOR_FIT
    return Posterior(
        probabilities, chi2 / max(rows, 1), unknowns, unknowns, 1, not flag, "peeling", flag
    )
