"""What a client's records do to the model that it returns, to first order, whatever its training.

A client returns F(s, omega): s its records, omega the order of its batches and whatever else is
random. To a listener who knows every candidate of a record, F is close to

    F  =  centre + sum_i J_i(s_i) - E[J_i] + noise

(docs/decoders.md section 8). Everything here is read off *simulated clients*: the client's own
training, from the model that was sent, on records drawn from what is believed.

* **Direct response.** The update rule works entry by entry, so that the returned model's
  derivative by the gradient of step t is a vector R_t, by one backward pass of autograd through
  the rule along a simulated path. A record used at step t adds R_t / |batch| times its gradient.
* **Average before multiplying.** When a record is used nobody knows. An epoch is cut into a few
  stretches; J_i sums, over stretches, the stretch's share of R times the record's gradient at the
  stretch's mean model. Averages of sampled products would keep the noise of the samples.
* **Order as noise columns.** A record's contribution varies with the stretch that it fell into.
  These deviations, centred over records too (each batch takes so many, whoever they are), are
  columns of the noise's covariance; what simulated clients show beyond that is its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.programs.networks import Network, network
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates, Simulated, Stretches, simulate, stretches

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

ORDER_COLUMNS = 4
"""Columns of order noise a record: more stretches are mixed at random into so many."""
EQUATIONS = 8
"""Coordinates a candidate that are used, those that say most: more add little and cost much."""
FEWEST_EQUATIONS = 3000


@dataclass(frozen=True)
class Linearised:
    """One round at a belief, on the coordinates that say most.

    columns: (n (K - 1), R), record-major, each candidate's response relative to the first;
    order: (c, R) noise columns; variance: (R,) of the rest; ends: (S, R) of the simulated clients
    ``chosen`` (S, n), and what the columns leave of them (left); heard: (R,), the model that was
    returned, less the one that was sent, as are ends.
    """

    columns: NDArray[np.float32]
    order: NDArray[np.float32]
    variance: Array
    ends: Array
    heard: Array
    chosen: Indices
    left: Array

    def expected(self, weights: Array) -> Array:
        """Of the response beyond the first candidates', for weights (..., n (K - 1))."""
        return np.asarray(weights.astype(np.float32) @ self.columns, dtype=np.float64)


def linearise(
    recipe: Recipe,
    messages: tuple[Wire, Wire, Array],
    candidates: Candidates,
    belief: Array,
    chosen: Indices,
    rng: np.random.Generator,
) -> Linearised:
    """One round's messages (sent, returned, and the sd of their rounding and noise, each (P,))
    as a linear measurement of which candidate each record is, at a belief (n, K)."""
    sent, returned, noise = messages
    net = network(recipe)
    done = simulate(recipe, sent, candidates, chosen, rng)
    start = sent.astype(np.float64)
    times = stretches(recipe, candidates.members)
    parts = Parts(net, done, times, candidates, belief)
    spread = done.ends.astype(np.float64).var(axis=0) + noise**2
    which = telling(parts, spread, rng)
    columns, order = parts.made(which, rng)
    ends = done.ends[:, which].astype(np.float64) - start[which]
    weights = indicators(chosen, belief.shape[1])
    left = ends - np.asarray(weights @ columns, dtype=np.float64)
    left -= left.mean(axis=0)
    shown = (left**2).sum(axis=0) / max(len(left) - 1, 1)
    own = np.einsum("cr,cr->r", order, order).astype(np.float64)
    excess = np.maximum(shown - own, 0.0)
    variance = noise[which] ** 2 + _UNEVEN * own + _TRUSTED * excess
    heard = returned[which].astype(np.float64) - start[which]
    return Linearised(columns, order, variance, ends, heard, chosen, left)


_SINGLE = 1e-6  # what single precision leaves of a sum of squares, relative to the largest
_UNEVEN = 0.5  # part of the order noise that is also taken as independent between coordinates
_TRUSTED = 0.7  # of what simulated clients show beyond the order's columns


def indicators(chosen: Indices, values: int) -> NDArray[np.float32]:
    """Indicators (S, n (K - 1)) of all candidates but the first."""
    made = np.eye(values, dtype=np.float32)[chosen][:, :, 1:]
    return made.reshape(len(chosen), -1)


