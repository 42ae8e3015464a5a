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
updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from overheard.errors import FixData

Array = NDArray[np.float64]
Moments = tuple[Array, Array, int]
TINY = 1e-4
"""By which correlations are less than 1, where Fisher's scale would be infinite."""


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

    def scaled(self, vector: Array, shift: float, power: int) -> Array:
        """(K + shift)^power times a vector (width,)."""
        split = len(self.left) * len(self.right)
        weights = vector[:split].reshape(len(self.left), len(self.right))
        values = np.multiply.outer(self.left_values, self.right_values) + shift
        turned = (self.left.T @ weights @ self.right) * values**power
        back = self.left @ turned @ self.right.T
        return np.concatenate([back.ravel(), vector[split:] * (self.biases + shift) ** power])


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

    def kronecker(self, vector: Array, shift: float, power: int) -> Array:
        """(K + shift)^power times a vector (P,), layer by layer."""
        ends = np.cumsum([layer.width for layer in self.layers])[:-1]
        parts = zip(self.layers, np.split(vector, ends), strict=True)
        return np.concatenate([layer.scaled(part, shift, power) for layer, part in parts])

    def covariance_times(self, vector: Array) -> Array:
        """Cov times a vector (P,)."""
        column = vector[:, None]
        made = sum(one.rows.transposed(one.rows.times(column))[:, 0] for one in self.blocks)
        return np.asarray(made / self.records - self.mean * (self.mean @ vector))


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


@dataclass(frozen=True)
class Options:
    """Settings of the filter and of what is estimated from its outputs.

    blocks: groups of auxiliary records, of which one a round has its gradients made anew.
    block: records in a group, at most. As many, or a third of all, are held out for the scale.
    ridge: added to the covariance, relative to the mean of its diagonal.
    first_iterations, iterations: of conjugate gradients, in the first round and in later ones.
    masks: dropout draws of a target, once for the filter and once for its outputs.
    usual, worth: the correlation of a record's outputs in two rounds before any was seen, and for
        how many records it counts.
    factor_edge: eigenvalues of the correlation above this multiple of what chance makes are common
        factors.
    factor_steps: of principal-axis factoring.
    """

    blocks: int = 5
    block: int = 1000
    ridge: float = 0.005
    first_iterations: int = 10
    iterations: int = 4
    masks: int = 32
    usual: float = 0.25
    worth: float = 30.0
    factor_edge: float = 2.5
    factor_steps: int = 10


DEFAULT = Options()


def matched(
    around: Background, difference: Array, start: Array, iterations: int, ridge: float
) -> Array:
    """The filter (P,) for a difference g_target - mean g (P,), by conjugate gradients.

    ``start``: the filter of the round before, from which a few iterations are enough.
    """
    average = float(around.variance.mean())
    if not average > 0:
        raise FixData("the auxiliary gradients do not vary; give records that differ")
    shift, shape = ridge * average, (len(difference), len(difference))
    system = LinearOperator(
        shape, lambda v: around.covariance_times(v) + around.kronecker(v, shift, 1), dtype=float
    )
    near = LinearOperator(shape, lambda v: around.kronecker(v, shift / 2, -1) / 2, dtype=float)
    return np.asarray(cg(system, difference, start, rtol=1e-12, maxiter=iterations, M=near)[0])


def common_part(outputs: NDArray[np.floating], options: Options = DEFAULT) -> Array:
    """The part of the correlation between rounds (T, T) that is common, from outputs (T, n).

    Auxiliary records answer the rounds' filters too. The correlation of their outputs between two
    rounds is that of an honest client's, which is a sum over records of the same kind. What is
    common to rounds (a record leans the same way for as long as the model changes little) is told
    apart from what each round has of its own (dropout, other batches) by principal-axis factoring:
    the common part has low rank, the own part is diagonal. Few records say little: correlations are
    shrunk to the usual one on Fisher's scale, atanh, on which their error is 1 / sqrt(n - 3).
    The diagonal is the share of a round's variance that is met again in others.
    """
    rounds, records = outputs.shape
    centred = outputs - outputs.mean(axis=1, keepdims=True, dtype=np.float64)
    lengths = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit = centred / np.where(lengths > 0, lengths, 1.0)
    # on Fisher's scale, which is infinite at 1
    fisher = np.arctanh((1 - TINY) * unit @ unit.T)
    usual, weight = np.arctanh(options.usual), max(records - 3, 0)
    correlation = np.tanh(usual + (fisher - usual) * weight / (weight + options.worth))
    own = np.full(rounds, 1 - options.usual)
    edge = options.factor_edge * np.sqrt(rounds / (records + options.worth))
    for _ in range(options.factor_steps):
        correlation[np.diag_indices(rounds)] = 1 - own
        values, vectors = np.linalg.eigh(correlation)
        factors = values > edge * own.mean()
        factors[-1] = True
        common = (vectors[:, factors] * np.maximum(values[factors], 0)) @ vectors[:, factors].T
        own = np.clip(1 - np.diag(common), 0.0, 1.0)
    return np.asarray(common)
