"""What is the mean label of each group of a client's records, given one sum over all of them?

leprovost2023 in general form (decoders.md section 7). The client reveals ``t = sum_i psi_i``, where
record i adds ``psi_i = (f_i - y_i) J_i``: its residual times the gradient of the model's output.
The adversary has auxiliary records of the same kind, with labels, and so knows the mean and the
covariance of ``(y, psi)`` in each group. Treating the sums as Gaussian, the posterior mean of

    ybar_c = (1 / N_c) sum of y_i over group c

given ``t`` is linear in ``t``, and its weights are those of a least-squares regression over the
auxiliary records: of each record's share ``1[g_i = c] (y_i - mean_c) / N_c`` of the answer on its
own ``psi_i`` (centred in its group, weighted by how many of the client's records it stands for).
So the whole inference is one regression, and three things come for free:

* **an honest interval**: the error on a record that was left out of the regression, summed over
  as many records as the client has. Closed form (leverages); nothing is refitted;
* **nothing to tune per client**: how many principal directions of ``psi`` are used, and whether the
  regression is for the label or for the residual (with the auxiliary mean of the predictions
  added), is whatever makes that left-out error smallest. The client plays no part in it;
* **any size of model**: only inner products ``psi_i . psi_j`` and ``psi_i . t`` are needed.

With unknown counts, records come from the auxiliary mixture of groups instead: ``psi`` is centred
over all groups, ``N_c`` is replaced by its expectation (given that it is not zero), and the
variance grows by what the unknown count costs.

It fails where the client's records are unlike the auxiliary ones: the interval then covers too
rarely, because it is the auxiliary records' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from overheard.errors import FixData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

RESOLVED = 1e-11
"""Eigenvalues of the Gram matrix below this fraction of the largest are rounding."""
MOST_DIRECTIONS = 200  # of a mean gradient's covariance; more cost, and say little
SHARE_OF_RECORDS = 5
"""At most one direction for every so many auxiliary records: with more, a record that is left out
has already shaped the directions, and intervals come out too short. Chosen among 3, 5 and 8 by
coverage on real wages (papers/leprovost2023)."""


@dataclass(frozen=True)
class GroupPosterior:
    """Mean and standard deviation of each group's mean label, given the sum that was heard.

    A group in which the client has no record has a NaN ``sd`` and the prior's mean. ``prior_sd``
    is what is uncertain without listening; ``directions`` counts the principal directions used;
    ``regressed`` is -1 where labels were regressed, and else says to which of the given
    predictions the regressed residuals belong. Both sd are widened, by Student's quantiles, for
    groups of which there are few auxiliary records: 1.96 sd make a 95% interval.
    """

    means: Array
    sd: Array
    prior_means: Array
    prior_sd: Array
    directions: int
    regressed: int

    def bits(self) -> float:
        """Bits learned about an average group that is there: log2(prior_sd / sd)."""
        asked = self.sd > 0
        return float(np.mean(np.log2(self.prior_sd[asked] / self.sd[asked]))) if any(asked) else 0.0


class Grouped(NamedTuple):
    """groups: (n,) of the auxiliary records, of ``how_many``; size: how many records the client
    has; counts: how many in each group, or None."""

    groups: Indices
    how_many: int
    size: int
    counts: Array | None = None


def group_posterior(
    gram: Array,
    overlap: Array,
    labels: Array,
    predictions: Sequence[Array],
    client: Grouped,
    noise: float = 0.0,
) -> GroupPosterior:
    """The posterior of the groups' mean labels.

    gram: (n, n) inner products ``psi_i . psi_j`` of the auxiliary records; overlap: (n,) inner
    products ``psi_i . t`` with the client's sum; labels: (n,); predictions: (n,) of each model
    heard; noise: standard deviation of the noise in each entry of ``t``.

    Every group that the client may have needs two auxiliary records.
    """
    _check(gram, overlap, labels, predictions, client)
    groups, how_many_groups, size, counts = client
    n = len(labels)
    members = np.bincount(groups, minlength=how_many_groups).astype(np.float64)
    inside = np.eye(how_many_groups)[groups]
    means = (inside.T @ labels) / np.maximum(members, 1)
    if counts is None:
        cells, cell_members, cell_counts = np.zeros(n, np.int64), np.array([n]), np.array([size])
        expected, inverse = _expectations(members / n, size)
    else:
        cells, cell_members, cell_counts = groups, members, np.asarray(counts, np.float64)
        expected, inverse = cell_counts, 1 / np.maximum(cell_counts, 1)
    asked = expected > 0
    # The variance of a sum over a cell's records, and of what the cell's own mean gets wrong.
    stands_for = cell_counts * (1 + cell_counts / np.maximum(cell_members, 1))
    root = np.sqrt(stands_for / np.maximum(cell_members - 1, 1))[cells]

    def shares(v: Array) -> Array:
        """What each record adds to the groups' means of v, centred in its group and weighted."""
        centred = v - ((inside.T @ v) / np.maximum(members, 1))[groups]
        parts = inside[:, asked] / expected[asked]
        return np.asarray(parts * (centred * root)[:, None])

    truth = shares(labels)
    own = 1 / (1 - 1 / np.maximum(members[groups], 2))[:, None]
    nothing = ((truth * own) ** 2).sum(axis=0)
    counting = _within(labels - means[groups], groups, members)[asked]
    counting = counting * np.maximum(inverse - 1 / np.where(asked, expected, 1), 0)[asked]
    values, vectors, heard = _principal(gram, overlap, cells, cell_members, cell_counts, root)
    # a spread seen on few records is itself unsure: 1.96 sd are to be Student's 95%
    wider = stats.t.ppf(0.975, members[asked] - 1) / stats.norm.ppf(0.975)
    posterior = means.copy()
    variance, score, directions, regressed = nothing, float(np.sqrt(nothing).sum()), 0, -1
    leverage = np.cumsum(vectors**2, axis=1) + 1 / cell_members[cells][:, None]
    left_out = 1 / (1 - np.minimum(leverage, 0.99))
    for which, offset in enumerate([np.zeros(n), *predictions], start=-1):
        target = shares(labels - offset)
        loadings = vectors.T @ target
        fitted = np.cumsum(vectors[:, :, None] * loadings, axis=1)
        errors = (target[:, None] - fitted) * left_out[:, :, None]
        errors += ((truth - target) * own)[:, None]
        candidates = (errors**2).sum(axis=0)
        candidates += noise**2 * np.cumsum(loadings**2 / values[:, None], axis=0)
        scores = np.sqrt(candidates).sum(axis=1)
        if len(scores) and scores.min() < score:
            best = int(scores.argmin())
            score, directions, regressed = float(scores[best]), best + 1, which
            variance = candidates[best]
            weights = loadings[:directions] / values[:directions, None]
            posterior[asked] = means[asked] + weights.T @ heard[:directions]
    sd, prior_sd = np.full(how_many_groups, np.nan), np.full(how_many_groups, np.nan)
    sd[asked] = wider * np.sqrt(variance + counting)
    prior_sd[asked] = wider * np.sqrt(nothing + counting)
    return GroupPosterior(posterior, sd, means, prior_sd, directions, regressed)


