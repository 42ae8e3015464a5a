"""What is a client's message made of, where only a part of its records is known?

Of everything that the known records may be and of strangers in the place of the unknown ones:
sums over one long list of imagined records, for `overheard.decoding.nuisance`. What is decoded of a
known record is its value and, where cells may be wrong, whether it is as stated: whoever is as
stated adds no noise, which a mean over both would forget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from overheard.attacks.completions import HELD_OUT, LEARNED, Completions, Imagined
from overheard.decoding.nuisance import Sums

Array = NDArray[np.float64]
Places = NDArray[np.intp]
CLIENTS = 4
"""Simulated clients: of a hundred records each they tell the temperature to a tenth."""
SUPPRESSED = 2400
"""Deviations that the filter is made from: a matrix of so many is inverted in a second."""
STRANGERS = 1000
"""Auxiliary records, in each of three parts, that stand for those that are not known."""


@dataclass(frozen=True)
class People:
    """Imagined records: inputs (N, d), labels (N,), how likely it is that a record of the client
    is this one (N,); sums of them; before listening, how likely each record (m, K W) has each value
    in each way, value-major; and which it is (s, m) in the clients that were simulated."""

    inputs: Array
    labels: Array
    chances: Array
    sums: Sums
    prior: Array
    secrets: NDArray[np.intp]


@dataclass(frozen=True)
class _Listed:
    """Where in the list stand the known records in each way (K, T, m), and strangers in three
    parts: those that the filter learns from, those that judge it and those that clients have."""

    total: int
    places: tuple[Places, ...]
    strangers: tuple[Places, Places, Places]

    def picked(self, which: Places) -> Any:
        """A row of the sums for each of these."""
        rows = np.arange(which.size)
        shape = (which.size, self.total)
        return sparse.csr_matrix((np.ones(which.size), (rows, which.ravel())), shape)

    def nobody(self, rows: int) -> Any:
        return sparse.csr_matrix((rows, self.total))


def people(may_be: Imagined, unknown: int, rng: np.random.Generator) -> People:
    """The list, and the sums. Without auxiliary records nothing judges: the unknown records are
    like the known ones, and there are no others."""
    prior, ways = may_be.prior, may_be.ways
    known, values = prior.shape
    inputs = [way.inputs.reshape(-1, way.inputs.shape[-1]) for way in ways]
    labels = [way.labels.ravel() for way in ways]
    chances = [_chance(way, prior) * known / (known + unknown) for way in ways]
    none, parts = np.empty(0, np.intp), 0
    if unknown and may_be.strangers is not None:
        parts = min(len(may_be.strangers[1]) // 3, STRANGERS)
        order = rng.permutation(len(may_be.strangers[1]))[: 3 * parts]
        inputs.append(may_be.strangers[0][order])
        labels.append(may_be.strangers[1][order])
        chances.append(np.full(3 * parts, unknown / (known + unknown) / (3 * parts)))
    ends = np.cumsum([len(of) for of in labels])
    shapes = [way.labels.shape for way in ways]
    places = [np.arange(e - np.prod(s), e).reshape(s) for e, s in zip(ends, shapes, strict=False)]
    thirds = np.split(np.arange(ends[-1] - 3 * parts, ends[-1]), 3) if parts else [none] * 3
    listed = _Listed(int(ends[-1]), tuple(places), (thirds[0], thirds[1], thirds[2]))
    places = [place[value] for value in range(values) for place in places]  # (T, m) each
    beforehand = np.column_stack([way.weight * of for of in prior.T for way in ways])
    means = [sum(listed.picked(one) for one in p[:LEARNED]) / len(p[:LEARNED]) for p in places]
    own = _chance(ways[0], prior)
    shares = np.full(parts, 1 / max(parts, 1))
    like, chance = (listed.strangers[0], shares) if parts else (listed.places[0], own)
    rest = sparse.csr_matrix(chance @ listed.picked(like)) * bool(unknown)
    learned = _deviations(listed, places, beforehand, means, 0)
    judging = _deviations(listed, places, beforehand, means, LEARNED)
    if unknown:
        more = unknown * (1 + unknown / (parts or known))
        learned.append(_around(listed, like, chance, rest, more))
        if parts:
            judging.append(_around(listed, thirds[1], shares, rest, more))
    judged = bool(judging) and (parts > 0 or not unknown)
    drawn = [_drawn(beforehand, rng) for _ in range(CLIENTS * judged)]
    secrets = np.array(drawn, dtype=np.intp).reshape(-1, known)
    of_clients = [_client(listed, places, s, n, unknown, rng) for n, s in enumerate(secrets)]
    differences = sparse.vstack([mean - means[0] for mean in means[1:]]).tocsr()
    sums = Sums(
        differences[np.arange(differences.shape[0]).reshape(-1, known).T.ravel()],
        sparse.csr_matrix(means[0].sum(axis=0)) + unknown * rest,
        _some(sparse.vstack([listed.nobody(0), *learned]).tocsr(), rng),
        sparse.vstack([listed.nobody(0), *(judging if judged else [])]).tocsr(),
        sparse.vstack([listed.nobody(0), *of_clients]).tocsr(),
    )
    return People(
        np.concatenate(inputs),
        np.concatenate(labels),
        np.concatenate(chances),
        sums,
        beforehand,
        secrets,
    )


def _chance(way: Completions, prior: Array) -> Array:
    """How likely it is that a known record, any of them, is this one."""
    each = way.weight * prior.T[:, None] / prior.shape[0] / way.labels.shape[1]
    return np.broadcast_to(each, way.labels.shape).ravel()


def _deviations(
    listed: _Listed, places: list[Places], prior: Array, means: list[Any], first: int
) -> list[Any]:
    """What records are beyond their means, in `HELD_OUT` of their draws from the ``first`` on."""
    made = []
    for place, mean, likely in zip(places, means, prior.T, strict=True):
        draws = place[first : first + HELD_OUT] if len(place) > 1 else ()  # else it is as stated
        size = sparse.diags(np.sqrt(likely / max(len(draws), 1)))
        made += [size @ (listed.picked(one) - mean) for one in draws]
    return made


def _around(listed: _Listed, which: Places, shares: Array, mean: Any, times: float) -> Any:
    """What strangers are beyond their mean, each weighed by its share of ``times`` of them."""
    apart = listed.picked(which) - sparse.csr_matrix(np.ones((which.size, 1))) @ mean
    return sparse.diags(np.sqrt(times * shares)) @ apart


def _some(deviations: Any, rng: np.random.Generator) -> Any:
    """At most `SUPPRESSED` of the deviations, which then stand for all."""
    every = deviations.shape[0]
    if every <= SUPPRESSED:
        return deviations
    return deviations[rng.permutation(every)[:SUPPRESSED]] * np.sqrt(every / SUPPRESSED)


def _drawn(chances: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """One choice of each row, by its probabilities."""
    return np.asarray((chances.cumsum(axis=1) > rng.random((len(chances), 1))).argmax(axis=1))


def _client(
    listed: _Listed,
    places: list[Places],
    secret: NDArray[np.intp],
    number: int,
    unknown: int,
    rng: np.random.Generator,
) -> Any:
    """A client (1, N) whose records are these: draws that nothing else is made of."""
    spare = LEARNED + HELD_OUT + number % HELD_OUT
    who = np.stack([place[spare if len(place) > 1 else 0] for place in places])
    chosen = who[secret, np.arange(len(secret))]
    if unknown:
        chosen = np.concatenate([chosen, rng.choice(listed.strangers[2], unknown)])
    return sparse.csr_matrix(np.bincount(chosen, minlength=listed.total).astype(np.float64))
