"""Labels from gradients: the mean of each group (first part), or every single one (second part).

**Groups.** What is the mean label of each group of records, given one sum over all of them?

leprovost2023 in general form (decoders.md section 7). The client reveals ``t = sum_i psi_i``, where
record i adds ``psi_i = (f_i - y_i) J_i``: its residual times the gradient of the model's output.
The adversary has auxiliary records of the same kind, with labels, and so an estimate of the mean
and the covariance of ``(y, psi)`` in each group. Treating the sums as Gaussian, the posterior mean
of

    ybar_c = (1 / N_c) sum of y_i over group c

given ``t`` is linear in ``t``, and its weights are those of a ridge regression over the auxiliary
records: of each record's share ``1[g_i = c] (y_i - mean_c) / N_c`` of the answer on its own
``psi_i`` (centred in its group, weighted by how many of the client's records it stands for). The
ridge shrinks the covariance of ``psi``, of which there are more coordinates than records. So the
whole inference is one regression:

* **nothing is tuned per client**: the ridge, and whether the regression is for the label or for the
  residual (with the auxiliary mean of the predictions added), are what makes the error on
  auxiliary records that are left out smallest. The client plays no part in it;
* **the error is measured, not modelled**: that of a record left out of the regression, summed over
  as many records as the client has. Leaving out is exact and closed form for a ridge regression
  (``e_i = residual_i / (1 - h_ii)``, h the hat matrix; Allen 1974), directions included;
* **any size of model**: only inner products ``psi_i . psi_j`` and ``psi_i . t`` are needed.

**Heavy tails.** A variance from n records has about ``2 (n - 1) / (kurtosis - 1)`` degrees of
freedom (O'Neill 2014), and salaries have a kurtosis of 5 to 20: forty records of a group may hold
none of the few that make its variance. So the degrees of freedom are those, with the kurtosis of
all groups' errors together; each group's variance is shrunk towards the common one, which counts as
``prior_freedom`` further degrees (Smyth 2004's moderated variances); and the interval is Student's.

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

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
ROUNDING = 1e-9
"""Least 1 - h of a record: below it, the difference of two numbers near one is rounding."""


@dataclass(frozen=True)
class GroupOptions:
    """ridges: tried, in units of the mean squared length of a centred ``psi``. prior_freedom:
    degrees of freedom that the groups' common variance counts as; coverage on two tables of
    salaries was the same to .002 for 1, 2 and 4."""

    ridges: tuple[float, ...] = tuple(np.geomspace(1e-7, 10.0, 17))
    prior_freedom: float = 2.0


@dataclass(frozen=True)
class GroupPosterior:
    """Mean and standard deviation of each group's mean label, given the sum observed.

    A group in which the client has no record has a NaN ``sd`` and the prior's mean. ``prior_sd``
    is the uncertainty before the message; ``directions`` is the effective number of directions of
    ``psi`` that the regression uses (the trace of its hat matrix). Both sd are those of a normal
    with Student's 95% interval: 1.96 sd make it.
    """

    means: Array
    sd: Array
    prior_means: Array
    prior_sd: Array
    directions: float

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


class _Fit(NamedTuple):
    """A regression: ``errors`` (n, C) of records left out of it; ``noise`` (C,), the variance that
    the message's own noise adds; ``shift`` (C,) of the groups' means; trace of the hat matrix."""

    errors: Array
    noise: Array
    shift: Array
    directions: float = 0.0


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
    sent; noise: standard deviation of the noise in each entry of ``t``.

    Every group that the client may have needs two auxiliary records, and all numbers must be
    finite: the caller sees to it.
    """
    options = GroupOptions()
    groups, how_many, size, counts = client
    n, none = len(labels), np.zeros(how_many)
    inside = np.eye(how_many)[groups]
    members = inside.sum(0)
    # Records are centred and weighted in cells: the groups, or all together if counts are unknown.
    if counts is None:
        cells, cell_counts = np.ones((n, 1)), np.array([float(size)])
        expected, inverse = _expectations(members / n, size)
    else:
        cells, cell_counts = inside, counts.astype(np.float64)
        expected, inverse = cell_counts, 1 / np.maximum(counts, 1)
    asked = expected > 0
    share = np.where(asked, 1 / np.where(asked, expected, 1), 0.0)
    cell_members = np.maximum(cells.sum(0), 1)
    # The variance of a sum over a cell's records, and of what the cell's own mean gets wrong.
    stands_for = cell_counts * (1 + cell_counts / cell_members)
    weight = cells @ (stands_for / np.maximum(cell_members - 1, 1))
    root = np.sqrt(weight)

    def shares(v: Array) -> Array:
        """(n, C) each record's part in the groups' means of v, centred in its group, weighted."""
        return np.asarray(inside * share * (_centred(v, inside) * root)[:, None])

    truth = shares(labels)
    by_group = 1 / (1 - 1 / np.maximum(members[groups], 2))[:, None]  # leaves out of a group's mean
    prior = _Fit(truth * by_group, none, none)
    fits = [prior]
    inner = _centred(_centred(gram, cells).T, cells) * np.outer(root, root)
    values, vectors = linalg.eigh((inner + inner.T) / 2, driver="evd")
    values = np.maximum(values, 0.0)
    expectation = gram @ (cells @ (cell_counts / cell_members))
    observed = vectors.T @ (_centred(overlap - expectation, cells) * root)
    ridges = np.array(options.ridges) * values.mean() if values.any() else np.empty(0)
    for offset in (np.zeros(n), *predictions):
        target = shares(labels - offset)
        loadings = vectors.T @ target
        for ridge in ridges:
            rest = ridge / (values + ridge)
            diagonal = np.maximum(vectors**2 @ rest - 1 / (cells @ cell_members), ROUNDING)
            errors = vectors @ (rest[:, None] * loadings) / diagonal[:, None]
            errors += (truth - target) * by_group
            weights = loadings / (values + ridge)[:, None]
            added = noise**2 * (weights**2 * values[:, None]).sum(0)
            fits.append(_Fit(errors, added, weights.T @ observed, float((1 - rest).sum())))
    best = min(fits, key=lambda fit: np.sqrt((fit.errors**2).sum(0) + fit.noise).sum())
    means = inside.T @ labels / np.maximum(members, 1)
    within = inside.T @ _centred(labels, inside) ** 2 / np.maximum(members - 1, 1)
    counting = within * np.maximum(inverse - share, 0)
    # of a group's own records in its error: per label variance
    own = share**2 * (inside.T @ weight)

    def sd(fit: _Fit) -> Array:
        variance, wider = _moderated(fit.errors, inside, own, asked, options.prior_freedom)
        return np.where(asked, wider * np.sqrt(variance + fit.noise + counting), np.nan)

    return GroupPosterior(means + best.shift, sd(best), means, sd(prior), best.directions)


