"""How many records of each kind, when some records cannot be told apart by anybody.

Records that agree in everything public (and in the label) have the same features, so a sum over
records tells how many of them have each value and never which ones. Such a tie is one unknown
count per value instead of one indicator per record. Its prior mean is ``g p`` and its covariance
``g (diag(p) - p p')`` for ``g`` records of prior ``p``, so the linear solve of
a Gaussian posterior carries over; it is done here with inner products only, which also
makes it the quick first try for gradients that were never built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.gaussian import cavities, moment_sites, tilt
from overheard.decoding.limits import SPARE
from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns, fits
from overheard.decoding.measurement import Measurement
from overheard.decoding.posterior import CERTAIN, decode
from overheard.errors import FixData

Array = NDArray[np.float64]
Groups = NDArray[np.intp]

_MOST_MULTISETS = 20_000  # of candidates, for the largest group of records alike
_RETRIES = 4  # a Gram matrix that cannot be factorised is given 100 times more noise, this often


def same_rows(rows: Any) -> Groups:
    """A number per row (n,) of a table (n, d), equal where the rows are equal: the ties."""
    table = np.ascontiguousarray(np.asarray(rows, dtype=np.float64) + 0.0)  # -0.0 is 0.0
    if table.shape[1] == 0:
        return np.zeros(len(table), dtype=np.intp)
    raw = table.view(np.dtype((np.void, table.shape[1] * table.itemsize))).ravel()
    return np.asarray(np.unique(raw, return_inverse=True)[1], dtype=np.intp)


@dataclass(frozen=True)
class Counts:
    """Expected share (G, K) of each candidate in each group; ``exact``: no doubt is left.

    noise: the standard deviation found, in units of the one stated (1 unless spare equations show
    more). chi2_per_equation: of the rounded counts, in the noise found.
    """

    shares: Array
    exact: bool
    chi2_per_equation: float
    noise: float


def solve_counts(
    gram: Array, projections: Array, energy: float, equations: int, sizes: Any, prior: Array
) -> Counts:
    """Counts per group from inner products of whitened features: one Cholesky factorisation.

    gram: (n, n) for n = G (K - 1) differences, group-major; projections: (n,), inner products with
    the residual; energy: the residual's own square; equations: its length; sizes: (G,) records per
    group; prior: (G, K), one record's. Noise: unit, or what spare equations show if that is more.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    groups, candidates = prior.shape
    free = candidates - 1
    n = groups * free
    if gram.shape != (n, n) or projections.shape != (n,) or len(sizes) != groups:
        raise FixData(f"{groups} groups of {candidates} candidates do not fit Gram {gram.shape}")
    precision, shift = moment_sites(prior)
    precision, shift = precision / sizes[:, None, None], shift + 0.0
    variance = 1.0
    for _ in range(2):
        inverse, variance = _inverse(gram, precision, variance)
        mean = inverse @ (projections / variance + shift.ravel())
        spare = equations - n
        if spare < SPARE:
            break
        left = energy - 2 * projections @ mean + mean @ (gram @ mean)
        seen = left / spare
        if seen <= variance * (1 + 5 * np.sqrt(2 / spare)):
            break
        variance = float(seen)
    blocks = inverse.reshape(groups, free, groups, free)
    own = np.ascontiguousarray(np.einsum("gagb->gab", blocks))
    centre = mean.reshape(groups, free)
    shares, doubt = _round(prior, sizes, centre, own, precision, shift)
    rounded = (sizes[:, None] * shares).round() if doubt <= CERTAIN else sizes[:, None] * shares
    z = rounded[:, 1:].ravel()
    chi2 = (energy - 2 * projections @ z + z @ (gram @ z)) / variance
    exact = bool(doubt <= CERTAIN and fits(max(chi2, 0.0), equations))
    return Counts(shares, exact, float(max(chi2, 0.0) / max(equations, 1)), float(variance**0.5))


def _inverse(gram: Array, precision: Array, variance: float) -> tuple[Array, float]:
    """(gram / variance + blockdiag(precision))^-1, with more noise if float64 demands it."""
    groups, free, _ = precision.shape
    rows = np.arange(groups * free).reshape(groups, free)
    for _ in range(_RETRIES):
        matrix = gram / variance
        matrix[rows[:, :, None], rows[:, None, :]] += precision
        factor, failed = linalg.lapack.dpotrf(matrix, lower=1, overwrite_a=1)
        if not failed:
            inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
            lower = np.tril_indices(len(inverse), -1)
            inverse.T[lower] = inverse[lower]
            if (np.diagonal(inverse) > 0).all():
                return np.asarray(inverse), variance
        variance *= 100.0
    raise FixData("the Gram matrix cannot be factorised; give inner products of the differences")


