"""Gradients of many records as one matrix (n, P) that is multiplied, not looked at.

The gradient of a record's loss by a dense layer is an outer product of its error and its input, so
n records of a layer are two small matrices (`Outer`). Where the outer product itself is the smaller
(a convolution: few weights, many positions), or there is none, the rows are written out
(`Written`). Products with vectors, all that a solver needs, cost a few matrix products either way;
the (n, P) matrix is never built.

What a decoder needs is the difference between two candidate values of the same record,

    delta_1 [a_1, 1]' - delta_0 [a_0, 1]' = (delta_1 - delta_0) [a_1, 1]' + delta_0 [a_1 - a_0, 0]',

two outer products of factors that are differences themselves: nothing cancels later (computing
K11 - 2 K10 + K00 instead would lose half the digits). An inner product of two such differences
is four products of small matrices a layer (decoders.md section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack

Array = NDArray[np.floating[Any]]
Moments = tuple[NDArray[np.float64], NDArray[np.float64], int]
"""Sums of G G' and G' G over a layer's gradients G (out, in), and the number of its biases."""


@dataclass(frozen=True)
class Outer:
    """A dense layer: row i is ``errors_i inputs_i'``, flattened, then ``errors_i`` for the bias.

    errors: (n, out); inputs: (n, in). `lengths` and `explicit` take factors with more axes before.
    """

    errors: Array
    inputs: Array
    bias: bool = True

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def width(self) -> int:
        return int(self.errors.shape[1] * (self.inputs.shape[1] + self.bias))

    def times(self, vectors: Array) -> Array:
        """Rows times vectors (width, k): (n, k)."""
        (n, out), fan_in, k = self.errors.shape, self.inputs.shape[1], vectors.shape[1]
        weights = vectors[: out * fan_in].reshape(out, fan_in, k)
        flat = np.ascontiguousarray(weights.transpose(1, 0, 2)).reshape(fan_in, out * k)
        spread = (self.inputs @ flat).reshape(n, out, k)
        if self.bias:
            spread += vectors[out * fan_in :]
        return np.asarray((self.errors[:, None, :] @ spread)[:, 0])

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
        ones = np.ones((len(self), 1), self.errors.dtype)
        return Outer(self.errors**2, self.inputs**2, self.bias).transposed(ones)[:, 0]

    def moments(self) -> Moments:
        """Sums over the records of G G' and G' G, for G = errors_i inputs_i' (out, in)."""
        left = (self.errors * (self.inputs**2).sum(axis=1, keepdims=True)).T @ self.errors
        right = (self.inputs * (self.errors**2).sum(axis=1, keepdims=True)).T @ self.inputs
        return left.astype(float), right.astype(float), len(self.errors[0]) if self.bias else 0

    def columns(self, which: NDArray[np.int64]) -> Array:
        """Some columns of the rows written out (n, len(which)), ``which`` ascending.

        A column of all records lies together in memory, where it is gathered several times faster.
        """
        errors, inputs = (np.ascontiguousarray(part.T) for part in (self.errors, self.inputs))
        weights = len(errors) * len(inputs)
        inside = int(np.searchsorted(which, weights))
        out, into = np.divmod(which[:inside], len(inputs))
        return np.concatenate([errors[out] * inputs[into], errors[which[inside:] - weights]]).T

    def sums(self, groups: NDArray[np.int64]) -> Array:
        """The rows of each group of records (m, k) added up (m, width)."""
        errors, inputs = self.errors[groups], self.inputs[groups]
        made = (errors.transpose(0, 2, 1) @ inputs).reshape(len(groups), -1)
        return np.hstack([made, errors.sum(axis=1)]) if self.bias else made

    def block(self, flat: Array) -> Array:
        """These parameters of a flat vector (width,) as a matrix, the biases its last column."""
        out, fan_in = self.errors.shape[1], self.inputs.shape[1]
        weights = flat[: out * fan_in].reshape(out, fan_in)
        return np.column_stack([weights, flat[out * fan_in :]]) if self.bias else weights

    def scaled(self, weights: Array) -> Outer:
        return Outer(self.errors * weights[:, None], self.inputs, self.bias)

    def lengths(self) -> Array:
        """The squared length of every row (n,)."""
        inputs = (self.inputs**2).sum(axis=-1) + float(self.bias)
        return np.asarray((self.errors**2).sum(axis=-1) * inputs)

    def explicit(self) -> Array:
        """The rows written out (n, width)."""
        rows = self.errors[..., :, None] * self.inputs[..., None, :]
        rows = rows.reshape(*rows.shape[:-2], -1)
        return np.concatenate([rows, self.errors], axis=-1) if self.bias else rows

    def since(self, base: Outer | None) -> Difference:
        every = np.arange(self.inputs.shape[1])
        if base is None:
            return Difference(((self, every),))
        moves = (self.inputs != base.inputs).any(axis=0)
        few, still = np.flatnonzero(moves), np.flatnonzero(~moves)
        inputs, before = (np.asarray(part, np.float64) for part in (self.inputs, base.errors))
        errors, apart = self.errors - before, inputs[:, few] - base.inputs[:, few]
        if len(few) != 1 and before.shape[1] > 1:
            change, moved = Outer(errors, inputs, self.bias), Outer(before, apart, bias=False)
            return Difference(((change, every), (moved, few)))
        # a single column, or row, of weights is written out: half as many products
        written, ones = errors * inputs[:, few] + before * apart, np.ones((len(self), 1))
        column = len(few) == 1
        moved = Outer(written if column else ones, ones if column else written, bias=False)
        return Difference(((Outer(errors, inputs[:, still], self.bias), still), (moved, few)))


