"""The covariance of what a message holds beside the answer, from samples of it.

There are more coordinates than samples, so that a sampled covariance has no inverse, and its
variances are not to be believed: those of the directions that the samples fill are too large, all
others nothing. Two ways out, by what the samples are.

**What a linearisation misses** of a few dozen simulated clients: their sample correlation is shrunk
towards none, ``own I + (1 - own) S`` (Ledoit and Wolf 2004 with a weight that is given). That is
low rank plus a diagonal, which whitens in O(rank) a row (`whitening`).

**Records that are known only in part** (`whitened`). A client's message is a sum of its records'
gradients. Where a record is known only in part, its gradient is a mean that depends on what it may
be and a deviation that nobody asked about; a record that is not known at all is deviation only.
Deviations are added up over many records, so they are noise, and what is asked about is measured
against it in the directions of its covariance. Once the directions are fixed, *other* samples tell
the variance in each of them (Lam 2016, The Annals of Statistics 44: nonparametric
eigenvalue-regularised covariances). Simulated clients, made of yet others, say how far the answer
is to be believed. Everything is a sum of imagined records' gradients (`Sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.floating[Any]]
Block = tuple[Array, Array, Array]
"""Gradients (N, b) of the imagined records and the message (b,), both divided by the standard
deviation of a part of the noise that has every direction; and rounding's share of that (b,)."""
_RESOLVED = 1e-10  # of all squares: what is below is rounding of float64 products


def whitening(
    missed: Array, sd: Array, own: float, dtype: Any = np.float64
) -> Callable[[Any], Any]:
    """Rows (..., R) in units of the noise, up to one factor for all.

    From what was missed of simulated clients (S, R), divided by the root of how many there are;
    ``own``: how much of the correlation is taken as none. With Z the samples and L the Cholesky
    factor of ``own I + Z Z'`` a root of the inverse is ``I - Z' L^-T (L + sqrt(own) I)^-1 Z``
    (Andrews 1968): two triangular solves.
    """
    samples = (missed / sd * np.sqrt(1 - own)).astype(dtype)
    if len(samples) > len(sd):
        samples = np.linalg.qr(samples, mode="r")  # as few that have the same products
    alone = np.eye(len(samples), dtype=dtype)
    lower = linalg.cholesky(samples @ samples.T + own * alone, lower=True, check_finite=False)
    solve = partial(linalg.solve_triangular, lower=True, check_finite=False)

    def white(rows: Any) -> Any:
        made = (rows / sd).astype(dtype)
        seen = solve(lower, (made @ samples.T).reshape(-1, len(alone)).T)
        taken = solve(lower + np.sqrt(own) * alone, seen, trans="T").T @ samples
        return made - taken.reshape(made.shape)

    return white


class Sums(NamedTuple):
    """Sums of imagined records' gradients, a row each.

    differences: (n, b), what a candidate adds beyond its record's first; expected: (b,), the
    message if all are their first; suppressed: deviations that directions are made from; heldout:
    others that judge them; clients: (s, b), simulated messages.
    """

    differences: Array
    expected: Array
    suppressed: Array
    heldout: Array
    clients: Array


def whitened(blocks: Iterable[Block], sums: Callable[[Any], Sums]) -> tuple[Any, Any]:
    """The differences (n, r), and the message and simulated ones less what is expected (1 + s, r),
    in directions in which the noise is one; ``sums`` of the blocks' gradients."""
    inner, rounding = np.zeros(()), np.zeros(())
    for rows, message, share in blocks:
        part = sums(rows)
        # where rows of differences, of what is open, and of other samples end
        n, b, observed = np.cumsum([*map(len, (part.differences, part.suppressed, part.heldout))])
        messages = np.concatenate([message[None], part.clients]) - part.expected
        own = np.concatenate([part.differences, part.suppressed])
        other, rounded = np.concatenate([part.heldout, messages]), own * np.sqrt(share)
        inner = inner + np.hstack([own @ own.T, own @ other.T])
        rounding = rounding + rounded @ rounded.T
    # records that look alike are told apart by rounding of these products only
    least = _RESOLVED * float(np.trace(inner))
    factor, order, rank, _ = linalg.lapack.dpstrf(inner[:, :b], tol=least, lower=1)
    chosen, root = order[:rank] - 1, np.tril(factor[:rank, :rank])
    solve = partial(linalg.solve_triangular, root, lower=True, check_finite=False)
    learned = solve(inner[chosen, n:b])
    turn = linalg.eigh(learned @ learned.T, driver="evd", check_finite=False)[1]
    white, inner = solve(turn, trans="T"), inner[chosen].T
    judged = np.square(inner[b:observed] @ white).sum(axis=0)
    judged += np.einsum("br,br->r", white, rounding[np.ix_(chosen, chosen)] @ white)
    white = white / np.sqrt(judged)
    return inner[:n] @ white, inner[observed:] @ white
