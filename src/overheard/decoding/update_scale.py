"""By which factor was the whole sum scaled before it was sent?

A clipped update is the sum of the records' gradients times an unknown ``alpha`` (decoders.md
section 3.2). With B the sum under candidate 0, differences F and indicators z, the message is

    t = alpha (B + F z) + noise.

Directions in which no record's candidates differ hold ``alpha B`` and noise alone: least squares
there gives alpha and the noise (`regressed`). Where there are none the length of the message
beside the one that is expected does (`by_length`). Once the records are decoded, alpha follows from
what is believed of them (`refit`):

    alpha = <t, m> / (|m|^2 + sum_i tr(Cov_i G_ii)),      m = B + F p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.limits import SPARE
from overheard.decoding.measurement import GRAM_CONDITION

Array = NDArray[np.float64]


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
    """``value``: alpha by least squares, and its standard error ``sd``. ``noise``: variance of what
    it leaves, in units of the stated one (1 or more), and ``noise_unscaled`` at alpha = 1."""

    value: float
    sd: float
    noise: float
    noise_unscaled: float


def regressed(heard: ScaledSum) -> Scale | None:
    """Alpha from the directions outside of the differences' span; None where they are too few.
    Cost: one (n, n) eigh."""
    values, vectors = linalg.eigh(heard.gram)
    keep = values > max(float(values[-1]), 0.0) / GRAM_CONDITION
    spare = heard.equations - int(keep.sum())
    if spare < SPARE:
        return None
    basis = vectors[:, keep] / np.sqrt(values[keep])
    message, base = basis.T @ heard.with_message, basis.T @ heard.with_base
    square = max(heard.base - float(base @ base), 0.0)
    both = heard.both - float(message @ base)
    alpha = both / square if square > 0 else 1.0

    def noise(at: float) -> float:
        left = heard.message - float(message @ message) - 2 * at * both + at**2 * square
        return max(left / spare, 1.0)

    sd = float(np.sqrt(noise(alpha) / square)) if square > 0 else np.inf
    return Scale(alpha, sd, noise(alpha), noise(1.0))


def by_length(heard: ScaledSum, probabilities: Array) -> float:
    """The alpha with which the message would be as long as it is."""
    return float(np.sqrt(heard.message / _expected_square(heard, probabilities)))


def refit(heard: ScaledSum, probabilities: Array) -> float:
    """The alpha that what is believed of the records gives (see the module's docstring)."""
    message = heard.both + probabilities[:, 1:].ravel() @ heard.with_message
    return float(message / _expected_square(heard, probabilities))


def _expected_square(heard: ScaledSum, probabilities: Array) -> float:
    """Of the length of B + F z."""
    p, free = probabilities[:, 1:].ravel(), heard.candidates - 1
    square = heard.base + 2 * p @ heard.with_base + p @ (heard.gram @ p)
    own = np.einsum("iaib->iab", heard.gram.reshape(-1, free, len(p) // free, free))
    q = p.reshape(-1, free)
    spread = np.einsum("iaa,ia->", own, q) - np.einsum("iab,ia,ib->", own, q, q)
    return float(square + spread)
