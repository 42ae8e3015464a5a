"""What a round says of every record, in units of its noise.

The noise's covariance is part the columns of the order (`programs.response`), part what simulated
clients show; directions that say nothing are left out, so that nothing is as large as the square
of the number of records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.measurement import FLOOR
from overheard.programs.response import FEWEST_EQUATIONS, Linearised, weights

Array = NDArray[np.float64]

_PARTS = (0.1, 0.3, 0.6, 0.9)  # of the noise's covariance that simulated clients may give
_SINGLE = 1e-6  # what single precision leaves of a sum of squares, relative to the largest
_SWEEP = 4e9  # operations of one sweep over all records, of which a decoder takes tens


@dataclass(frozen=True)
class Whitened:
    """Rounds' columns in units of their noise, turned so that they are orthogonal, the strongest
    first to be kept.

    rows: (n c, r); heard: (r,), the returned model less the simulated clients' mean;
    simulated: (S, r), each simulated client; energies for the fit (of what was left out, too);
    counted: equations that say how many records a slot takes.
    """

    rows: Array
    heard: Array
    simulated: Array
    energy: float
    energies: Array
    counted: int

    def __add__(self, other: Whitened) -> Whitened:
        """Rounds stack, as their noises are independent."""
        targets = [np.vstack([one.heard, one.simulated]) for one in (self, other)]
        rows, turned = _strongest(np.hstack([self.rows, other.rows]), np.hstack(targets))
        energies = self.energies + other.energies
        energy = self.energy + other.energy
        return Whitened(rows, turned[0], turned[1:], energy, energies, self.counted)


def _strongest(rows: Array, targets: Array) -> tuple[Array, Array]:
    """Rows (N, R) and targets (T, R) along the directions in which the rows are largest."""
    if rows.shape[1] > rows.shape[0]:
        return _rooted(rows @ rows.T, rows @ targets.T)
    values, axes = linalg.eigh(rows.T @ rows, driver="evd", check_finite=False)
    axes = axes[:, _kept(values, len(rows))]
    return rows @ axes, targets @ axes


def _rooted(gram: Array, cross: Array) -> tuple[Array, Array]:
    """The same of inner products (N, N), and of those with targets (N, T)."""
    values, axes = linalg.eigh(gram, driver="evd", check_finite=False)
    kept = _kept(values, len(gram))
    root = np.sqrt(values[kept])
    return axes[:, kept] * root, cross.T @ axes[:, kept] / root


def _kept(values: Array, unknowns: int) -> slice:
    """Of ascending squares: above the floor, and no more than sweeps can afford."""
    most = int((_SWEEP / max(unknowns, 1)) ** 0.5)
    return slice(max(int(np.searchsorted(values, FLOOR**2)), len(values) - most), None)


def whiten(one: Linearised, fitted: int) -> Whitened:
    """Under the covariance of the noise: part what the order's columns say, part what the first
    ``fitted`` simulated clients show, in the proportion that suits the others best, judged on as
    many coordinates as are enough for that. The first give the centre of the others, all of them
    that of the model heard."""
    centre, early = one.left.mean(axis=0), one.left[:fitted].mean(axis=0)
    told = np.asarray(weights(one.points, one.chosen) @ one.columns, dtype=np.float64)
    targets = np.vstack([one.heard - centre, told + one.left - early])
    shown = (one.left[:fitted] - early) / np.sqrt(max(fitted - 1, 1))
    some = slice(None, None, max(1, len(centre) // FEWEST_EQUATIONS))
    held = (one.left[fitted:] - early)[:, some]
    likely = [_Covariance(one, shown, part, some).likelihood(held) for part in _PARTS]
    best = _Covariance(one, shown, _PARTS[int(np.argmax(likely))], slice(None))
    rows, turned, square = best.whitened(one, targets)
    return Whitened(rows, turned[0], turned[1:], float(square[0]), square[1:], len(one.sizes))


class _Covariance:
    """``columns' columns + sd^2`` on some coordinates: part from simulated clients, the rest from
    the order's model. Fewer columns than coordinates are inverted by Woodbury's identity."""

    def __init__(self, one: Linearised, shown: Array, part: float, some: slice) -> None:
        self.sd = np.sqrt((1 - part) * one.variance + part * one.floor)[some]
        kinds = (np.sqrt(1 - part), one.order), (np.sqrt(part), shown)
        self.order = np.vstack(
            [(size * kind[:, some] / self.sd).astype(np.float32) for size, kind in kinds]
        )
        self.few = len(self.order) < len(self.sd)
        rows = self.order if self.few else self.order.T.astype(np.float64)
        inner = (rows @ rows.T).astype(np.float64)
        inner[np.diag_indices(len(inner))] += 1.0 + _SINGLE * float(np.diagonal(inner).max())
        self.factor = linalg.cholesky(inner, lower=True, overwrite_a=True, check_finite=False)

    def _half(self, white: Array) -> Array:
        """Whitened rows; of few columns rows whose products are what these take away."""
        seen = self.order @ white.T if self.few else white.T
        return np.asarray(
            linalg.solve_triangular(self.factor, seen, lower=True, check_finite=False).T
        )

    def _squares(self, white: Array) -> Array:
        half = np.einsum("sr,sr->s", (made := self._half(white)), made)
        return np.asarray(np.einsum("sr,sr->s", white, white) - half if self.few else half)

    def likelihood(self, noises: Array) -> float:
        """Log-likelihood of draws (S, R), up to a constant, at the size that suits them."""
        square = float(self._squares(noises / self.sd).sum()) / max(len(noises), 1)
        volume = float(np.log(np.diagonal(self.factor)).sum() + np.log(self.sd).sum())
        return -volume - 0.5 * len(self.sd) * float(np.log(max(square / len(self.sd), 1e-12)))

    def whitened(self, one: Linearised, targets: Array) -> tuple[Array, Array, Array]:
        """Columns and targets in units of the noise, with what is known of the slots' sizes, along
        the directions that count; and the targets' squares."""
        white, targets = one.columns / self.sd, targets / self.sd
        squares = self._squares(targets) + one.sizes @ one.sizes
        halves = self._half(white), self._half(targets)
        if not self.few:
            sizes = np.tile(one.sizes, (len(targets), 1))
            rows = np.hstack([halves[0], one.counts.T]), np.hstack([halves[1], sizes])
            return *_strongest(*rows), squares
        gram = white @ white.T - halves[0] @ halves[0].T + one.counts.T @ one.counts
        gram[np.diag_indices(len(gram))] *= 1 + _SINGLE
        cross = white @ targets.T - halves[0] @ halves[1].T
        return *_rooted(gram, cross + (one.counts.T @ one.sizes)[:, None]), squares
