"""Gradients of many records as one matrix (n, P) that is multiplied, not looked at.

The gradient of a record's loss by a dense layer is an outer product of its error and its input, so
n records of a layer are two small matrices. Where the outer product itself is the smaller (a
convolution: few weights, many positions) the rows are written out. Products with vectors, all that
a solver needs, cost a few matrix products either way; the (n, P) matrix is never built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.learning.dense import factors
from overheard.learning.recipe import Dense

Array = NDArray[np.floating[Any]]


Moments = tuple[NDArray[np.float64], NDArray[np.float64], int]
"""Sums of G G' and G' G over a layer's gradients G (out, in), and the number of its biases."""
SAMPLED = 300
"""Records of a written layer whose second moments are taken; the others are like them."""


@dataclass(frozen=True)
class Outer:
    """A dense layer: row i is ``errors_i inputs_i'``, flattened, then ``errors_i`` for the bias."""

    errors: Array
    inputs: Array
    bias: bool = True

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def width(self) -> int:
        return int(self.errors.shape[1] * (self.inputs.shape[1] + self.bias))

    def take(self, rows: NDArray[Any]) -> Outer:
        return Outer(self.errors[rows], self.inputs[rows], self.bias)

    def times(self, vectors: Array) -> Array:
        """Rows times vectors (width, k): (n, k)."""
        (n, out), fan_in, k = self.errors.shape, self.inputs.shape[1], vectors.shape[1]
        weights = vectors[: out * fan_in].reshape(out, fan_in, k)
        if k == 1:
            mixed = self.inputs @ weights[:, :, 0].T
            if self.bias:
                mixed += vectors[out * fan_in :, 0]
            return np.asarray(np.einsum("no,no->n", mixed, self.errors)[:, None])
        flat = np.ascontiguousarray(weights.transpose(1, 0, 2)).reshape(fan_in, out * k)
        spread = (self.inputs @ flat).reshape(n, out, k)
        if self.bias:
            spread += vectors[out * fan_in :]
        return np.asarray(np.einsum("nok,no->nk", spread, self.errors))

    def transposed(self, weights: Array) -> Array:
        """Transposed rows times weights (n, k): (width, k)."""
        (n, out), k = self.errors.shape, weights.shape[1]
        scaled = (weights[:, :, None] * self.errors[:, None, :]).reshape(n, k * out)
        parts = [(scaled.T @ self.inputs).reshape(k, -1)]
        if self.bias:
            parts.append(scaled.sum(axis=0).reshape(k, out))
        return np.concatenate(parts, axis=1).T

    def squares(self) -> Array:
        """The sum of the squared rows, entry by entry (width,)."""
        squared = self.errors**2
        parts = [(squared.T @ self.inputs**2).ravel()]
        if self.bias:
            parts.append(squared.sum(axis=0))
        return np.concatenate(parts)

    def moments(self) -> Moments:
        """Sums over the records of G G' and G' G, for G = errors_i inputs_i' (out, in)."""
        left = (self.errors * (self.inputs**2).sum(axis=1, keepdims=True)).T @ self.errors
        right = (self.inputs * (self.errors**2).sum(axis=1, keepdims=True)).T @ self.inputs
        return _moments(left, right, len(self.errors[0]) if self.bias else 0)

    def columns(self, which: NDArray[np.int64]) -> Array:
        """Some columns of the rows written out (n, len(which))."""
        fan_in = self.inputs.shape[1]
        weights = len(self.errors[0]) * fan_in
        inside = which < weights
        made = np.empty((len(self), len(which)), self.errors.dtype)
        out, into = np.divmod(which[inside], fan_in)
        made[:, inside] = self.errors[:, out] * self.inputs[:, into]
        made[:, ~inside] = self.errors[:, which[~inside] - weights]
        return made

    def explicit(self) -> Array:
        """The rows written out (n, width)."""
        rows = (self.errors[:, :, None] * self.inputs[:, None, :]).reshape(len(self), -1)
        return np.concatenate([rows, self.errors], axis=1) if self.bias else rows