@dataclass(frozen=True)
class Written:
    """A layer whose rows (n, width) are written out: weights (out, in), then biases (out,)."""

    rows: Array
    out: int
    bias: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def times(self, vectors: Array) -> Array:
        return np.asarray(self.rows @ vectors)

    def transposed(self, weights: Array) -> Array:
        return np.asarray(self.rows.T @ weights)

    def squares(self) -> Array:
        return np.asarray(np.einsum("np,np->p", self.rows, self.rows))

    def moments(self, sampled: int = 300) -> Moments:
        """As of `Outer`, from so many of the records; the others are like them."""
        biases = self.out if self.bias else 0
        some = self.rows[:sampled, : self.width - biases]
        g = some.reshape(len(some), self.out, -1)
        scale = len(self) / max(len(some), 1)
        flat = np.ascontiguousarray(g).reshape(-1, g.shape[2])
        turned = np.ascontiguousarray(g.transpose(1, 0, 2)).reshape(self.out, -1)
        left, right = scale * (turned @ turned.T), scale * (flat.T @ flat)
        return left.astype(np.float64), right.astype(np.float64), biases

    def columns(self, which: NDArray[np.int64]) -> Array:
        return self.rows[:, which]

    def sums(self, groups: NDArray[np.int64]) -> Array:
        return np.asarray(self.rows[groups].sum(axis=1))

    def block(self, flat: Array) -> Array:
        return flat

    def scaled(self, weights: Array) -> Written:
        return Written(self.rows * weights[:, None], self.out, self.bias)

    def lengths(self) -> Array:
        return np.asarray(np.einsum("np,np->n", self.rows, self.rows))

    def explicit(self) -> Array:
        return self.rows

    def since(self, base: Written | None) -> Written:
        rows = self.rows if base is None else self.rows - base.rows
        return Written(rows.astype(np.float64), self.out, self.bias)

    def products(self, other: Written) -> Array:
        return np.asarray(self.rows @ other.rows.T)

    def add_times(self, block: Array, total: Array) -> None:
        total += self.rows @ block


