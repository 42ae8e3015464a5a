"""Which candidate is each record, whatever the client's training: any network, loss and rule?

Where nothing is random the answer is solved and proven (`by_replay`); what is not proven, and
whatever has an unknown order of batches, is decoded against simulated clients (`by_simulation`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.by_replay import Replay, tied
from overheard.attacks.by_simulation import Answer, by_simulation
from overheard.attacks.order_search import guessed
from overheard.attacks.wire import only, spread
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.orders import Place
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates
from overheard.transcript.knowledge import BatchOrder, Link

Array = NDArray[np.float64]

MOST_ROUNDS = 5
"""Rounds that are used, spread evenly: each costs as much as the first."""
MOST_NUMBERS = 500_000_000
"""Numbers of all columns and noise columns together: 2 GB in float32."""


def decode_training(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    prior: Array,
    ties: NDArray[np.intp],
    rng: np.random.Generator,
    order: BatchOrder | None = None,
) -> Answer:
    """Probabilities of each record's candidates; prior (n, K); ties (n,) number records alike, of
    which only the count of each value can be known. ``order``: what is known, or guessed, of the
    order of the batches."""
    _refuse(recipe, candidates)
    found = replayed(link, recipe, candidates, prior, ties, order)
    if found is None:
        found = by_simulation(
            only(link, spread(len(link), MOST_ROUNDS)), recipe, candidates, prior, rng
        )
        found = replace(found, probabilities=tied(found.probabilities, ties))
    return found


def replayed(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    prior: Array,
    ties: NDArray[np.intp],
    order: BatchOrder | None = None,
) -> Answer | None:
    """The proven answer of a client whose training has nothing random in it, if one is found: full
    batches, or mini-batches in an order that is known or can be guessed."""
    net = network(recipe)
    if net.chance or net.mixes or link.noise_sd or _numbers(recipe, candidates) > MOST_NUMBERS:
        return None
    first = only(link, np.arange(1))
    if recipe.full_batch:
        found = Replay(first, recipe, candidates, prior, ties).answer()
    elif order is None or not candidates.present.all():
        return None  # who is not known to be there has no place in the order
    else:
        place = Place(int(link.rounds[0]), recipe.epochs, len(prior), recipe.model.size)
        known = order.known(place)
        if known is None:
            rng = np.random.default_rng(0)
            found = guessed(link, recipe, candidates, prior, ties, order, rng)
        else:
            found = Replay(first, recipe, candidates, prior, ties, [known]).answer()
    return found


def _numbers(recipe: Recipe, candidates: Candidates) -> int:
    """Of all columns and noise columns together."""
    values, n, _ = candidates.inputs.shape
    return int(n * (values + 7) * min(recipe.model.size, max(3000, 8 * n * (values - 1))))


def _refuse(recipe: Recipe, candidates: Candidates) -> None:
    if recipe.sends_gradient or recipe.private is not None or recipe.steps is not None:
        raise ChooseAnotherAttack(
            "decodes whole local epochs; these clients send gradients, take private steps or stop "
            "after some mini-batches"
        )
    if network(recipe).mixes:
        raise ChooseAnotherAttack(
            "decodes models that treat records one by one; this one normalises over the batch"
        )
    values, n, _ = candidates.inputs.shape
    numbers = _numbers(recipe, candidates)
    if numbers > MOST_NUMBERS:
        raise ChooseAnotherAttack(
            f"{n} records with {values} candidates and {recipe.model.size} parameters need "
            f"{numbers:.2g} numbers at once, beyond {MOST_NUMBERS:.2g}; audit a smaller client"
        )