@dataclass(frozen=True)
class Written:
    """A layer whose rows (n, width) are written out: ``out`` by its inputs, then ``out`` biases."""

    rows: Array
    out: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def take(self, rows: NDArray[Any]) -> Written:
        return Written(self.rows[rows], self.out)

    def times(self, vectors: Array) -> Array:
        return np.asarray(self.rows @ vectors)

    def transposed(self, weights: Array) -> Array:
        return np.asarray(self.rows.T @ weights)

    def squares(self) -> Array:
        return np.asarray(np.einsum("np,np->p", self.rows, self.rows))

    def columns(self, which: NDArray[np.int64]) -> Array:
        return self.rows[:, which]

    def moments(self) -> Moments:
        """As of `Outer`, from `SAMPLED` of the records."""
        some = self.rows[:SAMPLED, : self.width - self.out]
        g = some.reshape(len(some), self.out, -1)
        scale = len(self) / max(len(some), 1)
        flat = np.ascontiguousarray(g).reshape(-1, g.shape[2])
        turned = np.ascontiguousarray(g.transpose(1, 0, 2)).reshape(self.out, -1)
        return _moments(scale * (turned @ turned.T), scale * (flat.T @ flat), self.out)

    def explicit(self) -> Array:
        return self.rows


@dataclass(frozen=True)
class GradientRows:
    """Gradients (n, P) of n records, layer by layer in the order of the flat vector.

    Products are made in the precision of the layers (that of the messages) and returned in
    float64, where solvers add them up.
    """

    layers: tuple[Outer | Written, ...]

    def __len__(self) -> int:
        return len(self.layers[0])

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(layer.width for layer in self.layers)

    def take(self, rows: NDArray[Any]) -> GradientRows:
        """These records."""
        return GradientRows(tuple(layer.take(rows) for layer in self.layers))

    def times(self, vectors: Array) -> NDArray[np.float64]:
        """G V: (n, k) for vectors (P, k)."""
        total, start = np.zeros((len(self), vectors.shape[1])), 0
        for layer in self.layers:
            part = vectors[start : start + layer.width].astype(_dtype(layer))
            total += layer.times(part)
            start += layer.width
        return total

    def transposed(self, weights: Array) -> NDArray[np.float64]:
        """G' U: (P, k) for weights (n, k)."""
        made = [layer.transposed(weights.astype(_dtype(layer))) for layer in self.layers]
        return np.concatenate(made).astype(np.float64)

    def squares(self) -> NDArray[np.float64]:
        """Sum over the records of the squared gradient, entry by entry (P,)."""
        return np.concatenate([layer.squares() for layer in self.layers]).astype(np.float64)

    def moments(self) -> tuple[Moments, ...]:
        """Second moments of each layer's gradients as matrices, for a Kronecker approximation."""
        return tuple(layer.moments() for layer in self.layers)

    def columns(self, which: NDArray[np.int64]) -> Array:
        """Some columns (n, len(which)) of the matrix, ``which`` ascending."""
        made, start = [], 0
        for layer in self.layers:
            end = start + layer.width
            inside = which[np.searchsorted(which, start) : np.searchsorted(which, end)]
            made.append(layer.columns(inside - start))
            start = end
        return np.concatenate(made, axis=1)

    def explicit(self) -> Array:
        """The matrix (n, P) itself: for few records."""
        return np.concatenate([layer.explicit() for layer in self.layers], axis=1)


def _moments(left: Array, right: Array, biases: int) -> Moments:
    return left.astype(np.float64), right.astype(np.float64), biases


def _dtype(layer: Outer | Written) -> np.dtype[Any]:
    return layer.errors.dtype if isinstance(layer, Outer) else layer.rows.dtype


def stacked(blocks: Sequence[GradientRows]) -> GradientRows:
    """The records of several blocks as one."""
    made: list[Outer | Written] = []
    for layers in zip(*(block.layers for block in blocks), strict=True):
        first = layers[0]
        if isinstance(first, Outer):
            errors = np.concatenate([layer.errors for layer in layers])
            inputs = np.concatenate([layer.inputs for layer in layers])
            made.append(Outer(errors, inputs, first.bias))
        else:
            made.append(Written(np.concatenate([layer.rows for layer in layers]), first.out))
    return GradientRows(tuple(made))


def dense_rows(model: Dense, loss: str, theta: Array, inputs: Array, labels: Array) -> GradientRows:
    """Gradients of n records (n, d) at one model of dense layers (P,)."""
    pairs = factors(model, loss, theta, inputs, labels)
    return GradientRows(tuple(Outer(delta, a, model.bias) for a, delta in pairs))
