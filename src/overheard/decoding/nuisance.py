"""Decode what a message tells of some numbers beside much else that it holds.

A client's message is a sum of its records' gradients. Where a record is known only in part, its
gradient is a mean that depends on the secret and a deviation that nobody asked about; a record that
is not known at all is deviation only. Deviations are added up over many records, so they are noise
with a known covariance, and what is asked about is filtered out of it by generalised least squares
(decoders.md section 5).

The covariance is that of sampled deviations, mixed with a form that has every direction. It has
more dimensions than there are samples, so the filter is not the best there is, and what it claims
of its own errors is not to be believed. It is fixed, though, once it is made: what it lets through
of *other* sampled deviations is the covariance of its errors, in as few dimensions as there are
unknowns, where samples suffice. Simulated clients, made of yet others, say how far the answer is
to be believed.

Everything is a sum of imagined records: `Sums` are sparse matrices over their gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

Array = NDArray[np.float64]
Block = tuple[Array, Array, Array]
"""Gradients (N, b) of the imagined records and the message (b,), both divided by the standard
deviation of a part of the noise that has every direction; and rounding's share of that (b,)."""
_RESOLVED = 1e-10  # of the largest eigenvalue: what is below is rounding of float64 products


@dataclass(frozen=True)
class Sums:
    """Sums of imagined records, a row each.

    differences: (n, N), what an unknown adds; expected: (1, N), the message if all unknowns are 0;
    suppressed: deviations (b, N) that the filter is made from; heldout: others (h, N) that judge
    it, none if there are no others; clients: (s, N), simulated messages.
    """

    differences: Any
    expected: Any
    suppressed: Any
    heldout: Any
    clients: Any


@dataclass(frozen=True)
class Filtered:
    """What the filter made of the differences (n, r), of the message and the simulated ones
    (1 + s, r), and the covariance (r, r) of its errors, None if nothing judged it."""

    products: Array
    projections: Array
    noise: Array | None


def filtered(blocks: Iterable[Block], sums: Sums, sampled: float) -> Filtered:
    """The differences under the inverse of the covariance ``sampled S + I``, S that of what is
    suppressed, and everything else under the same filter."""
    n, b = sums.differences.shape[0], sums.suppressed.shape[0]
    h = sums.heldout.shape[0]
    repeated = sparse.csr_matrix(np.ones((sums.clients.shape[0], 1))) @ sums.expected
    parts = (sums.differences, np.sqrt(sampled) * sums.suppressed, sums.heldout)
    every = sparse.vstack([*parts, -sums.expected, sums.clients - repeated]).tocsr()
    heard = n + b + h  # the row of the message
    inner = np.zeros((n + b, every.shape[0]))
    rounding = length = 0.0
    for rows, message, share in blocks:
        made = np.asarray(every @ rows)
        made[heard] += message
        inner += made[: n + b] @ made.T
        rounding += float((made[:n] ** 2 @ share).sum())
        length += float((made[:n] ** 2).sum())
    # A = D - D B' (I + B B')^-1 B
    low = inner[n:, n : n + b] + np.eye(b)
    weights = linalg.cho_solve(linalg.cho_factor(low, lower=True), inner[n:, :n]).T
    through = inner[:n] - weights @ inner[n:]
    products = (through[:, :n] + through[:, :n].T) / 2
    if not h:
        return Filtered(products, through[:, heard:].T, None)
    left = through[:, n + b : heard]
    # what is as large in every direction: the filter's own length, of which a part is rounding
    own = products - through[:, n : n + b] @ weights.T
    # records that look alike are told apart by rounding of these products only
    sizes, basis = linalg.eigh(products)
    kept = sizes > _RESOLVED * sizes[-1]
    white = basis[:, kept] / np.sqrt(sizes[kept])
    noise = _shrunk(left.T @ white)
    noise += rounding / max(length, 1e-300) * (white.T @ (own + own.T) @ white) / 2
    return Filtered(products @ white, through[:, heard:].T @ white, noise)


def _shrunk(deviations: Array) -> Array:
    """The covariance of a sum of h independent deviations (h, r), where r is not much less than h:
    between the sample's and what the filter expects, as Ledoit and Wolf (2004) do."""
    from sklearn.covariance import ledoit_wolf

    made, _ = ledoit_wolf(deviations * np.sqrt(len(deviations)), assume_centered=True)
    return np.asarray(made)
