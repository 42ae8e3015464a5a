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
from overheard.learning.recipe import Dense, LeNet, Recipe
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
    model = recipe.model
    if not isinstance(model, LeNet) or model.dropout:
        raise ChooseAnotherAttack(
            "decodes networks without chance in them; this one drops units at random"
        )
    if not recipe.full_batch or (link.payload == "model" and recipe.epochs != 1):
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
    from overheard.learning.lenet import explicit_gradients  # torch: only where it is needed

    link = only(link, spread(len(link), min(most, room)))
    scale = people / (1.0 if link.payload == "gradient" else recipe.learning_rate)
    updates, noise = link.updates() * scale, rounding(link) * scale
    differences, residual = [], []
    for sent, update in zip(link.sent, updates, strict=True):
        theta = sent.astype(np.float64)
        base, *others = (
            added_up(recipe, explicit_gradients(model, theta, x, labels)) for x in candidates
        )
        differences.append(np.stack([other - base for other in others], axis=1))
        residual.append(update - base.sum(axis=0))
    return from_differences(
        np.concatenate(differences, axis=2), np.concatenate(residual), noise.ravel()
    )
