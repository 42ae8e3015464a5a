"""What do the columns of a first layer say, when nobody knows at which moment a record was used?

A client that trains on batches moves its model while it trains. What it returns of its first
layer is still a sum over records of outer products,

    U = sum_i e_i x_i',     e_i = sum over the steps that used record i of error / batch size,

but the *effective errors* ``e_i`` (m, H) depend on the unknown order of the batches. Two things
are known of them. The model gives their mean and their variance over random orders
(:func:`order_moments`). And most columns of ``U`` belong to public inputs: they are linear
measurements of the very same errors, in this very order. Conditioning the first on the second,

    e | U_public  =  mean + v X (X' v X + noise)^-1 (U_public - X' mean),

gives errors that are better known than the model alone could tell; when the public inputs have at
least m independent columns, they are known exactly, whatever the learning rate, the batches, the
number of epochs or even the labels. The columns that the attribute enters directly are then
linear equations in the unknown values,

    U_direct = sum_i e_i(s_i) x_direct(s_i)' + what is left of the noise,

H equations a column and round: that is what :class:`Columns` returns
(decoders.md section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.measurement import Measurement, from_differences, from_gram

Array = NDArray[np.float64]

SHRINK = 0.1
"""Share of an estimated covariance that is spread evenly over its directions."""

WEAK = 0.1
"""Directions below this many noise units are dropped: below 0.002 bits each."""


@dataclass(frozen=True)
class Usage:
    """How often and how strongly an epoch uses a record: moments of its weight over orders.

    mean: expected weight, batches / m. square: expected square. epochs: of them, independent.
    """

    mean: float
    square: float
    epochs: int

    @property
    def variance(self) -> float:
        """Of the weight: records of a smaller last batch weigh more."""
        return max(self.square - self.mean**2, 0.0)


def usage(records: int, batch: int | None, epochs: int) -> Usage:
    """The weights of a recipe: batches of ``batch`` (None: all), the last one smaller."""
    size = min(batch or records, records)
    sizes = np.full(-(-records // size), size)
    sizes[-1] = records - size * (len(sizes) - 1)
    return Usage(len(sizes) / records, float((1 / sizes).sum()) / records, epochs)


@dataclass(frozen=True)
class Moments:
    """Of what each record contributes over random orders, by candidate.

    mean: (K, m, H); variance: (m,), summed over the H entries and averaged over candidates;
    shape: (H, H) covariance common to all records, trace one.
    """

    mean: Array
    variance: Array
    shape: Array


def order_moments(
    nodes: Array, shares: Array, used: Usage, probabilities: Array, shrink: float = SHRINK
) -> Moments:
    """Moments over random orders from errors on a path.

    nodes: (G, Q, K, m, H), errors at Q moments of G groups of epochs; shares: (G, Q) of the path
    that each stands for, sum one; probabilities: (m, K). An epoch uses every record once, at a
    random moment; epochs have independent orders.
    """
    mean = used.epochs * used.mean * np.einsum("gq,gqkmh->kmh", shares, nodes)
    expected = np.einsum("mk,gqkmh->gqmh", probabilities, nodes)
    groups = shares.sum(axis=1)
    centre = np.einsum("gq,gqmh->gmh", shares / groups[:, None], expected)
    deviations = (expected - centre[:, None]) * np.sqrt(shares)[:, :, None, None]
    pieces = [
        deviations.reshape(-1, *deviations.shape[2:]) * np.sqrt(used.epochs * used.square),
        centre * np.sqrt(groups * used.epochs * used.variance)[:, None, None],
    ]
    variance = sum((np.einsum("nmh,nmh->m", x, x) for x in pieces), np.zeros(len(probabilities)))
    # in single precision, which a shrunk covariance does not notice
    rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in pieces])
    largest = float(np.abs(rows).max(initial=0.0)) or 1.0
    single = (rows / largest).astype(np.float32)
    covariance = (single.T @ single).astype(np.float64) * largest**2
    width = covariance.shape[0]
    size = float(np.trace(covariance))
    even = np.eye(width) / width
    shape = even if size <= 0 else (1 - shrink) * covariance / size + shrink * even
    return Moments(np.asarray(mean), np.asarray(variance), np.asarray(shape))


@dataclass(frozen=True)
class Equations:
    """Equations of one round: ``residual = sum_i differences[i, s_i] + noise``, not yet white.

    differences: (m, K - 1, R); residual: (R,); root: lower Cholesky factor (R, R) of the noise's
    covariance, or standard deviations (R,).
    """

    differences: Array
    residual: Array
    root: Array

    def white(self) -> tuple[Array, Array]:
        """Differences (m (K - 1), R) and residual (R,) with unit noise."""
        flat = self.differences.reshape(-1, self.residual.size)
        solved = self._whiten(np.column_stack([flat.T, self.residual]))
        return solved[:, :-1].T, solved[:, -1]

    def _whiten(self, columns: Array) -> Array:
        if self.root.ndim == 1:
            return columns / (self.root if columns.ndim == 1 else self.root[:, None])
        solved = linalg.solve_triangular(self.root, columns, lower=True, check_finite=False)
        return np.asarray(solved)

    def misses(self, probabilities: Array) -> Array:
        """What expected values leave unexplained (R,), in the units of the update."""
        return np.asarray(
            self.residual - np.einsum("mk,mkr->r", probabilities[:, 1:], self.differences)
        )

    def chi2(self, probabilities: Array) -> float:
        """Mean square of the white misses."""
        white = self._whiten(self.misses(probabilities))
        return float(white @ white) / white.size

    def loudness(self, noises: Array) -> float:
        """Variance of draws (n, R) of the noise in units of what is stated: overall, or where the
        records differ if that is more."""
        white = self._whiten(np.ascontiguousarray(noises.T))
        everywhere = float(np.mean(white**2))
        basis = linalg.qr(self.white()[0].T, mode="economic", check_finite=False)[0]
        return max(everywhere, float(np.mean((basis.T @ white) ** 2)))


def whole_equations(moments: Moments, total: Array, rounding: Array) -> Equations:
    """Equations of a whole update, its entries in place of the H errors.

    total: (P,), the sum of all gradients; rounding: (P,) its own standard deviation. The noise
    is that of the orders, or rounding alone where every step uses every record.
    """
    differences = np.moveaxis(moments.mean[1:] - moments.mean[0], 0, 1)
    residual = total - moments.mean[0].sum(axis=0)
    random = float(moments.variance.sum())
    root = rounding
    if random > 0:
        covariance = random * moments.shape
        covariance[np.diag_indices(len(covariance))] += rounding**2
        root = linalg.cholesky(covariance, lower=True, check_finite=False)
    return Equations(np.ascontiguousarray(differences), residual, root)


class Columns:
    """Equations of the attribute's own columns, errors conditioned on the public columns.

    public: (m, D) inputs that everybody knows (a column of ones for the bias); direct: (K, m, J)
    the inputs that the attribute enters; probabilities: (m, K) as believed so far; rounding:
    standard deviation of the update's own rounding, in its units.
    """

    def __init__(
        self, moments: Moments, public: Array, direct: Array, probabilities: Array, rounding: float
    ) -> None:
        self._direct = direct
        expected = np.einsum("mk,kmh->mh", probabilities, moments.mean)
        self._seen = public.T @ expected
        apart = moments.mean - expected
        undecided = np.einsum("mk,kmh,kmh->m", probabilities, apart, apart)
        variance = moments.variance + undecided
        width = moments.mean.shape[2]
        floor = width * rounding**2
        weighted = public * variance[:, None]
        inner = public.T @ weighted
        inner[np.diag_indices(len(inner))] += max(floor, 1e-12 * float(np.trace(inner)), 1e-300)
        factor = linalg.cho_factor(inner, lower=True, check_finite=False)
        self._gain = linalg.cho_solve(factor, weighted.T, check_finite=False)  # (D, m)
        # share of a record's deviation that the public columns show, whatever its value
        shown = np.clip(np.einsum("md,dm->m", public, self._gain), 0.0, 1.0)
        self._errors = moments.mean - shown[:, None] * apart
        left = variance * (1 - shown)
        believed = np.einsum("mk,kmj->mj", probabilities, direct)
        spread = direct - believed
        scatter = np.einsum("mk,kmi,kmj,m->ij", probabilities, spread, spread, left)
        overlap = weighted.T @ believed
        scatter += (believed * variance[:, None]).T @ believed
        scatter -= overlap.T @ linalg.cho_solve(factor, overlap, check_finite=False)
        # subtracting what is explained may leave less than nothing
        values, vectors = np.linalg.eigh((scatter + scatter.T) / 2)
        scatter = (vectors * np.maximum(values, 1e-6 * max(values[-1], 0.0))) @ vectors.T
        noise = np.kron(scatter, moments.shape)
        noise[np.diag_indices(len(noise))] += max(rounding**2, 1e-300)
        self.root = linalg.cholesky(noise, lower=True, check_finite=False)

    def equations(self, direct: Array, public: Array) -> Equations:
        """From the update's columns: ``direct`` (H, J) and ``public`` (H, D)."""
        shift = self._gain.T @ (public.T - self._seen)
        features = self._direct[..., :, None] * (self._errors + shift)[..., None, :]
        features = features.reshape(*features.shape[:2], -1)  # (K, m, J H)
        residual = direct.T.ravel() - features[0].sum(axis=0)
        differences = np.moveaxis(features[1:] - features[0], 0, 1)
        return Equations(np.ascontiguousarray(differences), residual, self.root)


