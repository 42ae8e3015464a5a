"""The secret column's moments, from updates of linear least squares (decoders.md section 2.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import rate_of, rounding, spread
from overheard.decoding.moments import Moments, Steps, moments_of_secret, statistics
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Scaled, encode
from overheard.transcript.knowledge import AttributeDomain, Link


def linear_moments(
    link: Link,
    recipe: Recipe,
    records: Records,
    labels: NDArray[np.float64],
    domain: AttributeDomain,
    most: int,
) -> tuple[Moments, NDArray[np.float64]]:
    """The secret's moments and each record's statistics (decoders.md section 2.1)."""
    inputs = recipe.encoding.inputs_of_all(domain.columns)
    public = encode(recipe.encoding, records, domain.settings[0])
    blocks = np.zeros((len(domain.values), recipe.encoding.width))
    for k, setting in enumerate(domain.settings):
        one = encode(recipe.encoding, records.take(np.arange(1)), setting)
        blocks[k, inputs] = one[0, inputs]
    public[:, inputs] = 0.0
    variance = np.zeros_like(blocks)
    for k, deviation in enumerate(domain.spread):
        variance[k, inputs] = (deviation / scale_of(recipe, domain.column)) ** 2
    phi = statistics(public, labels)
    used = spread(len(link), most)
    # the solver's own float64 arithmetic, which matters where the wire is as precise
    solver = 64 * np.finfo(np.float64).eps * np.abs(link.sent[used]).max()
    rate = rate_of(link, recipe)
    moments = moments_of_secret(
        link.sent[used].astype(np.float64),
        link.updates()[used],
        np.hypot(rounding(link)[used], solver),
        phi,
        blocks,
        Steps(
            2 * rate / len(phi),
            1 if link.gradients else recipe.epochs,
            recipe.model.bias,
            recipe.proximal * rate,
        ),
        variance,
    )
    return moments, phi


def scale_of(recipe: Recipe, column: str) -> float:
    """By how much a number is divided before the model sees it."""
    block = next(b for b in recipe.encoding.blocks if b.column == column)
    return block.scale if isinstance(block, Scaled) else 1.0