class Parts:
    """Gradients of every record under every candidate at each stretch, times the response."""

    def __init__(
        self,
        net: Network,
        done: Simulated,
        times: Stretches,
        candidates: Candidates,
        belief: Array,
    ) -> None:
        self.net, self.done, self.times = net, done, times
        self.candidates, self.belief = candidates, belief

    def gradients(
        self, j: int, which: Indices, records: Indices
    ) -> Callable[[int], NDArray[np.float32]]:
        """Of candidate k: what the records add in stretch j, were they used there always."""
        theta = self.done.path[j]
        scale = (self.done.response[j][which] / self.candidates.members).astype(np.float32)

        def of(k: int) -> NDArray[np.float32]:
            if not self.candidates.present[k]:
                return np.zeros((len(records), len(which)), np.float32)
            x, y = self.candidates.inputs[k][records], self.candidates.labels[k][records]
            rows = self.net.rows(theta, x.astype(np.float64), y).columns(which)
            return np.asarray(rows.astype(np.float32) * scale)

        return of

    def columns(self, which: Indices, records: Indices) -> NDArray[np.float32]:
        """Differences (len(records), K - 1, len(which)) to the first candidate."""
        values = len(self.candidates.present)
        made = np.zeros((len(records), values - 1, len(which)), np.float32)
        for j in range(len(self.times.groups)):
            of = self.gradients(j, which, records)
            first = of(0)
            for k in range(1, values):
                made[:, k - 1] += of(k) - first
        return made

    def made(
        self, which: Indices, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Differences (n (K - 1), R) and columns of order noise (c, R)."""
        records = np.arange(self.candidates.inputs.shape[1])
        n, values = len(records), len(self.candidates.present)
        columns = np.zeros((n, values - 1, len(which)), np.float32)
        means = np.zeros((len(self.times.groups), n, len(which)), np.float32)
        for j in range(len(self.times.groups)):
            of = self.gradients(j, which, records)
            first = of(0)
            means[j] = first
            for k in range(1, values):
                apart = of(k) - first
                columns[:, k - 1] += apart
                means[j] += self.belief[:, k, None].astype(np.float32) * apart
        order = self._order(means, rng) if len(self.times.groups) > 1 else means[:0, 0]
        return columns.reshape(n * (values - 1), len(which)), order

    def _order(self, means: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Deviations of each record's contribution by the stretch that it falls into.

        means: (Q, n, R), what a record adds in all in expectation, stretch by stretch. Given that
        it falls into stretch j it adds means[j] / shares[j]; in a group of e epochs that happens
        independently e times, each adding 1 / e of it.
        """
        times = self.times
        kinds = []
        for number in np.unique(times.epochs):
            inside = np.flatnonzero(times.epochs == number)
            if len(inside) < 2:
                continue
            shares = times.shares[inside].astype(np.float32)
            given = means[inside] / shares[:, None, None]
            away = given - np.tensordot(shares, given, 1)
            away -= away.mean(axis=1, keepdims=True)
            away *= np.sqrt(shares / times.repeats[inside])[:, None, None].astype(np.float32)
            kinds.append(away)
        if not kinds:
            return means[:0, 0]
        every = np.concatenate(kinds)
        if len(every) > ORDER_COLUMNS:
            signs = rng.choice(
                np.array([-1, 1], np.float32), size=(ORDER_COLUMNS, *every.shape[:2])
            )
            every = np.einsum("cqn,qnr->cnr", signs, every, optimize=True) / np.sqrt(
                np.float32(ORDER_COLUMNS)
            )
        return every.reshape(-1, every.shape[-1])


def telling(parts: Parts, spread: Array, rng: np.random.Generator) -> Indices:
    """The coordinates in which candidates differ most, in units of what else moves them."""
    size = len(spread)
    candidates = parts.candidates
    n, values = candidates.inputs.shape[1], len(candidates.present)
    some = np.sort(rng.permutation(n)[:64])
    told = parts.columns(np.arange(size), some)
    power = np.einsum("nkr,nkr->r", told, told).astype(np.float64) / spread
    live = np.flatnonzero(power > 0)
    most = max(FEWEST_EQUATIONS, EQUATIONS * n * (values - 1))
    if len(live) > most:
        live = np.sort(live[np.argsort(-power[live], kind="stable")[:most]])
    return live


@dataclass(frozen=True)
class Whitened:
    """Inner products of rounds' columns under the inverse of their noise's covariance.

    gram: (n, n); heard: (n,) of the columns with the returned model less the simulated clients'
    mean; simulated: (S, n) the same of each simulated client; energies and rows for the fit.
    """

    gram: Array
    heard: Array
    simulated: Array
    energy: float
    energies: Array
    rows: int

    def __add__(self, other: Whitened) -> Whitened:
        """Rounds add up, as their noises are independent."""
        return Whitened(
            self.gram + other.gram,
            self.heard + other.heard,
            self.simulated + other.simulated,
            self.energy + other.energy,
            self.energies + other.energies,
            self.rows + other.rows,
        )


def whiten(one: Linearised, fitted: int) -> Whitened:
    """Under covariance ``order' order + variance`` (Woodbury). The first ``fitted`` simulated
    clients give the centre of the others, all of them that of the model heard."""
    sd = np.sqrt(one.variance)
    columns = one.columns / sd
    shown = one.left[:fitted] / np.sqrt(max(fitted - 1, 1))
    order = (np.vstack([one.order, shown]) / sd).astype(np.float32)
    weights = indicators(one.chosen, one.columns.shape[0] // one.chosen.shape[1] + 1)
    left = one.ends - np.asarray(weights @ one.columns, dtype=np.float64)
    centre, early = left.mean(axis=0), left[:fitted].mean(axis=0)
    targets = np.vstack([one.heard - centre, one.ends - early]) / sd
    gram, cross = columns @ columns.T, columns @ targets.T
    square = np.einsum("tr,tr->t", targets, targets)
    if len(order):
        inner = (order @ order.T).astype(np.float64)
        inner[np.diag_indices(len(inner))] += 1.0 + _SINGLE * float(np.diagonal(inner).max())
        factor = linalg.cholesky(inner, lower=True, overwrite_a=True, check_finite=False)

        def half(right: Array) -> Array:
            found = linalg.solve_triangular(factor, order @ right.T, lower=True, check_finite=False)
            return np.asarray(found)

        of_columns, of_targets = half(columns), half(targets)
        gram -= of_columns.T @ of_columns
        cross -= of_columns.T @ of_targets
        square -= np.einsum("ct,ct->t", of_targets, of_targets)
    gram = (gram + gram.T) / 2
    gram[np.diag_indices(len(gram))] += _SINGLE * float(np.diagonal(gram).max(initial=0.0))
    return Whitened(gram, cross[:, 0], cross[:, 1:].T, float(square[0]), square[1:], len(sd))
