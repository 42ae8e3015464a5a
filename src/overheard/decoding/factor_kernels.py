"""Inner products of per-record gradients of dense layers, without the gradients.

The gradient of one record's loss by a dense layer's weights and bias is the outer product of its
error ``delta`` and its input ``[a, 1]``. What a decoder needs is the difference between two
candidate values of the same record,

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

Array = NDArray[np.float64]
Factors = Sequence[tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]]
"""Per layer: inputs a (n, fan_in) and errors delta (n, fan_out)."""


@dataclass(frozen=True)
class Difference:
    """One layer of n gradient differences: sum over the parts of ``errors ⊗ inputs``.

    errors: (2, n, fan_out); inputs: (2, n, fan_in [+ 1 for the bias]). One part instead of two for
    a gradient by itself.
    """

    errors: Array
    inputs: Array


def difference(base: Factors, other: Factors, bias: bool) -> list[Difference]:
    """The layers of ``gradient(other) - gradient(base)`` for each record."""
    layers = []
    for (a0, d0), (a1, d1) in zip(base, other, strict=True):
        inputs = np.stack([a1, a1 - a0]).astype(np.float64)
        if bias:
            ends = np.zeros((2, len(a0), 1))
            ends[0] = 1.0
            inputs = np.concatenate([inputs, ends], axis=2)
        layers.append(Difference(np.stack([d1 - d0, d0]).astype(np.float64), inputs))
    return layers


def gram(left: Sequence[Difference], right: Sequence[Difference]) -> Array:
    """Inner products (n_left, n_right) of two lists of gradient differences."""
    total = np.zeros((left[0].errors.shape[1], right[0].errors.shape[1]))
    for one, two in zip(left, right, strict=True):
        for p in range(len(one.errors)):
            for q in range(len(two.errors)):
                if one is two and q > p:
                    continue  # the mirror image of (q, p)
                inputs = _shared(one.inputs[p], two.inputs[q])
                if inputs is None:
                    continue
                part = (one.errors[p] @ two.errors[q].T) * (inputs[0] @ inputs[1].T)
                total += part + part.T if one is two and q < p else part
    return total


def _shared(left: Array, right: Array) -> tuple[Array, Array] | None:
    """The columns in which both have anything at all; None if there is none.

    An attribute moves few of a first layer's inputs, so that most of a difference is zeros.
    """
    both = np.asarray(left.any(axis=0) & right.any(axis=0))
    if not both.any():
        return None
    return (left, right) if 2 * both.sum() > len(both) else (left[:, both], right[:, both])


def squares(layers: Sequence[Difference]) -> Array:
    """The diagonal (n,) of :func:`gram` of gradient differences with themselves."""
    total = np.zeros(layers[0].errors.shape[1])
    for layer in layers:
        errors = np.einsum("pnj,qnj->pqn", layer.errors, layer.errors)
        total += (errors * np.einsum("pnj,qnj->pqn", layer.inputs, layer.inputs)).sum(axis=(0, 1))
    return total


def project(layers: Sequence[Difference], blocks: Sequence[Array]) -> Array:
    """Inner products (n,) of gradient differences with one gradient.

    ``blocks``: per layer the gradient as (fan_out, fan_in [+ 1 for the bias]).
    """
    total = np.zeros(layers[0].errors.shape[1])
    for layer, block in zip(layers, blocks, strict=True):
        for p in range(len(layer.errors)):
            columns = layer.inputs[p].any(axis=0)
            inputs, some = layer.inputs[p], block
            if 2 * columns.sum() < len(columns):
                inputs, some = inputs[:, columns], block[:, columns]
            total += np.einsum("nj,nj->n", layer.errors[p] @ some, inputs)
    return total


def explicit(layers: Sequence[Difference], bias: bool) -> Array:
    """The gradient differences themselves (n, P), weights before bias: for few parameters."""
    parts = []
    for layer in layers:
        whole = np.einsum("pno,pni->noi", layer.errors, layer.inputs)
        n = whole.shape[0]
        if bias:
            parts += [whole[:, :, :-1].reshape(n, -1), whole[:, :, -1]]
        else:
            parts.append(whole.reshape(n, -1))
    return np.concatenate(parts, axis=1)
