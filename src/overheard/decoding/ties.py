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

MOST_MULTISETS = 20_000
"""Of candidates among records alike, that are listed; of more the nearest whole numbers are
looked at."""


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
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    alone = len(np.unique(groups)) == len(groups)
    if not (alone and measurement.rank >= measurement.unknowns):  # else `decode` begins with it
        solved = linear_solve(measurement, groups, p0)
        if solved is not None:
            return solved
    answer = decode(measurement, p0)
    return replace(answer, probabilities=group_means(answer.probabilities, groups))


def linear_solve(measurement: Measurement, groups: Groups, prior: Any = None) -> Posterior | None:
    """One Gaussian posterior, rounded to whole counts; None unless it leaves no doubt.

    Tried when there are equations enough for the dimensions that the distinct records' candidates
    span. Those may be fewer than the free indicators: with one output the gradients of (value,
    class) pairs are multiples of one vector a value, and two numbers a record decide among four
    points of a plane. Method "linear_solve", or "counts" where there are ties.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    first, sizes = np.unique(groups, return_index=True)[1], np.bincount(groups)
    if not 0 < _dimensions(measurement.features[first, 1:], measurement.rank) <= measurement.rank:
        return None
    trusted = believable(measurement).capped(PRECISION)
    features, p = trusted.features[first], p0[first]
    sites, shift = moment_sites(p)
    sites = sites / sizes[:, None, None]
    precision, shift = cavities(features[:, 1:], trusted.total, sites, shift)
    counts, doubt = tilt(p, precision, shift), 0.0
    doubt = float(1.0 - counts[sizes == 1].max(axis=1).min(initial=1.0))
    for group in np.flatnonzero(sizes > 1):
        found = _whole(p[group], int(sizes[group]), precision[group], shift[group], sites[group])
        if found is None:
            return None
        counts[group], doubt = found[0], max(doubt, found[1])
    if doubt > CERTAIN:
        return None
    left = trusted.total - np.tensordot(counts.round(), features, 2)
    chi2, equations = float(left @ left) + trusted.spare_chi2, trusted.rank + trusted.spare_rows
    if not fits(chi2, equations):
        return None
    return Posterior(
        (counts / sizes[:, None])[groups],
        chi2 / equations,
        measurement.rank,
        count_unknowns(p0),
        1,
        True,
        "linear_solve" if len(first) == len(groups) else "counts",
    )


def _dimensions(differences: Array, most: int) -> int:
    """How many dimensions every record's candidates (n, K - 1, r) span, all together."""
    records, free, _ = differences.shape
    if records * free <= most:
        return int(records * free)  # at most so many: enough to try
    lengths = np.linalg.svd(differences, compute_uv=False)
    return int((lengths > 1e-9 * lengths.max(axis=1, keepdims=True, initial=0.0)).sum())


def _whole(
    prior: Array, size: int, precision: Array, shift: Array, site: Array
) -> tuple[Array, float] | None:
    """Counts (K,) of the candidates among ``size`` records alike, and the chance of all others.

    precision, shift: the cavity; site: the Gaussian in place of the prior.
    """
    if comb(len(prior) + size - 1, size) > MOST_MULTISETS:
        covariance = np.linalg.inv(precision + site)
        mean = covariance @ (shift + site @ (size * prior[1:]))
        free = mean.round()
        if (free < 0).any() or free.sum() > size:
            return None
        # odds of the next whole number against the nearest one
        gap = np.maximum(1 - 2 * np.abs(mean - free), 0.0)
        odds = np.exp(-gap / (2 * np.maximum(np.diagonal(covariance), 1e-300)))
        return np.append(size - free.sum(), free), float(odds.max())
    listed = np.array(list(combinations_with_replacement(range(len(prior)), size)))
    counts = (listed[:, :, None] == np.arange(len(prior))).sum(axis=1).astype(np.float64)
    free = counts[:, 1:]
    logits = counts @ np.log(np.maximum(prior, 1e-300)) - special.gammaln(counts + 1).sum(axis=1)
    logits += free @ shift - 0.5 * np.einsum("na,ab,nb->n", free, precision, free)
    chances = special.softmax(logits)
    return chances @ counts, float(1.0 - chances.max())


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
