"""Who may a record be of which only a part is known, or some of it wrong?

What is not known of a record is taken from donors: auxiliary records that are like it in what is
known and have the value of the secret that is asked about (hot-deck imputation by nearest
neighbours). Of a record that is stated, but whose cells may be wrong, the alternatives are listed:
as stated, or one cell another of its column's values. They are then decoded with the secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.stranger import beforehand, public_inputs, told, with_errors
from overheard.decoding.chains import ERRORS, choose
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
LEARNED = 12
"""Completions of a record with a value that its mean is made of, so that the mean's own error is a
quarter of their spread."""
REALISED = LEARNED
"""How often what the records may be is realised: four times to learn from, four to judge by, four
for simulated clients."""
PARTS = (LEARNED + REALISED // 3, REALISED // 3, REALISED // 3)
"""Draws from three thirds of the auxiliary records."""
LISTED = 48
"""Alternatives of a record: twice as many change nothing. Of a number, quantiles."""


@dataclass(frozen=True)
class Completions:
    """One way in which records may be: exactly so (T = 1), or as any of T = `LEARNED` draws.

    prior: (m, K), how likely it is together with each value; inputs: (K, T, m, d); labels:
    (K, T, m); untold: an error that nobody spoke of.
    """

    prior: Array
    inputs: Array
    labels: Array
    untold: bool = False


@dataclass(frozen=True)
class Realised:
    """What the records may be, drawn `REALISED` times: inputs (D, m, d), labels (D, m), and which
    candidate that is or is nearest to (D, m), value-major; exact: it is, always."""

    inputs: Array
    labels: Array
    states: NDArray[np.intp]
    exact: bool = False


@dataclass(frozen=True)
class Imagined:
    """Everything that the client's known records may be, and who its unknown ones may be.

    ties: (m,), numbers of records that are alike in everything that is known of them; strangers:
    inputs (n, d) and labels (n,) of auxiliary records, none if not known.
    """

    ties: NDArray[np.intp]
    ways: tuple[Completions, ...]
    realised: Realised
    strangers: tuple[Array, Array] | None

    @property
    def prior(self) -> Array:
        """Each record's values before listening (m, K)."""
        return np.asarray(sum(way.prior for way in self.ways))


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
    ways, realised = (_drawn if partial else _stated)(view, records, labels, wrong, rng)
    strangers, hidden = None, dict(view.know(AttributeDomain).settings[0])
    if AuxiliaryData in view.kinds:
        known = view.know(AuxiliaryData)
        hidden |= {n: known.records[n][0] for n in inputs - set(records.columns)}
        theirs = np.asarray(recipe.target.encode_values(known.labels))
        strangers = encode(recipe.encoding, known.records), theirs
    ties = same_rows(public_inputs(recipe, records, labels, hidden))
    return Imagined(ties, ways, realised, strangers)


def _stated(
    view: View, records: Records, labels: Any, wrong: WrongCells, rng: np.random.Generator
) -> tuple[tuple[Completions, ...], Realised]:
    """As stated, and all else that a stated record may be if one of its cells is wrong."""
    recipe, domain = told(view), view.know(AttributeDomain)
    clean = view.narrowed(view.kinds - {WrongCells})

    def way(cells: Records, said: Any, weight: Any, untold: bool = False) -> Completions:
        inputs = encode_each(recipe.encoding, cells, domain.settings)
        numbers = np.broadcast_to(recipe.target.encode_values(said), inputs.shape[:2])
        prior = weight[:, None] * beforehand(clean, cells, said)
        return Completions(prior, inputs[:, None], numbers[:, None], untold)

    ways = [way(records, labels, np.ones(len(labels)))]
    if AuxiliaryData in view.kinds:
        known = view.know(AuxiliaryData)
        seen = [n for n in recipe.encoding.columns() if n in records.columns]
        most = LISTED // max(len(seen), 1) + 1
        for name in seen if wrong.cells else ():
            for value, odds in _values(known.records[name], records[name], wrong.cells, most):
                column = np.repeat(np.asarray(value)[None], len(labels), axis=0)
                ways.append(way(Records({**records.columns, name: column}), labels, odds))
        share = wrong.labels or ERRORS[0] / sum(ERRORS)
        if wrong.labels or recipe.target.classes:
            for value, odds in _values(known.labels, labels, share, most):
                said = np.repeat(np.asarray(value)[None], len(labels), axis=0)
                ways.append(way(records, said, odds, not wrong.labels))
    total = sum(one.prior.sum(axis=1, keepdims=True) for one in ways)
    ways = [replace(one, prior=one.prior / total) for one in ways]
    return tuple(ways), _realised(view, ways, wrong, rng)


