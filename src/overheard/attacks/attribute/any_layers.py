"""Updates of networks whose layers are not all dense, as a measurement of the records' values.

One full-batch step is linear in the values whatever the layers (decoders.md section 1). Per-record
gradients come from vmap over autograd and are written out, so this is for few records and small
networks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import only, rounding, spread
from overheard.decoding.measurement import Measurement, from_differences
from overheard.errors import ChooseAnotherAttack
from overheard.learning.private import added_up
from overheard.learning.recipe import Dense, Recipe
from overheard.programs.networks import network
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]

MOST_NUMBERS = 60_000_000
"""Gradients are written out up to so many numbers (480 MB)."""


def applies(recipe: Recipe) -> bool:
    """Is there a layer that is not dense?"""
    return not isinstance(recipe.model, Dense)


def written_measurement(
    link: Link, recipe: Recipe, candidates: Array, labels: Array, most: int
) -> Measurement:
    """The measurement of which candidate (K, m, d) each record is, from at most ``most`` rounds,
    as many as can be written out."""
    model, net = recipe.model, network(recipe)
    if net.chance or net.mixes:
        raise ChooseAnotherAttack(
            "decodes networks that treat records one by one and without chance; this one drops "
            "units at random or normalises over the batch"
        )
    if not recipe.one_step:
        raise ChooseAnotherAttack(
            "decodes one full-batch step a round of such networks; this recipe takes several"
        )
    values, people, _ = candidates.shape
    room = MOST_NUMBERS // (people * (values - 1) * model.size)
    if not room:
        raise ChooseAnotherAttack(
            f"{people} records and {model.size} parameters are too many gradients to write out; "
            "of dense layers any number can be decoded"
        )
    link = only(link, spread(len(link), min(most, room)))
    scale = people / recipe.rate
    updates, noise = link.updates() * scale, rounding(link) * scale
    differences, residual = [], []
    for sent, update in zip(link.sent, updates, strict=True):
        theta = sent.astype(np.float64)
        base, *others = (
            added_up(recipe, net.rows(theta, x, labels).explicit()) for x in candidates
        )
        differences.append(np.stack([other - base for other in others], axis=1))
        residual.append(update - base.sum(axis=0))
    return from_differences(
        np.concatenate(differences, axis=2), np.concatenate(residual), noise.ravel()
    )
