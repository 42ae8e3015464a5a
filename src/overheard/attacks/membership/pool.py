"""What the messages say about a pool of candidates: who is in the sum, and with which value.

One full-batch step sends ``(theta - theta') m / lr = sum over members of g_i(s_i)``. A stranger
adds nothing, so "absent" is one more candidate of every record of the pool, with gradient zero
(decoders.md section 1). The number of members m is what the client reported: one more equation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import only, rate_of, refuse_several_steps, rounding
from overheard.decoding.measurement import Measurement, from_differences, from_gram
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import add_products
from overheard.programs.private import client_rows
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
from overheard.transcript.knowledge import AttributeDomain, CandidatePool, Link, LocalTraining
from overheard.transcript.view import View

Array = NDArray[np.float64]

_COUNT_SD = 0.01  # how exactly the number of members is known, in records


@dataclass(frozen=True)
class Candidates:
    """Inputs (K, n, d) of the pool's records under each value, labels (n,), and the domain."""

    inputs: Array
    labels: Array
    domain: AttributeDomain | None


def candidates_of(view: View) -> Candidates:
    """The pool as the model would see it, once per value of the attribute where one is unknown."""
    recipe, pool = view.know(LocalTraining).recipe, view.know(CandidatePool)
    labels = recipe.target.encode_values(pool.labels)
    if AttributeDomain not in view.kinds:
        return Candidates(encode(recipe.encoding, pool.records)[None], labels, None)
    domain = view.know(AttributeDomain)
    inputs = [encode(recipe.encoding, pool.records, setting) for setting in domain.settings]
    return Candidates(np.stack(inputs), labels, domain)


def members_reported(link: Link, pool: int) -> int:
    """How many records the client trained on; refuses pools in which nothing can be told apart."""
    reported = np.unique(link.weights[np.isfinite(link.weights)])
    if len(reported) != 1 or reported[0] < 1:
        raise ChooseAnotherAttack(
            "the client reported no number of records, or several; the sum over members cannot be "
            "formed from its mean"
        )
    count = int(reported[0])
    if count > pool:
        raise FixData(
            f"the pool has {pool} records but the client reported {count}: some members are not in "
            "it; give a pool that holds all of the client's records"
        )
    if count == pool:
        raise FixData(
            f"the pool has {pool} records, as many as the client reported: all are members; add "
            "strangers, or ask about the attribute"
        )
    return count


@dataclass(frozen=True)
class PoolSum:
    """Whitened equations about n K indicators "record i is a member with value k"."""

    products: Array
    projections: Array
    energy: float
    equations: int
    values: int

    def left(self, indicators: Array) -> float:
        """Square of what indicators (n K,) leave unexplained, in units of the noise."""
        explained = float(indicators @ (self.products @ indicators))
        return max(self.energy - 2 * float(self.projections @ indicators) + explained, 0.0)

    def measurement(self) -> Measurement:
        """The same as a measurement with candidates absent, value 1, ..., value K."""
        return from_gram(self.products, self.projections, 1.0, candidates=self.values + 1)


def _sums(link: Link, recipe: Recipe, used: NDArray[np.int64], count: int) -> tuple[Array, Array]:
    """Sums of gradients over the members in the rounds used, and their standard deviations."""
    refuse_several_steps(link, recipe)
    rate, heard = rate_of(link, recipe), only(link, used)
    return heard.updates() * count / rate, rounding(heard) * count / rate


def pool_rows(
    link: Link, recipe: Recipe, pool: Candidates, used: NDArray[np.int64], count: int
) -> Measurement:
    """The measurement from gradients that are built: for few parameters."""
    sums, noise = _sums(link, recipe, used, count)
    rows = [
        np.stack(
            [client_rows(recipe, theta, x, pool.labels).explicit() for x in pool.inputs], axis=1
        )
        for theta in link.sent[used].astype(np.float64)
    ]
    present = np.ones((*rows[0].shape[:2], 1))
    return from_differences(
        np.concatenate([*rows, present], axis=2),
        np.append(sums.ravel(), count),
        np.append(noise.ravel(), _COUNT_SD),
    )


def pool_products(
    link: Link, recipe: Recipe, pool: Candidates, used: NDArray[np.int64], count: int
) -> PoolSum:
    """The same from inner products: gradients of dense layers are never built."""
    sums, noise = _sums(link, recipe, used, count)
    values, people = pool.inputs.shape[:2]
    products = np.full((people, values, people, values), _COUNT_SD**-2)
    projections = np.full((people, values), count * _COUNT_SD**-2)
    energy = count**2 * _COUNT_SD**-2
    for theta, total, sd in zip(link.sent[used].astype(np.float64), sums, noise, strict=True):
        precision = 1 / np.mean(sd**2)
        energy += precision * float(total @ total)
        rows = [client_rows(recipe, theta, x, pool.labels) for x in pool.inputs]
        blocks, gradients = rows[0].blocks(total), [one.since() for one in rows]
        for a, one in enumerate(gradients):
            projections[:, a] += precision * one.project(blocks)
        add_products(gradients, float(precision), products)
    n = people * values
    return PoolSum(products.reshape(n, n), projections.ravel(), energy, sums.size + 1, values)
