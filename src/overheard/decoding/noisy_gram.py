"""Which records are in a sum, and how heavily? Expectation propagation from inner products.

A record's weight in the sum is one of a few numbers, 0 among them (a stranger's; members of a
smaller last batch weigh more than others). As in :mod:`overheard.decoding.noisy` the noise is
only roughly known: it is raised while the answer leaves more than was stated, and doubled while
sweeps do not come to rest. Features are never built: a sweep is one Cholesky factorisation of the
records' (n, n) inner products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.errors import FixData

Array = NDArray[np.float64]

_INFLATIONS = 8
_RESTLESS = 2.0  # factor on the noise's variance when sweeps do not settle
_ENOUGH = 1.2  # chi-square per equation that is let pass
_DAMPING, _SWEEPS = 0.5, 40
_PATIENCE = 15  # sweeps after which a small mean change suffices
_SETTLED = 1e-2  # largest change of a probability at which sweeps stop
_KNOWN = 1e-3  # what a weight that is as good as known may still add, in units of the noise
_SITE_FLOOR = 1e-2  # smallest precision of a site: moments may ask for less than none


@dataclass(frozen=True)
class Sums:
    """White inner products of what n records of weight one add to a sum.

    gram: (n, n); projections: (n,) with the sum heard; energy: the sum's own square; equations:
    how many numbers it has; usual: mean square that noise leaves in them, below one where the
    noise is stated for the records' directions and others are quieter.
    """

    gram: Array
    projections: Array
    energy: float
    equations: int
    usual: float = 1.0

    def left(self, weights: Array) -> float:
        """Square of what weights (n,) leave unexplained."""
        explained = float(weights @ (self.gram @ weights))
        return max(self.energy - 2 * float(self.projections @ weights) + explained, 0.0)


@dataclass(frozen=True)
class Sweeps:
    """probabilities (n, S) of each weight; variance: of the noise, in units of what was stated
    (one or more)."""

    probabilities: Array
    variance: float
    count: int
    settled: bool


def noisy_gram(sums: Sums, weights: Array, prior: Array) -> Sweeps:
    """Posterior of n records whose weight is one of ``weights`` (S,), with prior (n, S).

    ``settled`` is False when no noise level brought the sweeps to rest: the probabilities are then
    those of one linear solve at the largest noise tried. Cost per sweep n^3.
    """
    n = len(prior)
    if sums.gram.shape != (n, n) or sums.projections.shape != (n,):
        raise FixData(f"{n} records do not fit a Gram matrix {sums.gram.shape}")
    if prior.shape != (n, len(weights)):
        raise FixData(f"prior {prior.shape} for {n} records of {len(weights)} weights")
    variance, count = 1.0, 0
    for _ in range(_INFLATIONS):
        p, covered, used, settled = _sweep(sums, weights, prior, variance, _SWEEPS)
        count += used
        if settled:
            # what the mean leaves, and what undecided records could still explain
            shown = (sums.left(p @ weights) + covered) / max(sums.equations * sums.usual, 1e-300)
            if shown <= _ENOUGH * variance:
                return Sweeps(p, variance, count, True)
            variance = shown
        else:
            variance *= _RESTLESS
    p, _, used, _ = _sweep(sums, weights, prior, variance, 1)
    return Sweeps(p, variance, count + used, False)


def _sweep(
    sums: Sums, weights: Array, prior: Array, variance: float, most: int
) -> tuple[Array, float, int, bool]:
    """Probabilities after parallel updates of all sites; the square that undecided records could
    still explain; sweeps; and whether they settled."""
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior)
    p = prior
    # not less: a cavity is a difference of precisions, and digits are lost where they are large
    least = _KNOWN / np.maximum(np.diagonal(sums.gram) / variance, 1.0)
    mean, spread = _moments(p, weights, least)
    precision, shift = 1 / spread, mean / spread
    for count in range(1, most + 1):
        matrix = sums.gram / variance
        matrix[np.diag_indices(len(matrix))] += precision
        factor, failed = linalg.lapack.dpotrf(matrix, lower=1, overwrite_a=1)
        if failed:
            return p, 0.0, count, False
        centre, _ = linalg.lapack.dpotrs(factor, sums.projections / variance + shift, lower=1)
        inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        own = np.diagonal(inverse).copy()
        cavity = np.maximum(1 / own - precision, 0.0)
        pull = centre / own - shift
        logits = log_prior + pull[:, None] * weights - 0.5 * cavity[:, None] * weights**2
        new = np.exp(logits - logits.max(axis=1, keepdims=True))
        new /= new.sum(axis=1, keepdims=True)
        change, p = np.abs(new - p), new
        # a handful of records that swing for ever do not matter to the others
        if change.max() < _SETTLED or (count >= _PATIENCE and change.mean() < _SETTLED / 20):
            # dpotri fills the lower triangle only
            covered = 2 * float(np.sum(np.tril(inverse, -1) * sums.gram))
            return p, covered + float(own @ np.diagonal(sums.gram)), count, True
        mean, spread = _moments(p, weights, least)
        site = np.maximum(1 / spread - cavity, _SITE_FLOOR)
        precision = (1 - _DAMPING) * precision + _DAMPING * site
        shift = (1 - _DAMPING) * shift + _DAMPING * ((cavity + site) * mean - pull)
    return p, 0.0, most, False


def _moments(probabilities: Array, weights: Array, least: Array) -> tuple[Array, Array]:
    """Mean and variance, ``least`` or more, of each record's weight."""
    mean = probabilities @ weights
    apart = (weights - mean[:, None]) ** 2
    return mean, np.maximum(np.einsum("ns,ns->n", probabilities, apart), least)
