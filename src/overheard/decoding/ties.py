"""How many records of each kind, when some records cannot be told apart by anybody.

Records that agree in everything public (and in the label) have the same features, so a sum over
records tells how many of them have each value and never which ones. Such a tie is one unknown
count per value instead of one indicator per record. Its prior mean is ``g p`` and its covariance
``g (diag(p) - p p')`` for ``g`` records of prior ``p``, so the linear solve of a Gaussian posterior
carries over: :func:`linear_solve`, the cheapest method that may suffice. It is an answer where it
leaves no doubt.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from overheard.decoding.gaussian import cavities, moment_sites, tilt
from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns, fits
from overheard.decoding.measurement import Measurement
from overheard.decoding.posterior import CERTAIN, believable, decode

Array = NDArray[np.float64]
Groups = NDArray[np.intp]

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
    """One Gaussian posterior, rounded to whole counts; None unless it leaves no doubt.

    It needs equations enough for the dimensions that the distinct records' candidates span. Those
    may be fewer than the free indicators: with one output the gradients of (value, class) pairs are
    multiples of one vector a value, and two numbers a record decide among four points of a plane.
    Method "linear_solve", or "counts" where there are ties.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    if not measurement.rank:
        return None
    first, sizes = np.unique(groups, return_index=True)[1], np.bincount(groups)
    trusted = believable(measurement).capped(PRECISION)
    features, p = trusted.features[first], p0[first]
    sites, shift = moment_sites(p)
    sites = sites / sizes[:, None, None]
    precision, shift = cavities(features[:, 1:], trusted.total, sites, shift)
    counts = tilt(p, precision, shift)
    doubt = 1.0 - counts.max(axis=1)
    for group in np.flatnonzero(sizes > 1):
        if comb(p.shape[1] + int(sizes[group]) - 1, int(sizes[group])) > MOST_MULTISETS:
            return None
        chosen = combinations_with_replacement(range(p.shape[1]), sizes[group])
        listed = (np.array(list(chosen))[:, :, None] == np.arange(p.shape[1])).sum(axis=1)
        free = listed[:, 1:]
        logits = listed @ np.log(np.maximum(p[group], 1e-300))
        logits += free @ shift[group] - special.gammaln(listed + 1).sum(axis=1)
        logits -= 0.5 * np.einsum("na,ab,nb->n", free, precision[group], free)
        chances = special.softmax(logits)
        counts[group], doubt[group] = chances @ listed, 1.0 - chances.max()
    left = trusted.total - np.tensordot(counts.round(), features, 2)
    chi2, equations = float(left @ left) + trusted.residual_ss, trusted.rank + trusted.residual_dof
    if doubt.max() > CERTAIN or not fits(chi2, equations):
        return None
    method = "linear_solve" if len(first) == len(groups) else "counts"
    shares, unknowns = (counts / sizes[:, None])[groups], count_unknowns(p0)
    return Posterior(shares, chi2 / equations, measurement.rank, unknowns, 1, True, method)


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
