"""Whose records are whose messages, where the recording and the table have different names?

A client's own records pull its model where it went, whatever the optimiser and the rate: one step
of descent on every table client's records, or its signs, is compared in direction with what every
recorded client sent, and the pairs that agree best on the whole are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from overheard.errors import FixConfig
from overheard.identify.evidence import Messages, Seen, replayed
from overheard.identify.search import OPTIMISERS, Structure
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
    best: tuple[float, list[int]] = (-np.inf, [])
    for structure in structures:
        for name in ("SGD", "Adam"):
            alike = _agreement(structure, name, structure.seen, first)
            rows, columns = linear_sum_assignment(-alike)
            found = (float(alike[rows, columns].mean()), columns.tolist())
            best = max(best, found, key=lambda b: b[0])
    return best[1]


def _agreement(
    structure: Structure, optimiser: str, seen: Seen, heard: Messages
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Cosines (recorded, table clients) of what was sent with a small step on their records."""
    rule: dict[str, Any] = {"learning_rate": _STEP}
    if not structure.recipe.sends_gradient:
        rule |= {"optimiser": OPTIMISERS[optimiser]}
    recipe = structure.recipe.model_copy(update=rule)
    alike = np.zeros((int(heard.client.max()) + 1, len(seen.labels)))
    for number in range(len(seen.labels)):
        every = Messages(heard.sent, heard.added, heard.rounded, np.full(len(heard.sent), number))
        step = replayed(recipe, seen, every, 1)[:, 0]
        lengths = np.linalg.norm(step, axis=1) * np.linalg.norm(heard.added, axis=1)
        cosines = (step * heard.added).sum(axis=1) / np.maximum(lengths, np.finfo(float).tiny)
        alike[:, number] = np.bincount(heard.client, cosines) / np.bincount(heard.client)
    return alike
