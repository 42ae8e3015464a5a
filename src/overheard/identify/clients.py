"""Whose records are whose messages, where the recording and the table have different names?

A client's own records pull its model where it went, whatever the optimiser and the rate: one step
of descent on every table client's records, or its signs, is compared in direction with what every
recorded client sent, and the pairs that agree best on the whole are taken. Clients that are much
alike are told apart by training as the pairs suggest: at the rate that fits these, every table
client's records are trained on, and the pairs that come closest are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from overheard.errors import FixConfig
from overheard.identify.evidence import Messages, replayed
from overheard.identify.search import FEW, OPTIMISERS, Structure, fit_rate
from overheard.identify.variants import Asked

MOST_PAIRS = 2500
"""Of a recorded and a table client, each of which is a step of training or a few."""
_STEP = 1e-3  # the rate at which directions are compared: small, so that it does not matter


def anybody(asked: Asked, heard: Sequence[str]) -> dict[str, str]:
    """Recorded clients to any of the table's; nothing where the names agree, or are given."""
    names = list(asked.dataset.by_client())
    if asked.given.get("clients") or set(heard) & set(names):
        return {}
    if len(heard) * len(names) > MOST_PAIRS or len(heard) > len(names):
        raise FixConfig(
            f"none of the {len(heard)} recorded clients is in column {asked.dataset.client!r} of "
            f"the table, which has {len(names)}: record with the table's names, or say who is who "
            "in [clients] of audit.toml"
        )
    return dict(zip(heard, names, strict=False))


def who_is_who(structures: Sequence[Structure], first: Messages) -> list[int]:
    """Of every recorded client, in their order in the messages, the number of its records among
    those that the structures have seen."""

    def alike(trial: tuple[Structure, str]) -> tuple[float, list[int]]:
        cosines = _agreement(*trial, first)
        rows, columns = linear_sum_assignment(-cosines)
        return float(cosines[rows, columns].mean()), columns.tolist()

    structure, name = max(product(structures, ("SGD", "Adam")), key=lambda t: alike(t)[0])
    pairs = alike((structure, name))[1]
    if structure.recipe.sends_gradient:
        return pairs
    seen = structure.seen
    batch = 32 if max(map(len, seen.labels)) > 32 else None
    recipe = structure.recipe.model_copy(
        update={"optimiser": OPTIMISERS[name], "batch_size": batch, "learning_rate": _STEP}
    )
    recipe, _ = fit_rate(recipe, seen, replace(first, client=np.array(pairs)[first.client]), FEW)
    apart = np.zeros((len(pairs), len(seen.labels)))
    for number in range(len(seen.labels)):
        every = replace(first, client=np.full(len(first.sent), number))
        far = first.added - replayed(recipe, seen, every, FEW).mean(axis=1)
        apart[:, number] = np.bincount(first.client, (far**2).sum(axis=1))
    return list(linear_sum_assignment(apart)[1].tolist())


def _agreement(
    structure: Structure, optimiser: str, heard: Messages
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Cosines (recorded, table clients) of what was sent with a small step on their records."""
    seen = structure.seen
    rule: dict[str, Any] = {"learning_rate": _STEP}
    if not structure.recipe.sends_gradient:
        rule |= {"optimiser": OPTIMISERS[optimiser]}
    recipe = structure.recipe.model_copy(update=rule)
    alike = np.zeros((int(heard.client.max()) + 1, len(seen.labels)))
    for number in range(len(seen.labels)):
        every = replace(heard, client=np.full(len(heard.sent), number))
        step = replayed(recipe, seen, every, 1)[:, 0]
        lengths = np.linalg.norm(step, axis=1) * np.linalg.norm(heard.added, axis=1)
        cosines = (step * heard.added).sum(axis=1) / np.maximum(lengths, np.finfo(float).tiny)
        alike[:, number] = np.bincount(heard.client, cosines) / np.bincount(heard.client)
    return alike