def _moderated(
    errors: Array, inside: Array, own: Array, asked: NDArray[np.bool_], prior_freedom: float
) -> tuple[Array, Array]:
    """Variance (C,) of each group's error, and the factor (C,) by which Student's 95% interval is
    wider than the normal one: see *Heavy tails* above.

    A group's own records make nearly all of its error; only their part is moderated, as the
    variance of one record's label (``own`` times which it is).
    """
    squares = errors**2
    mine = np.where(asked, (squares * inside).sum(0), 0.0)
    members = np.maximum(inside.sum(0), 2)
    relative = squares * inside / np.maximum(mine / members, np.finfo(float).tiny)
    kurtosis = max((relative**2).sum() / max((members * asked).sum(), 1), 3.0)
    freedom = 2 * (members - 1) / (kurtosis - 1)
    variance = np.divide(mine, own, out=np.zeros_like(mine), where=own > 0)
    common = (members * variance).sum() / max((members * asked).sum(), 1)
    shrunk = (freedom * variance + prior_freedom * common) / (freedom + prior_freedom)
    wider = stats.t.ppf(0.975, freedom + prior_freedom) / stats.norm.ppf(0.975)
    return squares.sum(0) - mine + own * shrunk, wider


def _centred(columns: Array, sets: Array) -> Array:
    """Columns minus their means over the sets (n, k) of rows."""
    return np.asarray(columns - sets @ ((sets / np.maximum(sets.sum(0), 1)).T @ columns))


