"""Which decoder should be believed for equations that few records enter each?

What single cells prove is taken (`peeling`); the rest, with those records taken out of every
equation, goes to `decode`; larger cells are searched around its answer, and what that
decides makes other cells smaller. `Found.proven` are the records whose value single cells decide
alone, without `decode` and without a prior; of records alike, those that all have the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns, fits
from overheard.decoding.peeling import Cells
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.sparse_equations import SparseEquations
from overheard.decoding.ties import decode_tied, group_means, same_rows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = NDArray[np.intp]

PASSES = 8
"""Answers of `decode` around which cells are searched."""


UNPROVEN = 0.99
"""The ladder is believed no further where fewer equations than unknowns are left and no cell
confirms it: expectation propagation has been surer than right there."""
CONTRADICTED = 0.05
"""Share of the listed cells that nothing explains from which cells are not believed at all."""


@dataclass(frozen=True)
class Found:
    """The posterior; which records single cells decided; the mean square of what is left of the
    equations whose records are all decided, in units of the noise."""

    posterior: Posterior
    proven: NDArray[np.bool_]
    misfit: float


def decode_sparse(equations: SparseEquations, ties: Groups, prior: Any = None) -> Found:
    """Probabilities (m, K) of each record's candidates; ties (m,) number records alike in
    everything public."""
    p0 = check_prior(prior, equations.records, equations.candidates)
    cells = Cells(equations)
    cells.peel()
    if len(cells.contradictions) > CONTRADICTED * max(cells.listed, 1):
        return _contradicted(equations, ties, p0)
    proven = cells.proven()
    found = _completed(equations, cells, p0)
    for _ in range(PASSES):
        if (cells.values() >= 0).all() or not cells.search(found.probabilities):
            break
        cells.peel()
        found = _completed(equations, cells, p0)
    found = replace(found, probabilities=group_means(found.probabilities, ties))
    return Found(found, proven, _misfit(equations, found.probabilities))


def _contradicted(equations: SparseEquations, ties: Groups, p0: Array) -> Found:
    """Settings, records or noise are not as stated: what `decode` makes of it, flagged."""
    found = decode_tied(equations.measurement(), ties, p0)
    found = replace(found, flag=found.flag or POOR_FIT)
    return Found(found, np.zeros(len(ties), dtype=bool), _misfit(equations, found.probabilities))


def _misfit(equations: SparseEquations, probabilities: Array) -> float:
    """Mean square of the residuals of equations whose records are all decided; NaN without any."""
    decided = probabilities.max(axis=1) > 1 - 1e-9
    values = np.where(decided, probabilities.argmax(axis=1), -1)
    rest = equations.fixed(values)
    closed = np.bincount(rest.row, minlength=rest.rows) == 0
    left = rest.residual[closed] / rest.sd[closed]
    return float(np.mean(np.square(left))) if len(left) else float("nan")


def _completed(equations: SparseEquations, cells: Cells, p0: Array) -> Posterior:
    """The answer of `decode` about the records that no cell has decided."""
    values = cells.values()
    rest, unknowns = values < 0, count_unknowns(p0)
    probabilities = np.eye(equations.candidates)[values]
    if rest.any():
        measured = equations.fixed(values).only(rest).measurement()
        groups = same_rows(np.column_stack([cells.alike, p0])[rest])
        found = decode_tied(measured, groups, p0[rest])
        probabilities[rest] = _modest(found.probabilities, p0[rest])
        rank = found.rank + int((~rest).sum()) * (equations.candidates - 1)
        found = replace(found, rank=rank, unknowns=unknowns)
    else:
        left = equations.residual_at(values)
        chi2, rows = float(left @ left), len(left)
        flag = "" if fits(chi2, rows) else POOR_FIT
        found = Posterior(
            probabilities, chi2 / max(rows, 1), unknowns, unknowns, 1, not flag, "peeling", flag
        )
    return replace(found, probabilities=_shared(probabilities, cells.alike, ~rest, p0))


def _modest(probabilities: Array, p0: Array) -> Array:
    """No value surer than `UNPROVEN`, unless it was so beforehand; the others take the rest."""
    best = probabilities.argmax(axis=1)[:, None]
    top = np.take_along_axis(probabilities, best, 1)
    most = np.maximum(np.take_along_axis(p0, best, 1), UNPROVEN)
    others = np.where(p0 > 0, np.maximum(probabilities, 1e-12), 0.0)
    np.put_along_axis(others, best, 0.0, 1)
    room = others.sum(axis=1, keepdims=True)
    others *= (1 - most) / np.maximum(room, 1e-300)
    np.put_along_axis(others, best, most, 1)
    return np.where((top > most) & (room > 0), others, probabilities)


def _shared(probabilities: Array, alike: Groups, known: NDArray[np.bool_], p0: Array) -> Array:
    """Records alike of which only the count of each value is known share it, by their priors."""
    shared = probabilities.copy()
    sizes = np.bincount(alike)
    for group in np.flatnonzero(sizes > 1):
        rows = np.flatnonzero(alike == group)
        if known[rows].all():
            shared[rows] = given_counts(p0[rows], probabilities[rows].sum(axis=0))
    return shared


def given_counts(prior: Array, counts: Array) -> Array:
    """Probabilities (g, K) of records alike, given how many of them have each value.

    Of two values exactly (conditional Bernoulli); of more, the prior scaled until its sums are the
    counts (iterative proportional fitting).
    """
    if (counts > 0).sum() == 1:
        return np.tile((counts > 0).astype(np.float64), (len(prior), 1))
    odds = np.maximum(prior, 1e-12)
    if prior.shape[1] == 2:
        wanted = round(float(counts[1]))
        ratio = odds[:, 1] / odds[:, 0]
        ratio = ratio / np.exp(np.log(ratio).mean())
        chance = np.array(
            [r * _symmetric(np.delete(ratio, i), wanted - 1) for i, r in enumerate(ratio)]
        ) / _symmetric(ratio, wanted)
        return np.column_stack([1 - chance, chance])
    for _ in range(200):
        odds = odds / odds.sum(axis=1, keepdims=True)
        odds = odds * (counts / np.maximum(odds.sum(axis=0), 1e-300))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _symmetric(ratios: Array, degree: int) -> float:
    """The elementary symmetric polynomial of this degree."""
    sums = np.zeros(degree + 1)
    sums[0] = 1.0
    for ratio in ratios:
        sums[1:] = sums[1:] + ratio * sums[:-1]
    return float(sums[degree])