def _values(
    theirs: NDArray[Any], stated: NDArray[Any], share: float, most: int
) -> Iterator[tuple[Any, Array]]:
    """Values that a column may have, at most so many, and the odds (m,) of each against what is
    stated, if such a share of its cells are others'."""
    values, counts = np.unique(theirs, axis=0, return_counts=True)
    if len(values) > most and theirs.ndim == 1 and theirs.dtype.kind == "f":
        at = np.quantile(theirs, (np.arange(most) + 0.5) / most, method="nearest")
        values, counts = np.unique(at, return_counts=True)
    often = np.sort(np.argsort(-counts, kind="stable")[:most])
    for value, count in zip(values[often], counts[often] / counts[often].sum(), strict=True):
        other = (stated != value).reshape(len(stated), -1).any(axis=1)
        yield value, share / (1 - share) * count * other


def _realised(
    view: View, ways: Sequence[Completions], wrong: WrongCells, rng: np.random.Generator
) -> Realised:
    """The records with errors drawn, and which of the ways each is nearest to."""
    recipe, domain = told(view), view.know(AttributeDomain)
    records, labels = view.know(PublicRecords).records, view.know(Labels).values
    listed = [one for one in ways if not one.untold]  # these come first
    prior = np.asarray(sum(one.prior for one in listed))
    here, made = np.arange(len(labels)), []
    for _ in range(REALISED):
        cells, said, value = records, labels, choose(prior.T, rng)
        if wrong != WrongCells():
            cells, said = with_errors(records, labels, wrong, view.know(AuxiliaryData), rng)
        x = encode_each(recipe.encoding, cells, domain.settings)[value, here]
        y = np.asarray(recipe.target.encode_values(said))
        apart = [
            ((x - one.inputs[value, 0, here]) ** 2).sum(axis=1)
            + (y - one.labels[value, 0, here]) ** 2
            for one in listed
        ]
        made.append((x, y, value * len(ways) + np.argmin(apart, axis=0)))
    x, y, states = (np.array(part) for part in zip(*made, strict=True))
    return Realised(x, y, states, wrong == WrongCells())


def _drawn(
    view: View, records: Records, labels: Any, wrong: WrongCells, rng: np.random.Generator
) -> tuple[tuple[Completions, ...], Realised]:
    """Draws of what records may be of which a part is not known."""
    recipe, domain, known = told(view), view.know(AttributeDomain), view.know(AuxiliaryData)
    lacking = [n for n in recipe.encoding.columns() if n not in (*records.columns, *domain.columns)]
    made, targets = [], []
    for value, setting in enumerate(domain.settings):
        donors = _donors(view, records, labels, lacking, value, rng)
        for picked in donors.T:
            theirs = known.records.take(picked)
            whole = {**records.columns, **{name: theirs[name] for name in lacking}}
            said = known.labels[picked] if labels is None else labels
            spoilt, said = with_errors(Records(whole), said, wrong, known, rng)
            made.append(encode(recipe.encoding, spoilt, setting))
            targets.append(recipe.target.encode_values(said))
    shape = (len(domain.settings), sum(PARTS), len(records))
    inputs, numbers, prior = (
        np.reshape(made, (*shape, -1)),
        np.reshape(targets, shape),
        beforehand(view),
    )
    states = np.stack([choose(prior.T, rng) for _ in range(REALISED)])
    at = states, np.arange(LEARNED, sum(PARTS))[:, None], np.arange(len(records))
    way = Completions(prior, inputs[:, :LEARNED], numbers[:, :LEARNED])
    return (way,), Realised(inputs[at], numbers[at], states)


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