@dataclass(frozen=True)
class Difference:
    """A dense layer of n gradient differences: the sum of two outer products, each with the columns
    that its inputs are. The second has no bias and only the few columns that the candidates move;
    the first has all columns, or the others. A gradient by itself is one part."""

    parts: tuple[tuple[Outer, NDArray[np.intp]], ...]

    def __len__(self) -> int:
        return len(self.parts[0][0])

    def products(self, other: Difference) -> Array:
        """Inner products (n, m) of the rows of both."""
        total: Any = 0
        for (one, mine), (two, theirs) in product(self.parts, other.parts):
            _, left, right = np.intersect1d(mine, theirs, True, return_indices=True)
            biases = one.bias and two.bias
            if len(left) or biases:
                inputs = one.inputs[:, left]  # twice the same: BLAS makes half of the products
                others = inputs if one is two else two.inputs[:, right]
                total = total + (one.errors @ two.errors.T) * (inputs @ others.T + biases)
        return np.asarray(total)

    def add_times(self, block: Array, total: Array) -> None:
        """Add the inner products with one gradient, as a matrix (`Outer.block`), to a total."""
        for part, columns in self.parts:
            total += np.einsum("nj,nj->n", part.errors @ block[:, columns], part.inputs)
            if part.bias:
                total += part.errors @ block[:, -1]

    def explicit(self) -> Array:
        """The rows written out (n, width), weights before biases."""
        fan_in, first = 1 + max(c for _, columns in self.parts for c in columns), self.parts[0][0]
        weights = np.zeros((*first.errors.shape, fan_in), first.errors.dtype)
        for part, columns in self.parts:
            weights[:, :, columns] += part.errors[:, :, None] * part.inputs[:, None, :]
        flat = weights.reshape(len(self), -1)
        return np.concatenate([flat, first.errors], axis=1) if first.bias else flat


@dataclass(frozen=True)
class Differences:
    """Gradients of n records less those of other values of the same records, for inner products.

    Everything is float64 (what is left of two gradients is small) but what `few` takes of it.
    """

    layers: tuple[Difference | Written, ...]

    def __len__(self) -> int:
        return len(self.layers[0])

    def gram(self, other: Differences) -> NDArray[np.floating[Any]]:
        """Inner products (n, m) of the rows of both."""
        total: Any = 0
        for one, two in zip(self.layers, other.layers, strict=True):
            total = total + one.products(two)  # type: ignore[arg-type]
        return np.asarray(total)

    def project(self, blocks: Sequence[Array]) -> NDArray[np.float64]:
        """Inner products (n,) with one gradient, in the blocks of `GradientRows.blocks`."""
        total = np.zeros(len(self))
        for layer, block in zip(self.layers, blocks, strict=True):
            layer.add_times(block, total)
        return total

    def explicit(self) -> NDArray[np.float64]:
        """The rows themselves (n, P): for few parameters."""
        return np.concatenate([layer.explicit() for layer in self.layers], axis=1)


