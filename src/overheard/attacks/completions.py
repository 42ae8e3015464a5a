"""Who may a record be of which only a part is known?

What is not known of a record is taken from donors: auxiliary records that are like it in what is
known and have the value of the secret that is asked about (hot-deck imputation by nearest
neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.stranger import beforehand, public_inputs, told
from overheard.decoding.chains import choose
from overheard.decoding.counts import same_rows
from overheard.errors import GrantKnowledge
from overheard.programs.records import Records, encode, encode_each
from overheard.transcript.knowledge import AttributeDomain, AuxiliaryData, Labels, PublicRecords
from overheard.transcript.view import View

Array = NDArray[np.float64]
LEARNED = 12
"""Completions of a record with a value that its mean is made of, so that the mean's own error is a
quarter of their spread."""
REALISED = LEARNED
"""How often what the records may be is realised: four times to learn from, four to judge by, four
for simulated clients."""
PARTS = (LEARNED + REALISED // 3, REALISED // 3, REALISED // 3)
"""Draws from three thirds of the auxiliary records."""


@dataclass(frozen=True)
class Imagined:
    """What the client's known records may be, and who its unknown ones may be.

    prior: (m, K), each record's values before listening. inputs: (K, T, m, d) and labels: (K, T, m)
    of each value: exactly so (T = 1), or any of T = `LEARNED` draws. realised: inputs (D, m, d),
    labels (D, m) and values (D, m) of the records, drawn D = `REALISED` times. ties: (m,), numbers
    of records that are alike in everything that is known of them. strangers: inputs (n, d) and
    labels (n,) of auxiliary records, none if not known.
    """

    prior: Array
    inputs: Array
    labels: Array
    realised: tuple[Array, Array, NDArray[np.intp]]
    ties: NDArray[np.intp]
    strangers: tuple[Array, Array] | None

    @property
    def exact(self) -> bool:
        """Whether all but the secret is known of each record."""
        return self.inputs.shape[1] == 1


def imagined(view: View, rng: np.random.Generator) -> Imagined:
    """What the client's records may be, given what the view knows of them."""
    recipe, records = told(view), view.know(PublicRecords).records
    domain, prior = view.know(AttributeDomain), beforehand(view)
    labels = view.know(Labels).values if Labels in view.kinds else None
    lacking = [n for n in recipe.encoding.columns() if n not in (*records.columns, *domain.columns)]
    states = np.stack([choose(prior.T, rng) for _ in range(REALISED)])
    strangers, hidden = None, dict(domain.settings[0])
    if AuxiliaryData in view.kinds:
        known = view.know(AuxiliaryData)
        hidden |= {name: known.records[name][0] for name in lacking}
        theirs = np.asarray(recipe.target.encode_values(known.labels))
        strangers = encode(recipe.encoding, known.records), theirs
    if labels is not None and not lacking:
        inputs = encode_each(recipe.encoding, records, domain.settings)[:, None]
        numbers = np.broadcast_to(recipe.target.encode_values(labels), inputs.shape[:3])
        which: Any = np.zeros((REALISED, 1), dtype=np.intp)
    elif strangers is None:
        raise GrantKnowledge(
            "of the records something is not known; what it may be is taken from auxiliary data: "
            "grant some"
        )
    else:
        inputs, numbers = _completed(view, records, labels, lacking, rng)
        which = np.arange(LEARNED, sum(PARTS))[:, None]
    at = states, which, np.arange(len(records))
    ties = same_rows(public_inputs(recipe, records, labels, hidden))
    realised = inputs[at], numbers[at], states
    return Imagined(prior, inputs[:, :LEARNED], numbers[:, :LEARNED], realised, ties, strangers)


def _completed(
    view: View, records: Records, labels: Any, lacking: Sequence[str], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws (K, T, m, d) and (K, T, m) of what records may be of which a part is not known."""
    recipe, domain, known = told(view), view.know(AttributeDomain), view.know(AuxiliaryData)
    made, targets = [], []
    for value, setting in enumerate(domain.settings):
        donors = _donors(view, records, labels, lacking, value, rng)
        for picked in donors.T:
            theirs = known.records.take(picked)
            whole = Records({**records.columns, **{name: theirs[name] for name in lacking}})
            made.append(encode(recipe.encoding, whole, setting))
            said = known.labels[picked] if labels is None else labels
            targets.append(recipe.target.encode_values(said))
    shape = (len(domain.settings), sum(PARTS), len(records))
    return np.reshape(made, (*shape, -1)), np.reshape(targets, shape)


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
    having = rng.permutation(np.flatnonzero(domain.positions(known.records) == value))
    if len(having) < 3:
        having = rng.permutation(len(known.labels))
    hidden = {**{name: known.records[name][0] for name in lacking}, **domain.settings[0]}
    mine = public_inputs(recipe, records, labels, hidden)
    theirs = public_inputs(recipe, known.records, None if labels is None else known.labels, hidden)
    scale, chosen = StandardScaler().fit(theirs) if theirs.shape[1] else None, []
    # nobody who is learned from judges, and nobody who judges is in a simulated client
    for part, many in zip(np.array_split(having, 3), PARTS, strict=True):
        wanted = min(len(part), many)
        if scale is not None and (lacking or labels is None):
            near = NearestNeighbors(n_neighbors=wanted).fit(scale.transform(theirs[part]))
            found = near.kneighbors(scale.transform(mine), return_distance=False)
        else:
            found = rng.integers(0, len(part), (len(records), wanted))
        chosen.append(part[np.resize(rng.permuted(found, axis=1).T, (many, len(records)))])
    return np.concatenate(chosen).T
