"""Which labels did the client have, given its inputs and its gradients?

For squared error the gradient is linear in the labels outright, however non-linear the network
(decoders.md section 1): with r_i = f_i - y_i and J_i the gradient of the output f_i,

    (m / 2) g = sum_i r_i J_i + noise.

Several gradients (other models, same records) stack: y_i = f_i(round) - r_i(round), so that every
round measures the same unknown u_i = r_i of the first round. The noise is known (rounding of the
message); rows are whitened by it and decomposed as they are, never through normal equations. Where
the rows disagree by more than it, the noise is taken to be as large as they disagree.

Records with equal inputs have equal J: only their sum can be seen. Whatever the rows do not
resolve is shrunk to the prior u ~ N(0, tau^2), tau by moments from the measurement itself
(empirical Bayes; MacKay 1992), and its uncertainty is reported: a label is **identified** if its
posterior standard deviation is a small share of tau (`LabelOptions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]
RESOLVED = 1e-12
"""Of the largest singular value: what float64 tells from zero."""


@dataclass(frozen=True)
class LabelOptions:
    """identified: a residual is, if at most this share of its prior standard deviation remains."""

    identified: float = 0.1


@dataclass(frozen=True)
class Residuals:
    """Posterior of the residuals: mean and standard deviation of each, prior scale tau;
    ``identified`` (m,) says which are; ``misfit`` is the reduced chi-square of what no residuals
    explain, near one if the noise is as stated."""

    values: Array
    sd: Array
    tau: float
    identified: NDArray[np.bool_]
    misfit: float


def solve_residuals(
    features: Array, totals: Array, noise: Array, options: LabelOptions | None = None
) -> Residuals:
    """Residuals (m,) from rows that say totals (k,) = features (k, m) @ residuals + noise, whose
    standard deviation (k,) is given."""
    left, strengths, right = linalg.svd(features / noise[:, None], full_matrices=False)
    total = totals / noise
    seen = left.T @ total
    spare = len(totals) - int((strengths > RESOLVED * strengths.max(initial=0.0)).sum())
    misfit = max(float(total @ total - seen @ seen), 0.0) / spare if spare > 0 else 0.0
    louder = max(1.0, misfit)  # more noise than stated: believe the rows, not the statement
    strengths, seen = strengths / np.sqrt(louder), seen / np.sqrt(louder)
    energy = float(strengths @ strengths)
    tau2 = max(float(seen @ seen) - len(seen), 0.0) / energy if energy > 0 else 0.0
    shrink = 1 + tau2 * strengths**2
    unresolved = np.maximum(1 - (right**2).sum(axis=0), 0)
    sd = np.sqrt(tau2 * ((right**2).T @ (1 / shrink) + unresolved))
    return Residuals(
        values=right.T @ (tau2 * strengths / shrink * seen),
        sd=sd,
        tau=float(np.sqrt(tau2)),
        identified=sd <= (options or LabelOptions()).identified * np.sqrt(tau2),
        misfit=misfit,
    )
