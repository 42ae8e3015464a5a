"""The best linear detector of one gradient among many, without training one.

An update is (nearly) a sum of per-record gradients. Whether a sum contains a given gradient more
than chance would have it is best told by the projection on the matched filter

    a = (Cov + K + 0.005 s2 I)^-1 (g_target - mean g),

with mean and covariance of the gradients of records from elsewhere and s2 the mean of diag(Cov).
There are fewer records than parameters, so that Cov alone says nothing about most directions. K
says something: in each layer the Kronecker product that has the layer's row and column second
moments, E[G G'] and E[G' G] of its gradients G (out, in), which few records determine. It is half
of the estimate and, being easy to invert, the preconditioner: four steps of conjugate gradients are
enough. (With 0.1 diag(Cov) in place of K the target stands out by a third less, and thirty steps
are needed.) kerkouche2023 finds such a direction by logistic regression on thousands of simulated
updates. Several targets are several right-hand sides of one solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData

Array = NDArray[np.float64]
RIDGE = 0.005  # of the covariance's mean eigenvalue
Moments = tuple[Array, Array, int]


class Rows(Protocol):
    """Gradients of n records as a matrix (n, P) that can be multiplied."""

    def __len__(self) -> int: ...
    def times(self, vectors: Array) -> Array: ...
    def transposed(self, weights: Array) -> Array: ...
    def squares(self) -> Array: ...
    def moments(self) -> Sequence[Moments]: ...


class Block(NamedTuple):
    """Rows with their sum, the sum of their squares (P,), and each layer's second moments."""

    rows: Rows
    total: Array
    squares: Array
    moments: Sequence[Moments]


def block(rows: Rows) -> Block:
    """Rows, summed up once."""
    total = rows.transposed(np.ones((len(rows), 1)))[:, 0]
    return Block(rows, total, rows.squares(), rows.moments())


class Kronecker(NamedTuple):
    """A layer's approximate covariance ``left x right`` by eigenvectors; biases by themselves."""

    left_values: Array
    left: Array
    right_values: Array
    right: Array
    biases: Array

    @property
    def width(self) -> int:
        return len(self.left) * len(self.right) + len(self.biases)

    def scaled(self, vectors: Array, shift: float, power: int) -> Array:
        """(K + shift)^power times vectors (width, k), for power 1 or -1."""
        split = len(self.left) * len(self.right)
        values = np.multiply.outer(self.left_values, self.right_values)[:, :, None] + shift
        turned = _both_sides(self.left.T, vectors[:split], self.right)
        turned = turned * values if power > 0 else turned / values
        back = _both_sides(self.left, turned.reshape(split, -1), self.right.T)
        spread = (self.biases + shift)[:, None]
        rest = vectors[split:] * spread if power > 0 else vectors[split:] / spread
        return np.concatenate([back.reshape(split, -1), rest])


def _both_sides(left: Array, vectors: Array, right: Array) -> Array:
    """left X right for each column X of the vectors, seen as a matrix (out, in): (out, in, k)."""
    x = vectors.reshape(len(left), len(right), -1).transpose(2, 0, 1)
    return np.asarray((left @ x @ right).transpose(1, 2, 0))


def _kronecker(moments: Sequence[Moments], count: int, variance: Array) -> Kronecker:
    """The Kronecker product with these second moments (sums over the blocks)."""
    left = sum((m[0] for m in moments[1:]), moments[0][0]) / count
    right = sum((m[1] for m in moments[1:]), moments[0][1]) / count
    unit = np.sqrt(max(float(np.trace(left)), 1e-300))
    (a, u), (b, v) = np.linalg.eigh(left / unit), np.linalg.eigh(right / unit)
    return Kronecker(np.maximum(a, 0), u, np.maximum(b, 0), v, variance)


class Background(NamedTuple):
    """What gradients of other people's records look like: blocks of rows, their mean and variance.

    Blocks may be of different rounds: a model moves little between neighbouring rounds, so that
    one block a round is made anew.
    """

    blocks: tuple[Block, ...]
    records: int
    mean: Array
    variance: Array
    layers: tuple[Kronecker, ...]

    def kronecker(self, vectors: Array, shift: float, power: int) -> Array:
        """(K + shift)^power V (P, k), layer by layer."""
        parts, start = [], 0
        for layer in self.layers:
            stop = start + layer.width
            parts.append(layer.scaled(vectors[start:stop], shift, power))
            start = stop
        return np.concatenate(parts)

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
    variance = np.maximum(squares - mean**2, 0.0)
    layers, start = [], 0
    for moments in zip(*(one.moments for one in blocks), strict=True):
        left, right, biases = moments[0]
        stop = start + len(left) * len(right) + biases
        layers.append(_kronecker(moments, count, variance[stop - biases : stop]))
        start = stop
    return Background(tuple(blocks), count, mean, variance, tuple(layers))


def matched_filters(
    around: Background,
    differences: Array,
    start: Array | None = None,
    iterations: int = 10,
) -> Array:
    """Filters (P, k) for differences g_target - mean g (P, k), by preconditioned CG.

    ``start``: the filters of the round before, from which a few iterations are enough.
    """
    average = float(around.variance.mean())
    if not average > 0:
        raise FixData("the auxiliary gradients do not vary; give records that differ")
    shift = RIDGE * average

    def apply(vectors: Array) -> Array:
        return around.covariance_times(vectors) + around.kronecker(vectors, shift, 1)

    def precondition(vectors: Array) -> Array:
        return around.kronecker(vectors, shift / 2, -1) / 2

    a = np.zeros_like(differences) if start is None else start.copy()
    residual = differences - apply(a) if start is not None else differences.copy()
    scaled = precondition(residual)
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
        scaled = precondition(residual)
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
