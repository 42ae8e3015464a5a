"""By which factor was the whole sum scaled before it was sent?

A clipped update is the sum of the records' gradients times an unknown ``alpha`` (decoders.md
section 3.2). With B the sum under candidate 0, differences F and indicators z, the message is

    t = alpha (B + F z) + noise.

Directions in which no record's candidates differ hold ``alpha B`` and noise alone, so they give
alpha by regression; in the others z acts as noise with the prior's covariance. Both together are a
Gaussian likelihood of one number, maximised here (`likeliest_scale`). Once the records are decoded,
`refit` replaces the prior by what is believed of them:

    alpha = <t, m> / (|m|^2 + sum_i tr(Cov_i G_ii)),      m = B + F p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from overheard.decoding.limits import SPARE
from overheard.decoding.max_entropy import check_prior
from overheard.decoding.measurement import GRAM_CONDITION

Array = NDArray[np.float64]

SMALLEST, LARGEST = 1e-6, 1e3
"""Scales that are looked for."""

_GRID = 181  # starting points, evenly spread over the orders of magnitude


@dataclass(frozen=True)
class ScaledSum:
    """Inner products of one message, all whitened by its stated noise.

    gram: (n, n) of the n = m (K - 1) differences F, record-major; with_message, with_base: (n,),
    their products with the message t and with B; message, both, base: <t, t>, <t, B>, <B, B>;
    equations: numbers in the message.
    """

    gram: Array
    with_message: Array
    with_base: Array
    message: float
    both: float
    base: float
    equations: int
    candidates: int


@dataclass(frozen=True)
class Scale:
    """``value``: the likeliest alpha. ``gain``: twice the log-likelihood ratio to alpha = 1, large
    where the sum was certainly scaled. ``noise``: variance of the noise at ``value``, in units of
    the stated one (1 or more), and ``noise_unscaled`` at alpha = 1."""

    value: float
    gain: float
    noise: float
    noise_unscaled: float


def likeliest_scale(heard: ScaledSum, prior: object = None, most: float = LARGEST) -> Scale:
    """The likeliest alpha in (0, most] under the prior's Gaussian. Cost: one (n, n) eigh."""
    rows = _in_eigenvectors(heard, prior)
    logs = np.linspace(np.log(SMALLEST), np.log(most), _GRID)
    costs = [rows.cost(float(np.exp(x)))[0] for x in logs]
    at = int(np.argmin(costs))
    low, high = logs[max(at - 1, 0)], logs[min(at + 1, _GRID - 1)]
    found = optimize.minimize_scalar(
        lambda x: rows.cost(float(np.exp(x)))[0],
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-10},
    )
    best = float(np.exp(found.x)) if found.fun <= costs[at] else float(np.exp(logs[at]))
    best = min(rows.regressed(best), most)
    cost, noise = rows.cost(best)
    unscaled, noise_unscaled = rows.cost(1.0)
    return Scale(best, unscaled - cost, noise, noise_unscaled)


def refit(heard: ScaledSum, probabilities: Array, most: float = LARGEST) -> float:
    """The alpha that what is believed of the records gives (see the module's docstring)."""
    p = probabilities[:, 1:].ravel()
    message = heard.both + p @ heard.with_message
    free = heard.candidates - 1
    square = heard.base + 2 * p @ heard.with_base + p @ (heard.gram @ p)
    own = np.einsum("iaib->iab", heard.gram.reshape(-1, free, len(p) // free, free))
    q = p.reshape(-1, free)
    spread = np.einsum("iaa,ia->", own, q) - np.einsum("iab,ia,ib->", own, q, q)
    return float(np.clip(message / (square + spread), SMALLEST, most))


@dataclass(frozen=True)
class _Rows:
    """Message and mean in the eigenvectors of ``F V F'``, and what lies outside of them."""

    variances: Array
    message: Array
    mean: Array
    spare: int
    message2: float
    cross: float
    mean2: float

    def left(self, alpha: float) -> float:
        """What ``alpha`` leaves unexplained outside the differences' span."""
        return max(self.message2 - 2 * alpha * self.cross + alpha**2 * self.mean2, 0.0)

    def noise(self, alpha: float) -> float:
        if self.spare < SPARE:
            return 1.0
        return max(self.left(alpha) / self.spare, 1.0)

    def cost(self, alpha: float) -> tuple[float, float]:
        """Minus twice the log-likelihood, and the noise variance that it assumes."""
        noise = self.noise(alpha)
        total = noise + alpha**2 * self.variances
        miss = self.message - alpha * self.mean
        inside = float((miss**2 / total + np.log(total)).sum())
        return inside + self.left(alpha) / noise + self.spare * float(np.log(noise)), noise

    def regressed(self, alpha: float) -> float:
        """Generalised least squares from ``alpha`` on, where spare rows pin it down: sharper than
        a search on a likelihood that is a difference of large sums."""
        if self.spare < SPARE:
            return alpha
        for _ in range(3):
            noise = self.noise(alpha)
            weights = 1 / (noise + alpha**2 * self.variances)
            cross = weights @ (self.message * self.mean) + self.cross / noise
            square = weights @ self.mean**2 + self.mean2 / noise
            if not (square > 0 and cross > 0):
                return alpha
            alpha = float(cross / square)
        return alpha


def _in_eigenvectors(heard: ScaledSum, prior: object) -> _Rows:
    free = heard.candidates - 1
    n = len(heard.with_message)
    shares = check_prior(prior, n // free, heard.candidates)
    p = shares[:, 1:]
    covariance = -p[:, :, None] * p[:, None, :]
    covariance[:, np.arange(free), np.arange(free)] += p
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]

    def turned(rows: Array) -> Array:
        """R' rows for the block-diagonal root R."""
        blocks = rows.reshape(n // free, free, -1)
        return np.asarray((np.swapaxes(root, 1, 2) @ blocks).reshape(n, -1))

    mean = p.ravel()
    with_mean = heard.with_base + heard.gram @ mean
    inner = turned(turned(heard.gram).T)
    eigenvalues, basis = linalg.eigh((inner + inner.T) / 2)
    keep = eigenvalues > max(float(eigenvalues[-1]), 0.0) / GRAM_CONDITION
    eigenvalues, basis = eigenvalues[keep], basis[:, keep]
    scale = np.sqrt(eigenvalues)
    message = (basis.T @ turned(heard.with_message)[:, 0]) / scale
    centre = (basis.T @ turned(with_mean)[:, 0]) / scale
    cross = heard.both + float(mean @ heard.with_message)
    square = heard.base + float(mean @ (heard.with_base + with_mean))
    return _Rows(
        eigenvalues,
        message,
        centre,
        max(heard.equations - len(eigenvalues), 0),
        heard.message - float(message @ message),
        cross - float(message @ centre),
        square - float(centre @ centre),
    )
