"""Which labels did the client have, given its inputs and its gradients?

For squared error the gradient is linear in the labels outright, however non-linear the network
(decoders.md section 1): with r_i = f_i - y_i and J_i the gradient of the output f_i,

    (m / 2) g = sum_i r_i J_i + noise.

Several gradients (other models, same records) stack: y_i = f_i(round) - r_i(round), so that every
round measures the same unknown u_i = r_i of the first round. The noise is known (rounding on the
wire); rows are whitened by it and reduced by QR, never through normal equations. Where the rows
disagree by more than it, the noise is taken to be as large as they disagree.

Records with equal inputs have equal J: only their sum can be seen. Whatever the rows do not
resolve is shrunk to the prior u ~ N(0, tau^2), tau by moments from the measurement itself, and its
uncertainty is reported: a label is **identified** if its posterior standard deviation is below a
tenth of tau.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.errors import FixData

Array = NDArray[np.float64]

IDENTIFIED = 0.1
"""A residual is identified if this share of its prior standard deviation is left, or less."""
_RESOLVED = 1e-12  # of the largest eigenvalue: what float64 tells from zero


@dataclass(frozen=True)
class Residuals:
    """Posterior of the residuals: mean and standard deviation of each, prior scale tau.

    ``rank`` counts the directions that stand above the noise; ``misfit`` is the mean square of
    what no residuals can explain, in units of the noise: near one if the noise is as stated.
    """

    values: Array
    sd: Array
    tau: float
    rank: int
    misfit: float

    @property
    def identified(self) -> NDArray[np.bool_]:
        return self.sd <= IDENTIFIED * self.tau


def solve_residuals(blocks: Iterable[tuple[Array, Array, Array]], records: int) -> Residuals:
    """Residuals from blocks of rows ``(features (k, m), totals (k,), noise sd (k,))``.

    Each block says totals = features @ residuals + noise. Blocks are folded into a triangle of
    m + 1 columns one at a time, so memory does not grow with the number of rows.
    """
    triangle = np.zeros((0, records + 1))
    rows = 0
    for features, totals, noise in blocks:
        if features.shape != (len(totals), records) or noise.shape != totals.shape:
            raise FixData(
                f"features {features.shape}, totals {totals.shape} and noise {noise.shape} do not "
                f"belong together ({records} records)"
            )
        if (
            not (noise > 0).all()
            or not np.isfinite(features).all()
            or not np.isfinite(totals).all()
        ):
            raise FixData("rows must be finite and their noise positive")
        white = np.column_stack([features, totals]) / noise[:, None]
        triangle = linalg.qr(np.vstack([triangle, white]), mode="r")[0][: records + 1]
        rows += len(totals)
    if rows == 0:
        raise FixData("no rows were given: there is nothing to solve")
    matrix, total = triangle[:, :records], triangle[:, records]
    left, strengths, right = linalg.svd(matrix, full_matrices=False)
    seen = left.T @ total
    spare = rows - int((strengths > _RESOLVED * strengths.max(initial=0.0)).sum())
    misfit = max(float(total @ total - seen @ seen), 0.0) / spare if spare > 0 else 0.0
    louder = max(1.0, misfit)  # more noise than stated: believe the rows, not the statement
    strengths, seen = strengths / np.sqrt(louder), seen / np.sqrt(louder)
    energy = float(strengths @ strengths)
    tau2 = max(float(seen @ seen) - len(seen), 0.0) / energy if energy > 0 else 0.0
    shrink = 1 + tau2 * strengths**2
    unresolved = np.maximum(1 - (right**2).sum(axis=0), 0)
    return Residuals(
        values=right.T @ (tau2 * strengths / shrink * seen),
        sd=np.sqrt(tau2 * ((right**2).T @ (1 / shrink) + unresolved)),
        tau=float(np.sqrt(tau2)),
        rank=int((shrink > 2).sum()),
        misfit=misfit,
    )
