"""Gradients of many records as one matrix (n, P) that is multiplied, not looked at.

The gradient of a record's loss by a dense layer is an outer product of its error and its input, so
n records of a layer are two small matrices. Where the outer product itself is the smaller (a
convolution: few weights, many positions) the rows are written out. Products with vectors, all that
a solver needs, cost a few matrix products either way; the (n, P) matrix is never built.

What a decoder needs is the difference between two candidate values of the same record,

    delta_1 [a_1, 1]' - delta_0 [a_0, 1]' = (delta_1 - delta_0) [a_1, 1]' + delta_0 [a_1 - a_0, 0]',

two outer products of factors that are differences themselves: nothing cancels later (computing
K11 - 2 K10 + K00 instead would lose half the digits). An inner product of two such differences
is four products of small matrices a layer (decoders.md section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack

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

    def block(self, flat: Array) -> Array:
        """These parameters of a flat vector (width,) as a matrix, the biases its last column."""
        out, fan_in = self.errors.shape[1], self.inputs.shape[1]
        weights = flat[: out * fan_in].reshape(out, fan_in)
        return np.column_stack([weights, flat[out * fan_in :]]) if self.bias else weights

    def scaled(self, weights: Array) -> Outer:
        return Outer(self.errors * weights[:, None], self.inputs, self.bias)

    def total(self) -> Array:
        """The sum of the rows (width,)."""
        weights = (self.errors.T @ self.inputs).ravel()
        return np.concatenate([weights, self.errors.sum(axis=0)]) if self.bias else weights

    def lengths(self) -> Array:
        """The squared length of every row (n,); (..., n) of factors with more axes."""
        inputs = (self.inputs**2).sum(axis=-1) + float(self.bias)
        return np.asarray((self.errors**2).sum(axis=-1) * inputs)

    def since(self, base: Outer | None) -> Difference:
        errors, inputs = [self.errors], [self.inputs]
        if base is not None:
            errors = [self.errors - base.errors, base.errors]
            inputs.append(self.inputs - base.inputs)
        fed = np.stack(inputs).astype(np.float64)
        if self.bias:
            ends = np.zeros((len(fed), len(self), 1))
            ends[0] = 1.0
            fed = np.concatenate([fed, ends], axis=2)
        return Difference(np.stack(errors).astype(np.float64), fed, self.bias)

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

    def block(self, flat: Array) -> Array:
        return flat

    def scaled(self, weights: Array) -> Written:
        return Written(self.rows * weights[:, None], self.out)

    def total(self) -> Array:
        return np.asarray(self.rows.sum(axis=0))

    def lengths(self) -> Array:
        return np.asarray(np.einsum("np,np->n", self.rows, self.rows))

    def since(self, base: Written | None) -> Written:
        rows = self.rows if base is None else self.rows - base.rows
        return Written(rows.astype(np.float64), self.out)

    def add_gram(self, other: Written, total: Array) -> None:
        total += self.rows @ other.rows.T

    def add_times(self, block: Array, total: Array) -> None:
        total += self.rows @ block

    def explicit(self) -> Array:
        return self.rows


@dataclass(frozen=True)
class Difference:
    """A dense layer of n gradient differences: sum over the parts of ``errors x inputs``.

    errors: (2, n, out); inputs: (2, n, in [+ 1 for the bias]). One part instead of two for a
    gradient by itself.
    """

    errors: NDArray[np.float64]
    inputs: NDArray[np.float64]
    bias: bool = True

    def __len__(self) -> int:
        return int(self.errors.shape[1])

    def add_gram(self, other: Difference, total: Array) -> None:
        """Add the inner products with another's rows to a total (n, m)."""
        for p in range(len(self.errors)):
            for q in range(len(other.errors)):
                if self is other and q > p:
                    continue  # the mirror image of (q, p)
                inputs = _shared(self.inputs[p], other.inputs[q])
                if inputs is None:
                    continue
                part = (self.errors[p] @ other.errors[q].T) * (inputs[0] @ inputs[1].T)
                total += part + part.T if self is other and q < p else part

    def add_times(self, block: Array, total: Array) -> None:
        """Add the inner products with one gradient, as a matrix (`Outer.block`), to a total."""
        for errors, inputs in zip(self.errors, self.inputs, strict=True):
            columns, fed, some = inputs.any(axis=0), inputs, block
            if 2 * columns.sum() < len(columns):
                fed, some = inputs[:, columns], block[:, columns]
            total += np.einsum("nj,nj->n", errors @ some, fed)

    def lengths(self) -> Array:
        """The squared length of every row (n,)."""
        errors = np.einsum("pnj,qnj->pqn", self.errors, self.errors)
        inputs = np.einsum("pnj,qnj->pqn", self.inputs, self.inputs)
        return np.asarray((errors * inputs).sum(axis=(0, 1)))

    def explicit(self) -> Array:
        """The rows written out (n, width), weights before biases."""
        whole = np.einsum("pno,pni->noi", self.errors, self.inputs)
        if not self.bias:
            return np.asarray(whole.reshape(len(whole), -1))
        return np.concatenate([whole[:, :, :-1].reshape(len(whole), -1), whole[:, :, -1]], axis=1)


