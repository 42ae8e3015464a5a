"""The best linear detector of one gradient among many, without training one.

An update is (nearly) a sum of per-record gradients. Whether a sum contains a given gradient more
than chance would have it is best told by the projection on the matched filter

    a = (Cov + 0.02 s2 I + 0.1 diag(Cov))^-1 (g_target - mean g),

with mean and covariance of the gradients of records from elsewhere and s2 the mean of diag(Cov).
kerkouche2023 finds such a direction by logistic regression on thousands of simulated updates; here
it is a linear system, solved by conjugate gradients with products of gradient rows only (DECODERS
section 5). Several targets are several right-hand sides of one solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData

Array = NDArray[np.float64]
RIDGE, DIAGONAL = 0.02, 0.1


class Rows(Protocol):
    """Gradients of n records as a matrix (n, P) that can be multiplied."""

    def __len__(self) -> int: ...
    def times(self, vectors: Array) -> Array: ...
    def transposed(self, weights: Array) -> Array: ...
    def squares(self) -> Array: ...


class Block(NamedTuple):
    """Rows with their sum and the sum of their squares (P,), which are needed again and again."""

    rows: Rows
    total: Array
    squares: Array


def block(rows: Rows) -> Block:
    """Rows, summed up once."""
    return Block(rows, rows.transposed(np.ones((len(rows), 1)))[:, 0], rows.squares())


class Background(NamedTuple):
    """What gradients of other people's records look like: blocks of rows, their mean and variance.

    Blocks may be of different rounds: a model moves little between neighbouring rounds, so that
    one block a round is made anew.
    """

    blocks: tuple[Block, ...]
    records: int
    mean: Array
    variance: Array

    def covariance_times(self, vectors: Array) -> Array:
        """Cov V (P, k) for vectors (P, k)."""
        made = np.zeros_like(vectors)
        for one in self.blocks:
            made += one.rows.transposed(one.rows.times(vectors))
        centre = self.mean[:, None] * (self.mean @ vectors)[None, :]
        return np.asarray(made / self.records - centre)


def background(blocks: Sequence[Block]) -> Background:
    """Mean and variance over the rows of all blocks."""
    count = sum(len(one.rows) for one in blocks)
    if count < 2:
        raise FixData(f"{count} auxiliary record(s) have no covariance; give at least two")
    mean = np.sum([one.total for one in blocks], axis=0) / count
    squares = np.sum([one.squares for one in blocks], axis=0) / count
    return Background(tuple(blocks), count, mean, np.maximum(squares - mean**2, 0.0))


def matched_filters(
    around: Background,
    differences: Array,
    start: Array | None = None,
    iterations: int = 30,
    ridge: float = RIDGE,
    diagonal: float = DIAGONAL,
) -> Array:
    """Filters (P, k) for differences g_target - mean g (P, k), by preconditioned CG.

    ``start``: the filters of the round before, from which a few iterations are enough.
    """
    average = float(around.variance.mean())
    if not average > 0:
        raise FixData("the auxiliary gradients do not vary; give records that differ")
    loading = (ridge * average + diagonal * around.variance)[:, None]

    def apply(vectors: Array) -> Array:
        return around.covariance_times(vectors) + loading * vectors

    precondition = 1 / (around.variance[:, None] + loading)
    a = np.zeros_like(differences) if start is None else start.copy()
    residual = differences - apply(a) if start is not None else differences.copy()
    scaled = precondition * residual
    direction = scaled.copy()
    energy = np.einsum("pk,pk->k", residual, scaled)
    for _ in range(iterations):
        if not (energy > 0).any():
            break
        image = apply(direction)
        curve = np.einsum("pk,pk->k", direction, image)
        step = np.divide(energy, curve, out=np.zeros_like(energy), where=curve > 0)
        a += step * direction
        residual -= step * image
        scaled = precondition * residual
        after = np.einsum("pk,pk->k", residual, scaled)
        ratio = np.divide(after, energy, out=np.zeros_like(energy), where=energy > 0)
        direction = scaled + ratio * direction
        energy = after
    return a


class Scale(NamedTuple):
    """A filter's response to other people's records: mean and standard deviation (k,), and n."""

    mean: Array
    sd: Array
    records: int


def scale_of(responses: Array) -> Scale:
    """From responses (n, k) of records that the filter was not made from."""
    if len(responses) < 2:
        raise FixData(f"{len(responses)} held-out record(s) have no spread; give at least two")
    sd = responses.std(axis=0, ddof=1)
    if not (sd > 0).all():
        raise FixData("the filter answers alike to all held-out records; give records that differ")
    return Scale(responses.mean(axis=0), sd, len(responses))


def smoothed(values: Array, reach: int = 5) -> Array:
    """Means over the neighbouring rounds, ``reach`` to each side, of those that there are (T, ...).

    At the last round there is nothing to its right: no round is used before it was heard.
    """
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    rounds = np.arange(len(values))
    low, high = np.maximum(rounds - reach, 0), np.minimum(rounds + reach + 1, len(values))
    width = (high - low).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((total[high] - total[low]) / width)