def few_of(
    of: Sequence[Differences], blocks: Sequence[Array], equations: int
) -> tuple[list[Differences], list[Array]]:
    """About so many numbers, in float32, of each of these and of one gradient
    (`GradientRows.blocks`): of the first layer, a dense one, and of its inputs that no candidate
    moves, so that there is one outer product."""
    layers: list[Any] = [one.layers[0] for one in of]
    fan_out, width = blocks[0].shape
    fan_in = width - layers[0].parts[0][0].bias
    moved = {c for layer in layers for _, columns in layer.parts[1:] for c in columns}
    still = [c for c in range(fan_in) if c not in moved]
    which = still[:: max(1, fan_out * len(still) // equations)]
    single = np.float32
    made = []
    for one, columns in (layer.parts[0] for layer in layers):
        inputs = one.inputs[:, np.searchsorted(columns, which)].astype(single)
        made.append(Differences((Outer(one.errors.astype(single), inputs, one.bias).since(None),)))
    return made, [blocks[0][:, [*which, *range(fan_in, width)]].astype(single)]


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
        return int(self._ends[-1])

    @property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([layer.width for layer in self.layers])

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

    def times(self, vectors: Array) -> NDArray[np.float64]:
        """G V: (n, k) for vectors (P, k)."""
        parts = zip(self.layers, np.split(vectors, self._ends[:-1]), strict=True)
        made = [layer.times(part.astype(_dtype(layer))) for layer, part in parts]
        return np.asarray(np.sum(made, axis=0, dtype=np.float64))

    def transposed(self, weights: Array) -> NDArray[np.float64]:
        """G' U: (P, k) for weights (n, k)."""
        made = [layer.transposed(weights.astype(_dtype(layer))) for layer in self.layers]
        return np.concatenate(made).astype(np.float64)

    def total(self) -> NDArray[np.float64]:
        """The sum of the gradients (P,)."""
        return self.transposed(np.ones((len(self), 1)))[:, 0]

    def squares(self) -> NDArray[np.float64]:
        """Sum over the records of the squared gradient, entry by entry (P,)."""
        return np.concatenate([layer.squares() for layer in self.layers]).astype(np.float64)

    def moments(self) -> tuple[Moments, ...]:
        """Second moments of each layer's gradients as matrices, for a Kronecker approximation."""
        return tuple(layer.moments() for layer in self.layers)

    def columns(self, which: NDArray[np.int64]) -> Array:
        """Some columns (n, len(which)) of the matrix, ``which`` ascending."""
        inside = np.split(which, np.searchsorted(which, self._ends[:-1]))
        parts = zip(self.layers, self._ends, inside, strict=True)
        made = [layer.columns(some - end + layer.width) for layer, end, some in parts]
        return np.concatenate(made, axis=1)

    def sums(self, groups: NDArray[np.int64], together: int = 100) -> Array:
        """The rows of each group of records (m, k) added up (m, P), so many groups at a time."""
        made = np.empty((len(groups), self.size), _dtype(self.layers[0]))
        for at in range(0, len(groups), together):
            some = groups[at : at + together]
            np.concatenate(
                [x.sums(some) for x in self.layers], axis=1, out=made[at : at + together]
            )
        return made

    def blocks(self, flat: Array) -> list[Array]:
        """A vector (P,) layer by layer; of a dense layer a matrix, the biases its last column."""
        parts = zip(self.layers, np.split(flat, self._ends[:-1]), strict=True)
        return [layer.block(part) for layer, part in parts]

    def scaled(self, weights: Array) -> GradientRows:
        """Every record's gradient times its weight (n,)."""
        return GradientRows(tuple(layer.scaled(weights) for layer in self.layers))

    def clipped(self, clip: float) -> GradientRows:
        """Every gradient scaled down to norm ``clip``, if it is longer."""
        return self.scaled(shrinkage(self.layers, clip))

    def since(self, base: GradientRows | None = None) -> Differences:
        """These gradients less those of ``base``, record by record (None: less nothing)."""
        bases = [None] * len(self.layers) if base is None else base.layers
        made = [one.since(two) for one, two in zip(self.layers, bases, strict=True)]  # type: ignore[arg-type]
        return Differences(tuple(made))

    def explicit(self) -> Array:
        """The matrix (n, P) itself: for few records."""
        return np.concatenate([layer.explicit() for layer in self.layers], axis=-1)


def shrinkage(layers: Sequence[Outer | Written], clip: float) -> Array:
    """By what each record's gradient is multiplied so that its norm is at most ``clip``."""
    norms = np.sqrt(sum(layer.lengths() for layer in layers))
    return np.asarray(np.minimum(1.0, clip / np.maximum(norms, clip)).astype(norms.dtype))


def _dtype(layer: Outer | Written) -> np.dtype[Any]:
    return layer.errors.dtype if isinstance(layer, Outer) else layer.rows.dtype


def stacked(blocks: Sequence[GradientRows]) -> GradientRows:
    """The records of several blocks as one."""
    made: list[Outer | Written] = []
    for first, *others in zip(*(block.layers for block in blocks), strict=True):
        names = ("errors", "inputs") if isinstance(first, Outer) else ("rows",)
        every = {n: [getattr(layer, n) for layer in (first, *others)] for n in names}
        made.append(replace(first, **{n: np.concatenate(each) for n, each in every.items()}))
    return GradientRows(tuple(made))