def _principal(
    gram: Array,
    overlap: Array,
    cells: Indices,
    cell_members: Array,
    cell_counts: Array,
    root: Array,
) -> tuple[Array, Array, Array]:
    """Principal directions of the centred, weighted psi: eigenvalues, vectors, what was heard.

    The last are the coordinates of t minus its expectation, times the singular values.
    """
    n = len(root)
    inside = np.eye(len(cell_members))[cells]
    average = inside / np.maximum(cell_members, 1)

    def centred(columns: Array) -> Array:
        return np.asarray(columns - inside @ (average.T @ columns))

    surprise = centred((overlap - gram @ (average @ cell_counts))[:, None])[:, 0] * root
    inner = centred(centred(gram).T) * np.outer(root, root)
    most = min(MOST_DIRECTIONS, n // SHARE_OF_RECORDS)
    if most == 0 or not inner.any():
        return np.empty(0), np.empty((n, 0)), np.empty(0)
    # all of them by divide and conquer: quicker than a subset of this size
    values, vectors = linalg.eigh((inner + inner.T) / 2, driver="evd")
    values, vectors = values[: -most - 1 : -1], vectors[:, : -most - 1 : -1]
    kept = values > RESOLVED * values[0]
    return values[kept], vectors[:, kept], vectors[:, kept].T @ surprise


def _expectations(shares: Array, size: int) -> tuple[Array, Array]:
    """E[N | N > 0] and E[1/N | N > 0] of each group's binomial count (0 where it never occurs)."""
    k = np.arange(1, size + 1)
    mass = stats.binom.pmf(k[:, None], size, shares[None, :])
    there = mass.sum(axis=0)
    safe = np.where(there > 0, there, 1.0)
    return (k @ mass) / safe, ((1 / k) @ mass) / safe


def _within(centred: Array, groups: Indices, members: Array) -> Array:
    """Variance within each group."""
    squares = np.bincount(groups, centred**2, minlength=len(members))
    return np.asarray(squares / np.maximum(members - 1, 1))


def _check(
    gram: Array, overlap: Array, labels: Array, predictions: Sequence[Array], client: Grouped
) -> None:
    groups, how_many_groups, size, counts = client
    n = len(labels)
    shapes = [a.shape for a in (overlap, groups, *predictions)]
    if gram.shape != (n, n) or any(shape != (n,) for shape in shapes):
        raise FixData(
            f"{n} auxiliary labels do not match inner products {gram.shape} and the other arrays "
            f"{shapes}; give one row per auxiliary record"
        )
    if not (np.isfinite(gram).all() and np.isfinite(overlap).all() and np.isfinite(labels).all()):
        raise FixData(
            "auxiliary labels and gradients must be finite; drop the records that are not"
        )
    if size < 1 or (counts is not None and counts.shape != (how_many_groups,)):
        raise FixData(f"{size} records and counts {counts} do not fit {how_many_groups} groups")
    if counts is not None and ((counts < 0).any() or counts.sum() != size):
        raise FixData(f"the counts {counts.tolist()} do not add up to the {size} records")
    members = np.bincount(groups, minlength=how_many_groups)
    if len(members) > how_many_groups:
        raise FixData(f"group {len(members) - 1} is not one of the {how_many_groups} groups")
    wanted = members > 0 if counts is None else counts > 0
    if (members[wanted] < 2).any():
        thin = np.flatnonzero(wanted & (members < 2)).tolist()
        raise FixData(
            f"the auxiliary data have fewer than two records of group {thin}, so its spread is "
            "unknown; give more auxiliary records"
        )
