"""Very many records: the first layer's equations alone, in chunks, without a Gram matrix.

The attribute enters the first layer directly, and a wide first layer has far more parameters than
there are records. Its equations are used; the other layers' factors are made chunk by chunk and
let go (decoders.md section 4: 20,000 records, 1.5 million parameters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import one_step, rate_of, rounding
from overheard.decoding.limits import BLOCK, UNKNOWNS
from overheard.decoding.matrix_free import OuterProducts, Part, decode_matrix_free
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.ties import same_rows
from overheard.programs.gradient_rows import Outer
from overheard.programs.networks import network
from overheard.programs.private import client_rows
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]


def applies(link: Link, recipe: Recipe, unknowns: int) -> bool:
    """One full-batch step, very many unknowns, and a first layer with more parameters than that."""
    if unknowns <= UNKNOWNS or not one_step(link, recipe):
        return False
    return network(recipe).factored and _first(recipe).width > 2 * unknowns


def decode_first_layer(
    link: Link,
    recipe: Recipe,
    records: Records,
    labels: Array,
    settings: Sequence[Mapping[str, Value]],
) -> tuple[Posterior, NDArray[np.intp]]:
    """The posterior from the first round's first layer, and the numbers of records alike."""
    people, first = len(labels), _first(recipe)
    theta = link.sent[0].astype(np.float64)
    scale = people / rate_of(link, recipe)
    residual: Array = first.block(link.updates()[0, : first.width] * scale).astype(np.float64)
    noise = float(np.sqrt(np.mean((rounding(link)[0, : first.width] * scale) ** 2)))
    base = encode(recipe.encoding, records, settings[0])
    own = recipe.encoding.inputs_of_all(settings[0])
    ends = np.ones((people, 1 if first.bias else 0))
    delta0 = np.empty((people, first.errors.shape[1]))
    deltas = [np.empty_like(delta0) for _ in settings[1:]]
    others = [encode(recipe.encoding, records.take(np.arange(1)), s)[0, own] for s in settings]
    chunk = max(1, BLOCK // first.width)
    for start in range(0, people, chunk):
        rows = slice(start, start + chunk)
        x, y = base[rows].copy(), labels[rows]
        delta0[rows] = _errors(recipe, theta, x, y)
        weighted = delta0[rows].T @ np.column_stack([x, ends[rows]])
        residual = residual - weighted
        for delta, inputs in zip(deltas, others[1:], strict=True):
            x[:, own] = inputs
            delta[rows] = _errors(recipe, theta, x, y)
            delta[rows] -= delta0[rows]
    inside = np.array(own)
    design = np.column_stack([base, ends])
    features = []
    for delta, inputs in zip(deltas, others[1:], strict=True):
        # (delta_1 - delta_0) [a_1, 1]' + delta_0 [a_1 - a_0, 0]', the latter in few columns
        moved = np.tile(inputs - others[0], (people, 1))
        features.append(
            (
                Part(delta, design, np.arange(design.shape[1])),
                Part(delta, moved, inside),
                Part(delta0, moved, inside),
            )
        )
    groups = same_rows(np.column_stack([base, labels]))
    operator = OuterProducts(features, (residual.shape[0], residual.shape[1]))
    return decode_matrix_free(operator, residual, noise, groups), groups


def _first(recipe: Recipe) -> Outer:
    """The first layer of a gradient, for its shape."""
    theta, record = np.zeros(recipe.model.size), np.zeros((1, recipe.model.inputs))
    first = network(recipe).rows(theta, record, np.zeros(1)).layers[0]
    assert isinstance(first, Outer)
    return first


def _errors(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> Array:
    """Errors (n, out) of the first layer."""
    first = client_rows(recipe, theta, inputs, labels).layers[0]
    assert isinstance(first, Outer)
    return np.asarray(first.errors, np.float64)
