"""How loud is chance in a layer's update, direction by direction?

A layer's update is a matrix U = sum_i e_i x_i': errors times inputs. What chance (the order of the
batches) does to it happens in the errors, so the noise sum_i n_i x_i' has a covariance close to a
product,

    Cov(U[h, d], U[k, e]) = rows[h, k] columns[d, e],

which whitens factors as well as matrices: inner products of white gradients are still
``(e~_i . e~_j)(x~_i . x~_j)``, and no gradient is ever built. Both covariances are estimated from
what replays of the client's recipe leave unexplained, since a replay's records are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.errors import FixData

Array = NDArray[np.float64]

_TURNS = 3  # estimates of rows given columns, then of columns given rows
_ROW_SHRINK = 0.1  # share of the rows' covariance that is spread evenly
_EVEN = 1e-3  # the same of the columns' target: directions that the inputs never take are quiet
_LEAST = 1e-12  # smallest standard deviation, relative to the largest: matrices must have roots


@dataclass(frozen=True)
class MatrixNoise:
    """Lower Cholesky factors of the covariance over rows (H, H) and over columns (D, D)."""

    rows: Array
    columns: Array

    def white(self, block: Array) -> Array:
        """A matrix (H, D) in units of the noise."""
        half = linalg.solve_triangular(self.rows, block, lower=True, check_finite=False)
        whole = linalg.solve_triangular(self.columns, half.T, lower=True, check_finite=False)
        return np.asarray(whole.T)

    def white_factors(self, errors: Array, inputs: Array) -> tuple[Array, Array]:
        """The factors (..., n, H) and (..., n, D) of n gradients in units of the noise."""
        return _solve(self.rows, errors), _solve(self.columns, inputs)

    def chi2(self, block: Array) -> float:
        """Mean square of a matrix in units of the noise: about one if it is noise."""
        return float(np.mean(self.white(block) ** 2))

    def louder(self, factor: float) -> MatrixNoise:
        """The same noise with ``factor`` times the standard deviation."""
        return MatrixNoise(self.rows, self.columns * factor)


def _solve(root: Array, vectors: Array) -> Array:
    """Vectors (..., D) whitened, as rows."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    solved = linalg.solve_triangular(root, flat.T, lower=True, check_finite=False)
    return np.ascontiguousarray(solved.T).reshape(vectors.shape)


def matrix_noise(residuals: Array, inputs: Array, rounding: float) -> MatrixNoise:
    """The noise of which ``residuals`` (R, H, D) are draws.

    inputs: (D, D) second moments of the layer's inputs, the shape that the columns' covariance is
    shrunk towards, the more the fewer residuals there are; columns that are louder than this
    shape says are believed. rounding: standard deviation of each entry's own rounding error.
    """
    if residuals.ndim != 3 or not np.isfinite(residuals).all():
        raise FixData(f"residuals {residuals.shape}: give finite matrices, one per replay")
    draws, height, width = residuals.shape
    target = inputs * (width / max(float(np.trace(inputs)), 1e-300))
    target = (1 - _EVEN) * target + _EVEN * np.eye(width)
    columns = target
    floor = max(rounding**2, 1e-300)
    rows = np.eye(height)
    for _ in range(_TURNS):
        quiet = linalg.solve(columns, residuals.reshape(-1, width).T, assume_a="pos").T
        rows = np.einsum("rhd,rkd->hk", residuals, quiet.reshape(residuals.shape))
        rows = _even(rows, _ROW_SHRINK)
        flat = np.concatenate([linalg.solve(rows, x, assume_a="pos") for x in residuals])
        seen = residuals.reshape(-1, width).T @ flat / (draws * height)
        expected = target * (float(np.sum(linalg.inv(target) * seen)) / width)
        louder = np.maximum(np.diagonal(seen) - np.diagonal(expected), 0.0)
        expected[np.diag_indices(width)] += louder
        columns = (draws * height * seen + width * expected) / (draws * height + width)
        columns = (columns + columns.T) / 2
        columns[np.diag_indices(width)] += max(floor, _LEAST**2 * float(columns.max()))
    return MatrixNoise(
        linalg.cholesky(rows, lower=True, check_finite=False),
        linalg.cholesky(columns, lower=True, check_finite=False),
    )


def _even(covariance: Array, share: float) -> Array:
    """Shrunk towards the identity, mean variance one."""
    width = len(covariance)
    size = float(np.trace(covariance)) / width
    if size <= 0:
        return np.eye(width)
    mixed = (1 - share) * (covariance + covariance.T) / (2 * size)
    mixed[np.diag_indices(width)] += share
    return mixed
