"""How many records of each kind, when some records cannot be told apart by anybody.

Records that agree in everything public (and in the label) have the same features, so a sum over
records tells how many of them have each value and never which ones. Such a tie is one unknown
count per value instead of one indicator per record. Its prior mean is ``g p`` and its covariance
``g (diag(p) - p p')`` for ``g`` records of prior ``p``, so the linear solve of a Gaussian posterior
carries over: :func:`linear_solve`, the cheapest method that may suffice. It is an answer where it
leaves no doubt. :func:`solve_gram` is all that it needs of equations: their inner products.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.gaussian import moment_sites, tilt
from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns, fits
from overheard.decoding.measurement import Measurement
from overheard.decoding.posterior import believable, decode

Array = NDArray[np.float64]
Groups = NDArray[np.intp]

CERTAIN = 1e-6
"""A linear solve is an answer where every record's best candidate leaves at most this doubt."""
MOST_MULTISETS = 100_000
"""Of candidates among records alike, that are listed; where there are more, `decode` answers."""


def same_rows(rows: Any) -> Groups:
    """A number per row (n,) of a table (n, d), equal where the rows are equal: the ties."""
    table = np.ascontiguousarray(np.asarray(rows, dtype=np.float64) + 0.0)  # -0.0 is 0.0
    if table.shape[1] == 0:
        return np.zeros(len(table), dtype=np.intp)
    raw = table.view(np.dtype((np.void, table.shape[1] * table.itemsize))).ravel()
    return np.asarray(np.unique(raw, return_inverse=True)[1], dtype=np.intp)


def decode_tied(measurement: Measurement, groups: Groups, prior: Any = None) -> Posterior:
    """As :func:`overheard.decoding.posterior.decode`, where ``groups`` (m,) numbers records alike.

    Every record of a group is given the same probabilities: the group's count of each value over
    its size. The linear solve answers if it is certain; otherwise the answer of `decode` is
    averaged over each group. The prior must agree within groups.
    """
    solved = linear_solve(measurement, groups, prior)
    if solved is not None:
        return solved
    answer = decode(measurement, prior)
    return replace(answer, probabilities=group_means(answer.probabilities, groups))


def linear_solve(measurement: Measurement, groups: Groups, prior: Any = None) -> Posterior | None:
    """The answer of `solve_gram`, if no record is in doubt and it explains the total.

    It needs equations enough for the dimensions that the distinct records' candidates span. Those
    may be fewer than the free indicators: with one output the gradients of (value, class) pairs are
    multiples of one vector a value, and two numbers a record decide among four points of a plane.
    """
    shape = (measurement.records, measurement.candidates - 1)
    if 2 * measurement.rank < (groups.max() + 1) * shape[1]:
        return None
    trusted = believable(measurement).capped(PRECISION)
    rows = trusted.differences
    gram, cross = (rows @ rows.T).reshape(shape * 2), (rows @ trusted.total).reshape(shape)
    solved = solve_gram(gram, cross, groups, prior)
    if solved is None:
        return None
    posterior, shares = solved
    miss = trusted.total - np.tensordot(shares, trusted.features, 2)
    chi2 = float(miss @ miss) + trusted.residual_ss
    equations = trusted.rank + trusted.residual_dof
    if not fits(chi2, equations):
        return None
    return replace(posterior, chi2_per_equation=chi2 / equations, rank=measurement.rank)


def solve_gram(
    gram: Array, cross: Array, groups: Groups, prior: Any = None, unit: float = 1.0
) -> tuple[Posterior, Array] | None:
    """Gaussian posteriors rounded to whole counts: of all records, then of those that are still
    open, given the others, and so on; None where a solve leaves most of its records in doubt.

    gram: (m, K - 1, m, K - 1), inner products of the whitened differences; cross: (m, K - 1),
    theirs with what candidate 0 of every record leaves of the total. With the posterior come the
    whole counts as shares (m, K), to be held against the equations, which inner products cannot be.

    A solve is a Cholesky factor of the Gram matrix plus the prior's precision, which is 4 or more,
    so that rounding matters little even at a condition of 1e12. Products may be in units of
    ``unit``; in float32 the factor only bounds every record's precision. ``rank`` counts the
    unknowns of which the equations tell more than the prior does. Method "linear_solve", or
    "counts" where there are ties.
    """
    p0 = check_prior(prior, len(cross), cross.shape[1] + 1)
    first, sizes = np.unique(groups, return_index=True)[1], np.bincount(groups)
    method = "linear_solve" if len(first) == len(groups) else "counts"
    if method == "linear_solve":
        groups = first = np.arange(len(groups))
    else:
        gram = gram[first][:, :, first]
    cross, p = cross[first], p0[first]
    sites, shift = moment_sites(p)
    sites = sites / sizes[:, None, None]
    counts, rank, solves, open_ = np.zeros_like(p), 0.0, 0, np.arange(len(first))
    while len(open_):
        solved = _solved(gram, cross, sites[open_], shift[open_], unit)
        if solved is None:
            return None
        spread, mean = solved
        precision = np.linalg.inv(spread)
        cavity = precision - sites[open_], np.einsum("nab,nb->na", precision, mean) - shift[open_]
        counts[open_], doubt = _rounded(p[open_], sizes[open_], *cavity)
        if not solves:
            rank = cross.size - float(np.einsum("nab,nab->", sites, spread))
        known, solves = doubt <= CERTAIN, solves + 1
        if 3 * known.sum() < len(open_):
            return None
        cross = cross - np.tensordot(gram[:, :, known], counts[open_[known], 1:].round(), 2)
        cross, gram, open_ = cross[~known], gram[~known][:, :, ~known], open_[~known]
    shares, whole = (one[groups] / sizes[groups, None] for one in (counts, counts.round()))
    unknowns = count_unknowns(p0)
    return Posterior(shares, 0.0, round(rank), unknowns, solves, True, method), whole


