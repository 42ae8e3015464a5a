"""What does a linearisation miss? Its covariance, as simulated clients show it.

A few dozen simulated clients do not show the covariance of thousands of coordinates. Their sample
correlation is shrunk towards none, ``own I + (1 - own) S`` (Ledoit and Wolf 2004 with a weight that
is given), so that it has an inverse: low rank plus a diagonal, which whitens in O(rank) a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Noise:
    """Standard deviations (R,), directions (r, R) that coordinates have in common, and by how much
    of itself each is taken back."""

    sd: Array
    basis: Array
    shrinkage: Array

    def white(self, rows: Array) -> Array:
        """Rows (..., R) in units of the noise, up to one factor for all; of the precision of the
        standard deviations."""
        made = np.asarray(rows / self.sd, dtype=self.sd.dtype)
        return np.asarray(made - ((made @ self.basis.T) * self.shrinkage) @ self.basis)


def covariance(missed: Array, sd: Array, own: float, dtype: Any = np.float64) -> Noise:
    """From what was missed of simulated clients (S, R), divided by the root of how many there are;
    ``own``: how much of the correlation is taken as none."""
    _, size, basis = np.linalg.svd(missed / sd * np.sqrt(1 - own), full_matrices=False)
    shrinkage = 1 - np.sqrt(own / (own + size**2))
    return Noise(sd.astype(dtype), basis.astype(dtype), shrinkage.astype(dtype))
