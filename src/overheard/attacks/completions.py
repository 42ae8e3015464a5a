"""Who may a record be of which only a part is known? Completions, from auxiliary records.

What is not known of a record is taken from donors: auxiliary records that are like it in what is
known and have the value of the secret that is asked about (hot-deck imputation by nearest
neighbours). Cells that may be wrong are replaced by others' at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.stranger import beforehand, public_inputs, told, with_errors
from overheard.decoding.counts import same_rows
from overheard.errors import GrantKnowledge
from overheard.programs.records import Records, encode, encode_each
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    Labels,
    PublicRecords,
    WrongCells,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
LEARNED, HELD_OUT = 12, 4
"""Completions of a record with a value: those that its mean is made of, so that the mean's own
error is a quarter of their spread, and those that judge, and those that simulated clients have."""
DRAWS = LEARNED + 2 * HELD_OUT
NEAR = 1.5
"""Donors among whom is drawn, for each draw: near, but not always the same."""


@dataclass(frozen=True)
class Completions:
    """One way in which records may be: exactly so (T = 1), or as any of T = `DRAWS` draws.

    weight: how likely this way is; inputs: (K, T, m, d); labels: (K, T, m).
    """

    weight: float
    inputs: Array
    labels: Array


@dataclass(frozen=True)
class Imagined:
    """Everything that the client's known records may be, and who its unknown ones may be.

    prior: (m, K); ties: (m,), numbers of records that are alike in everything that is known of
    them; strangers: inputs (n, d) and labels (n,) of auxiliary records, none if not known.
    """

    prior: Array
    ties: NDArray[np.intp]
    ways: tuple[Completions, ...]
    strangers: tuple[Array, Array] | None


def imagined(view: View, rng: np.random.Generator) -> Imagined:
    """What the client's records may be, given what the view knows of them."""
    recipe, records = told(view), view.know(PublicRecords).records
    labels = view.know(Labels).values if Labels in view.kinds else None
    wrong = view.know(WrongCells) if WrongCells in view.kinds else WrongCells()
    inputs = set(recipe.encoding.columns()) - set(view.know(AttributeDomain).columns)
    partial = labels is None or not inputs <= set(records.columns)
    if (partial or wrong != WrongCells()) and AuxiliaryData not in view.kinds:
        raise GrantKnowledge(
            "of the records something is not known, or is wrong; what it may be is taken from "
            "auxiliary data: grant some"
        )
    # as stated, where all of it is known and may be right; else as one of many draws
    right = 0.0 if partial else (1 - wrong.cells) ** len(inputs) * (1 - wrong.labels)
    ways = []
    if right:
        stated = encode_each(recipe.encoding, records, view.know(AttributeDomain).settings)
        numbers = np.asarray(recipe.target.encode_values(view.know(Labels).values))
        repeated = np.broadcast_to(numbers, stated.shape[:2])
        ways.append(Completions(right, stated[:, None], repeated[:, None]))
    if right < 1:
        drawn = _drawn(view, records, labels, wrong, right > 0, rng)
        ways.append(Completions(1 - right, *drawn))
    strangers, hidden = None, dict(view.know(AttributeDomain).settings[0])
    if AuxiliaryData in view.kinds:
        known = view.know(AuxiliaryData)
        hidden |= {n: known.records[n][0] for n in inputs - set(records.columns)}
        theirs = np.asarray(recipe.target.encode_values(known.labels))
        strangers = encode(recipe.encoding, known.records), theirs
    ties = same_rows(public_inputs(recipe, records, labels, hidden))
    return Imagined(beforehand(view), ties, tuple(ways), strangers)


def _drawn(
    view: View,
    records: Records,
    labels: Any,
    wrong: WrongCells,
    surely: bool,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Inputs (K, T, m, d) and labels (K, T, m) of draws of what the records may be."""
    recipe, domain, known = told(view), view.know(AttributeDomain), view.know(AuxiliaryData)
    lacking = [n for n in recipe.encoding.columns() if n not in (*records.columns, *domain.columns)]
    inputs, targets = [], []
    for value, setting in enumerate(domain.settings):
        donors = _donors(view, records, labels, lacking, value, rng)
        for picked in donors.T:
            theirs = known.records.take(picked)
            whole = {**records.columns, **{name: theirs[name] for name in lacking}}
            said = known.labels[picked] if labels is None else labels
            spoilt, said = with_errors(Records(whole), said, wrong, known, rng, surely)
            inputs.append(encode(recipe.encoding, spoilt, setting))
            targets.append(recipe.target.encode_values(said))
    shape = (len(domain.settings), DRAWS, len(records))
    return np.reshape(inputs, (*shape, -1)), np.reshape(targets, shape)


def _donors(
    view: View,
    records: Records,
    labels: Any,
    lacking: Sequence[str],
    value: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """For each record so many auxiliary records (m, T) with this value that are like it."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    domain, known, recipe = view.know(AttributeDomain), view.know(AuxiliaryData), told(view)
    having = np.flatnonzero(domain.positions(known.records) == value)
    if not len(having):
        having = np.arange(len(known.labels))
    hidden = {**{name: known.records[name][0] for name in lacking}, **domain.settings[0]}
    mine = public_inputs(recipe, records, labels, hidden)
    theirs = public_inputs(recipe, known.records, None if labels is None else known.labels, hidden)
    wanted = min(len(having), round(NEAR * DRAWS))
    if mine.shape[1] and (lacking or labels is None):
        scale = StandardScaler().fit(theirs)
        near = NearestNeighbors(n_neighbors=wanted).fit(scale.transform(theirs[having]))
        found = near.kneighbors(scale.transform(mine), return_distance=False)
    else:
        found = rng.integers(0, len(having), (len(records), wanted))
    return having[np.resize(rng.permuted(found, axis=1).T, (DRAWS, len(records))).T]