def _solved(
    gram: Array, cross: Array, sites: Array, shift: Array, unit: float, margin: float = 0.01
) -> tuple[Array, Array] | None:
    """Covariance (n, c, c) of each record's Gaussian posterior, and its mean (n, c).

    In float32 an upper bound of the covariance: if the Gram matrix has a factor with its diagonal
    lowered by this share, a record's precision, all others free, is at least half of that share of
    its own entry. The other half is several times what rounding errors of `UNKNOWNS` add up to:
    the square root of their number (Higham and Mary 2019).
    """
    (n, free), single = cross.shape, gram.dtype == np.float32
    system, each = gram.copy(), np.arange(n)
    system[each, :, each] += sites / unit
    flat = system.reshape(cross.size, -1).T  # symmetric, and in place for LAPACK
    flat[np.diag_indices(cross.size)] *= 1 - margin * single
    potrf, potrs, trtri = linalg.get_lapack_funcs(("potrf", "potrs", "trtri"), (flat,))
    root, failed = potrf(flat, lower=1, overwrite_a=1)
    if failed:
        return None
    mean = potrs(root, (cross + shift / unit).ravel(), lower=1)[0].reshape(n, free)
    if single:
        least = 0.5 * margin * unit * np.einsum("nana->na", gram).astype(np.float64)
        return np.linalg.inv(least[:, :, None] * np.eye(free) + sites), mean
    inverse = trtri(root, lower=1, overwrite_c=1)[0].T.reshape(n, free, -1)
    return np.einsum("nar,nbr->nab", inverse, inverse) / unit, mean


def _rounded(p: Array, sizes: Groups, precision: Array, shift: Array) -> tuple[Array, Array]:
    """How many records of each group have each value, from cavities, and how doubtful that is."""
    counts = tilt(p, precision, shift)
    doubt = 1.0 - counts.max(axis=1)
    for group in np.flatnonzero(sizes > 1):
        if comb(p.shape[1] + int(sizes[group]) - 1, int(sizes[group])) > MOST_MULTISETS:
            doubt[group] = 1.0
            continue
        chosen = combinations_with_replacement(range(p.shape[1]), sizes[group])
        listed = (np.array(list(chosen))[:, :, None] == np.arange(p.shape[1])).sum(axis=1)
        free = listed[:, 1:]
        logits = listed @ np.log(np.maximum(p[group], 1e-300))
        logits += free @ shift[group] - special.gammaln(listed + 1).sum(axis=1)
        logits -= 0.5 * np.einsum("na,ab,nb->n", free, precision[group], free)
        chances = special.softmax(logits)
        counts[group], doubt[group] = chances @ listed, 1.0 - chances.max()
    return counts, doubt


def group_means(probabilities: Array, groups: Groups) -> Array:
    """For each record (m, K) the mean over its group."""
    sums = np.stack([np.bincount(groups, p) for p in probabilities.T], axis=1)
    return np.asarray((sums / np.bincount(groups)[:, None])[groups])


def tie_diagnostics(groups: Groups, probabilities: Array) -> dict[str, int]:
    """``tied_records``: records that agree with another in everything public; ``undecidable``:
    those of them whose group has more than one value, so that only counts can be known."""
    tied = np.bincount(groups)[groups] > 1
    mixed = tied & (probabilities.max(axis=1) < 1 - 1e-4)
    return {"tied_records": int(tied.sum()), "undecidable": int(mixed.sum())}
