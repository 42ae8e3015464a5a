"""What is a client's message made of, where only a part of its records is known?

Of everything that the known records may be and of strangers in the place of the unknown ones:
sums over one long list of imagined records, for `overheard.decoding.nuisance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from overheard.attacks.completions import REALISED, Imagined
from overheard.decoding.nuisance import Sums

Array = NDArray[np.float64]
CLIENTS = REALISED // 3
"""Simulated clients: of a hundred records each they tell the temperature to a tenth."""
STRANGERS = 1000
"""Auxiliary records, in each of three parts, that stand for those that are not known."""


@dataclass(frozen=True)
class People:
    """Imagined records: inputs (N, d), labels (N,), how likely it is that a record of the client
    is this one (N,); sums of them; before listening, how likely each record (m, K) has each value;
    and which it has (s, m) in the clients that were simulated."""

    inputs: Array
    labels: Array
    chances: Array
    sums: Sums
    prior: Array
    secrets: NDArray[np.intp]


def people(may_be: Imagined, unknown: int, rng: np.random.Generator) -> People:
    """The list, and the sums. Without auxiliary records the unknown are like the known ones."""
    (real, real_labels, states), theirs = may_be.realised, may_be.strangers
    known, values = may_be.prior.shape
    # donors may be unlike the record: as if one in ten were a stranger
    noisy = unknown if may_be.exact else max(unknown, known // 10)
    parts = min(len(theirs[1]) // 3, STRANGERS) if noisy and theirs is not None else 0
    draws = may_be.labels.shape[1]
    groups: list[Any] = [
        (may_be.inputs, may_be.labels, may_be.prior.T[:, None] / draws),
        (real, real_labels, 0.0),
    ]
    if parts and theirs is not None:
        who = rng.permutation(len(theirs[1]))[: 3 * parts]
        groups.append((theirs[0][who], theirs[1][who], unknown / (3 * parts)))
    labels = [np.ravel(of) for _, of, _ in groups]
    chances = [np.broadcast_to(c, of.shape).ravel() / (known + unknown) for _, of, c in groups]
    ends = np.cumsum([of.size for of in labels])
    places = [
        np.arange(e - of.size, e).reshape(of.shape)
        for e, (_, of, _) in zip(ends, groups, strict=True)
    ]
    total = int(ends[-1])

    def picked(which: NDArray[np.intp]) -> Any:
        """A row of the sums for each of these."""
        at = np.arange(which.size), which.ravel()
        return sparse.csr_matrix((np.ones(which.size), at), (which.size, total))

    def listed(rows: list[Any]) -> Any:
        return sparse.vstack([sparse.csr_matrix((0, total)), *rows]).tocsr()

    # the mean of every value's completions (m rows each)
    means = [sum(picked(one) for one in place) / draws for place in places[0]]
    stacked, here, drawn = sparse.vstack(means).tocsr(), np.arange(known), places[1]
    apart = [
        (picked(one) - stacked[state * known + here]) / np.sqrt(CLIENTS)
        for one, state in zip(drawn, states, strict=True)
        if not may_be.exact
    ]
    learned, judging = apart[:CLIENTS], apart[CLIENTS : 2 * CLIENTS]
    rest, pool = sparse.csr_matrix((1, total)), drawn[:0]
    if noisy:
        thirds = np.split(places[-1], 3) if parts else (drawn[0, ::2], drawn[0, 1::2], drawn[0])
        mine, others, pool = thirds
        rest = sparse.csr_matrix(picked(mine).mean(axis=0))
        for rows, which in ((learned, mine), (judging, others)):
            repeated = sparse.csr_matrix(np.ones((which.size, 1))) @ rest
            size = np.sqrt(noisy * (1 + noisy / mine.size) / which.size)
            rows.append(size * (picked(which) - repeated))
    clients = [
        picked(np.concatenate([one, rng.choice(pool, unknown)]) if unknown else one).sum(axis=0)
        for one in drawn[-CLIENTS:]
    ]
    order = np.arange(known * (values - 1)).reshape(-1, known).T.ravel()
    sums = Sums(
        sparse.vstack([mean - means[0] for mean in means[1:]]).tocsr()[order],
        sparse.csr_matrix(means[0].sum(axis=0)) + unknown * rest,
        listed(learned),
        listed(judging),
        listed([sparse.csr_matrix(one) for one in clients]),
    )
    return People(
        np.concatenate([np.reshape(x, (-1, np.shape(x)[-1])) for x, _, _ in groups]),
        np.concatenate(labels),
        np.concatenate(chances),
        sums,
        may_be.prior,
        states[-CLIENTS:],
    )