def pooled(rounds: Sequence[Equations], scales: Sequence[float]) -> Measurement:
    """The rounds as one measurement; each one's noise is ``scales`` times what it states.

    Through inner products, so that memory does not grow with the rounds. What lies outside the
    span of the differences is kept as spare rows.
    """
    unknowns = int(np.prod(rounds[0].differences.shape[:2]))
    gram, projections = np.zeros((unknowns, unknowns)), np.zeros(unknowns)
    square, rows = 0.0, 0
    for one, scale in zip(rounds, scales, strict=True):
        differences, residual = one.white()
        differences, residual = differences / scale, residual / scale
        gram += differences @ differences.T
        projections += differences @ residual
        square += float(residual @ residual)
        rows += residual.size
    candidates = rounds[0].differences.shape[1] + 1
    joint = from_gram(gram, projections, 1.0, candidates=candidates, floor=WEAK)
    spare = max(square - float(joint.total @ joint.total), 0.0)
    return replace(joint, spare_rows=rows - joint.rank, spare_chi2=spare)


def stacked(rounds: Sequence[Equations], scales: Sequence[float]) -> Measurement:
    """As :func:`pooled`, from the rows themselves: no digit is lost, memory grows with rounds."""
    white = [one.white() for one in rounds]
    people, free = rounds[0].differences.shape[:2]
    rows = np.concatenate([a / scale for (a, _), scale in zip(white, scales, strict=True)], axis=1)
    total = np.concatenate([b / scale for (_, b), scale in zip(white, scales, strict=True)])
    return from_differences(rows.reshape(people, free, -1), total, 1.0)