def _expectations(shares: Array, size: int) -> tuple[Array, Array]:
    """E[N | N > 0] and E[1/N | N > 0] of each group's binomial count (0 where it never occurs)."""
    k = np.arange(1, size + 1)
    mass = stats.binom.pmf(k[:, None], size, shares[None, :])
    there = np.where(mass.any(axis=0), mass.sum(axis=0), 1.0)
    return (k @ mass) / there, ((1 / k) @ mass) / there


# --- Which labels did the client have, given its inputs and its gradients?
#
# For squared error the gradient is linear in the labels outright, however non-linear the network
# (decoders.md section 1): with r_i = f_i - y_i and J_i the gradient of the output f_i,
#
#     (m / 2) g = sum_i r_i J_i + noise.
#
# Several gradients (other models, same records) stack: y_i = f_i(round) - r_i(round), so that
# every round measures the same unknown u_i = r_i of the first round. The noise is known (rounding
# of the message); rows are whitened by it and decomposed as they are, never through normal
# equations. Where the rows disagree by more than it, the noise is taken to be as large as they
# disagree.
#
# Records with equal inputs have equal J: only their sum can be seen. Whatever the rows do not
# resolve is shrunk to the prior u ~ N(0, tau^2), tau by moments from the measurement itself
# (empirical Bayes; MacKay 1992), and its uncertainty is reported: a label is **identified** if
# its posterior standard deviation is a small share of tau (`LabelOptions`).

RESOLVED = 1e-12
"""Of the largest singular value: what float64 tells from zero."""


@dataclass(frozen=True)
class LabelOptions:
    """identified: a residual is, if at most this share of its prior standard deviation remains."""

    identified: float = 0.1


@dataclass(frozen=True)
class Residuals:
    """Posterior of the residuals: mean and standard deviation of each, prior scale tau;
    ``identified`` (m,) says which are; ``chi2`` is the reduced chi-square of what no residuals
    explain, near one if the noise is as stated."""

    values: Array
    sd: Array
    tau: float
    identified: NDArray[np.bool_]
    chi2: float


def solve_residuals(features: Array, totals: Array, noise: Array) -> Residuals:
    """Residuals (m,) from rows that say totals (k,) = features (k, m) @ residuals + noise, whose
    standard deviation (k,) is given."""
    left, strengths, right = linalg.svd(features / noise[:, None], full_matrices=False)
    total = totals / noise
    seen = left.T @ total
    dof = len(totals) - int((strengths > RESOLVED * strengths.max(initial=0.0)).sum())
    chi2 = max(float(total @ total - seen @ seen), 0.0) / dof if dof > 0 else 0.0
    raised = max(1.0, chi2)  # more noise than stated: believe the rows, not the statement
    strengths, seen = strengths / np.sqrt(raised), seen / np.sqrt(raised)
    energy = float(strengths @ strengths)
    tau2 = max(float(seen @ seen) - len(seen), 0.0) / energy if energy > 0 else 0.0
    shrink = 1 + tau2 * strengths**2
    unresolved = np.maximum(1 - (right**2).sum(axis=0), 0)
    sd = np.sqrt(tau2 * ((right**2).T @ (1 / shrink) + unresolved))
    return Residuals(
        values=right.T @ (tau2 * strengths / shrink * seen),
        sd=sd,
        tau=float(np.sqrt(tau2)),
        identified=sd <= LabelOptions().identified * np.sqrt(tau2),
        chi2=chi2,
    )