def _round(
    prior: Array, sizes: Array, mean: Array, covariance: Array, precision: Array, shift: Array
) -> tuple[Array, float]:
    """Shares of each candidate and the largest doubt about any of them."""
    single = sizes == 1
    shares = np.empty_like(prior)
    doubt = 0.0
    if single.any():
        cavity = np.linalg.inv(covariance[single])
        centre = (cavity @ mean[single][:, :, None])[:, :, 0] - shift[single]
        shares[single] = tilt(prior[single], cavity - precision[single], centre)
        doubt = float(1.0 - shares[single].max(axis=1).min())
    if (~single).any():
        counts = mean[~single]
        nearest = counts.round()
        off = np.abs(counts - nearest)
        spread = np.maximum(np.einsum("gkk->gk", covariance[~single]), 1e-300)
        # odds of the next whole number against the nearest one
        odds = np.exp(-np.maximum(1 - 2 * off, 0.0) / (2 * spread))
        size = sizes[~single][:, None]
        outside = (nearest < 0).any() or (nearest.sum(axis=1) > size[:, 0]).any()
        doubt = 1.0 if outside else max(doubt, float(odds.max()))
        sure = odds.max(axis=1, keepdims=True) <= CERTAIN
        inside = np.clip(np.where(sure, nearest, counts) / size, 0.0, 1.0)
        rest = np.maximum(1 - inside.sum(axis=1, keepdims=True), 0.0)
        joint = np.concatenate([rest, inside], axis=1)
        shares[~single] = joint / joint.sum(axis=1, keepdims=True)
    return shares, doubt


def decode_tied(measurement: Measurement, groups: Groups, prior: Any = None) -> Posterior:
    """As :func:`overheard.decoding.posterior.decode`, where ``groups`` (m,) numbers records alike.

    Every record of a group is given the same probabilities: the group's count of each value over
    its size. Method "counts" when these counts are exact; otherwise the answer of `decode` is
    averaged over each group. Without ties this is `decode`. The prior must agree within groups.
    """
    m, k = measurement.records, measurement.candidates
    p0 = check_prior(prior, m, k)
    sizes = np.bincount(groups)
    first = np.unique(groups, return_index=True)[1]
    if len(first) == m or not measurement.rank:
        return decode(measurement, p0)
    capped = measurement.capped(PRECISION)
    features = capped.differences.reshape(m, k - 1, -1)[first].reshape(len(first) * (k - 1), -1)
    if measurement.rank >= len(features):
        total = capped.total
        found = solve_counts(
            features @ features.T,
            features @ total,
            float(total @ total) + capped.spare_chi2,
            capped.rank + capped.spare_rows,
            sizes,
            p0[first],
        )
        if found.exact:
            return Posterior(
                found.shares[groups],
                found.chi2_per_equation,
                measurement.rank,
                count_unknowns(p0),
                1,
                True,
                "counts",
            )
    answer = decode(measurement, p0)
    return averaged(answer, groups)


def decode_dependent(measurement: Measurement, groups: Groups, prior: Any = None) -> Posterior:
    """As :func:`decode_tied`, for records whose own candidates are linearly dependent.

    With one output the gradients of (value, class) pairs are multiples of one vector per value: two
    numbers a record, though there are three free indicators. Those numbers suffice, because the
    answer is one of four points of the plane (:func:`solve_dependent`).
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    return solve_dependent(measurement, groups, p0) or decode_tied(measurement, groups, p0)


def solve_dependent(
    measurement: Measurement, groups: Groups, prior: Any = None
) -> Posterior | None:
    """The linear solve alone; None unless it is proven, as one linear solve can be.

    Tried when there are equations enough for the dimensions that the distinct records' candidates
    span. A group of ``g`` records alike is one of the multisets of ``g`` candidates.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    first, sizes = np.unique(groups, return_index=True)[1], np.bincount(groups)
    lengths = np.linalg.svd(measurement.features[first, 1:], compute_uv=False)
    dimensions = int((lengths > 1e-9 * lengths.max(axis=1, keepdims=True, initial=0.0)).sum())
    most = comb(measurement.candidates + int(sizes.max()) - 1, int(sizes.max()))
    if not measurement.rank >= dimensions > 0 or most > _MOST_MULTISETS:
        return None
    capped = measurement.capped(PRECISION)
    features = capped.features[first]
    sites, shift = moment_sites(p0[first])
    precision, shift = cavities(features[:, 1:], capped.total, sites / sizes[:, None, None], shift)
    shares = tilt(p0[first], precision, shift)
    sure = np.asarray(shares.max(axis=1), dtype=np.float64)
    for group in np.flatnonzero(sizes > 1):
        shares[group], sure[group] = _tilt_counts(
            p0[first[group]], int(sizes[group]), precision[group], shift[group]
        )
    if float(1.0 - sure.min()) > CERTAIN:
        return None
    counts = (shares * sizes[:, None]).round()
    left = capped.total - np.tensordot(counts, features, 2)
    chi2 = float(left @ left)
    if not fits(chi2, capped.rank):
        return None
    return Posterior(
        shares[groups],
        chi2 / capped.rank,
        measurement.rank,
        count_unknowns(p0),
        1,
        True,
        "linear_solve" if len(first) == len(groups) else "counts",
    )


def _tilt_counts(prior: Array, size: int, precision: Array, shift: Array) -> tuple[Array, float]:
    """Shares (K,) of candidates among ``size`` records alike, and the best multiset's chance."""
    listed = np.array(list(combinations_with_replacement(range(len(prior)), size)))
    counts = (listed[:, :, None] == np.arange(len(prior))).sum(axis=1).astype(np.float64)
    free = counts[:, 1:]
    logits = counts @ np.log(np.maximum(prior, 1e-300)) - special.gammaln(counts + 1).sum(axis=1)
    logits += free @ shift - 0.5 * np.einsum("na,ab,nb->n", free, precision, free)
    chances = special.softmax(logits)
    return chances @ counts / size, float(chances.max())


def averaged(posterior: Posterior, groups: Groups) -> Posterior:
    """The posterior with each group's probabilities replaced by their mean."""
    return replace(posterior, probabilities=group_means(posterior.probabilities, groups))


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