def _shared(left: Array, right: Array) -> tuple[Array, Array] | None:
    """The columns in which both have anything at all; None if there is none.

    An attribute moves few of a first layer's inputs, so that most of a difference is zeros.
    """
    both = np.asarray(left.any(axis=0) & right.any(axis=0))
    if not both.any():
        return None
    return (left, right) if 2 * both.sum() > len(both) else (left[:, both], right[:, both])


@dataclass(frozen=True)
class Differences:
    """Gradients of n records less those of other values of the same records, for inner products.

    Everything is float64: what is left of two gradients is small.
    """

    layers: tuple[Difference | Written, ...]

    def __len__(self) -> int:
        return len(self.layers[0])

    def gram(self, other: Differences) -> NDArray[np.float64]:
        """Inner products (n, m) of the rows of both."""
        total = np.zeros((len(self), len(other)))
        for one, two in zip(self.layers, other.layers, strict=True):
            one.add_gram(two, total)  # type: ignore[arg-type]
        return total

    def project(self, blocks: Sequence[Array]) -> NDArray[np.float64]:
        """Inner products (n,) with one gradient, in the blocks of `GradientRows.blocks`."""
        total = np.zeros(len(self))
        for layer, block in zip(self.layers, blocks, strict=True):
            layer.add_times(block, total)
        return total

    def explicit(self) -> NDArray[np.float64]:
        """The rows themselves (n, P): for few parameters."""
        return np.concatenate([layer.explicit() for layer in self.layers], axis=1)


def add_products(of: Sequence[Differences], scale: float, total: Array) -> None:
    """Add the inner products of K sets of n rows, times ``scale``, to a total (n, K, n, K)."""
    for a, one in enumerate(of):
        for b, two in enumerate(of[: a + 1]):
            part = scale * one.gram(two)
            total[:, a, :, b] += part
            if a != b:
                total[:, b, :, a] += part.T


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

    @property
    def written(self) -> int:
        """Numbers a record that are held as they are, and not as factors."""
        return sum(layer.width for layer in self.layers if isinstance(layer, Written))

    @property
    def output_layer(self) -> Outer:
        """The last layer, for who reads its inputs and errors."""
        last = self.layers[-1]
        if not isinstance(last, Outer):
            raise ChooseAnotherAttack("reads a last layer that is dense, and here it is not")
        return last

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

    def blocks(self, flat: Array) -> list[Array]:
        """A vector (P,) layer by layer; of a dense layer a matrix, the biases its last column."""
        ends = np.cumsum([layer.width for layer in self.layers])[:-1]
        parts = zip(self.layers, np.split(flat, ends), strict=True)
        return [layer.block(part) for layer, part in parts]

    def scaled(self, weights: Array) -> GradientRows:
        """Every record's gradient times its weight (n,)."""
        return GradientRows(tuple(layer.scaled(weights) for layer in self.layers))

    def clipped(self, clip: float) -> GradientRows:
        """Every gradient scaled down to norm ``clip``, if it is longer."""
        return self.scaled(shrinkage(self.layers, clip))

    def total(self) -> Array:
        """The sum of the gradients (P,)."""
        return np.concatenate([layer.total() for layer in self.layers])

    def since(self, base: GradientRows | None = None) -> Differences:
        """These gradients less those of ``base``, record by record (None: less nothing)."""
        bases = [None] * len(self.layers) if base is None else base.layers
        made = [one.since(two) for one, two in zip(self.layers, bases, strict=True)]  # type: ignore[arg-type]
        return Differences(tuple(made))

    def explicit(self) -> Array:
        """The matrix (n, P) itself: for few records."""
        return np.concatenate([layer.explicit() for layer in self.layers], axis=1)


def shrinkage(layers: Sequence[Outer | Written], clip: float) -> Array:
    """By what each record's gradient is multiplied so that its norm is at most ``clip``."""
    norms = np.sqrt(sum(layer.lengths() for layer in layers))
    return np.asarray(np.minimum(1.0, clip / np.maximum(norms, clip)).astype(norms.dtype))


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
