"""Whose records are whose messages, where the recording and the table have different names?

A client's own records pull its model where it went, whatever the optimiser and the rate: one step
of descent on every table client's records, or its signs, is compared in direction with what every
recorded client sent, and the pairs that agree best on the whole are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from overheard.errors import FixConfig
from overheard.federation.config import parse_config
from overheard.federation.plan import load_data
from overheard.identify.evidence import Messages, Seen, replayed
from overheard.identify.search import OPTIMISERS, Structure
from overheard.identify.variants import described, messages, structures
from overheard.programs.records import encode
from overheard.transcript.store import Recording

MOST_PAIRS = 2500
"""Of a recorded and a table client, each of which is a step of training or a few."""
_STEP = 1e-3  # the rate at which directions are compared: small, so that it does not matter


def who_is_who(
    recording: Recording, given: Mapping[str, Any], work: Path, trust_code: bool
) -> dict[str, str]:
    """A recorded client's name to its name in the table; nothing where names agree."""
    model, rule = {"name": "linear"}, {"rounds": 1, "learning_rate": _STEP}
    data = {k: v for k, v in given["data"].items() if k != "task"}
    table = load_data(parse_config({"data": data, "model": model, "training": rule})).by_client()
    heard = [who for who in recording.clients if any(("returned", who) in e.spans
                                                     for e in recording.rounds)]  # fmt: skip
    if given.get("clients") or set(heard) & set(table):
        return {}
    names = list(table)
    if len(heard) * len(names) > MOST_PAIRS or len(heard) > len(names):
        raise FixConfig(
            f"none of the {len(heard)} recorded clients is in column {data['client']!r} of the "
            f"table, which has {len(names)}: record with the table's names, or say who is who in "
            "[clients] of audit.toml"
        )
    anybody = dict(zip(heard, names, strict=False))
    best = (-np.inf, anybody)
    for known in described(recording, {**given, "clients": anybody}, work, trust_code):
        if known.description.data.scale != "records":
            continue
        first = messages(known.recording, list(anybody.values()), rounds=2)
        for structure in structures(known, list(anybody.values())):
            recipe = structure.recipe
            seen = Seen(
                tuple(encode(recipe.encoding, table[name]) for name in names),
                tuple(recipe.target.encode(table[name]) for name in names),
            )
            for name in ("SGD", "Adam"):
                alike = _agreement(structure, name, seen, first)
                rows, columns = linear_sum_assignment(-alike)
                found = {heard[r]: names[c] for r, c in zip(rows, columns, strict=True)}
                best = max(best, (float(alike[rows, columns].mean()), found), key=lambda b: b[0])
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
