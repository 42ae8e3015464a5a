"""What a client's records do to the model that it returns, to first order, whatever its training.

A client returns F(s, omega): s its records, omega the order of its batches and whatever else is
random. To a listener who knows every candidate of a record, F is close to

    F  =  centre + sum_i J_i(s_i) - E[J_i] + noise

(docs/decoders.md, section 8). Everything here is read off *simulated clients*: the client's own
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

from overheard.learning.recipe import Adam, Recipe
from overheard.learning.training import Shards, local_training
from overheard.programs.networks import Network, network
from overheard.programs.rules import rule_of

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

STRETCHES = 4
"""Stretches of an epoch that are told apart, a smaller last batch not counted."""
MOST_STRETCHES = 12
"""Of all epochs together; of more epochs, some are taken together."""
RESPONDING = 4
"""Simulated clients along whose paths the rule is differentiated."""
ORDER_COLUMNS = 4
"""Columns of order noise a record: more stretches are mixed at random into so many."""
EQUATIONS = 8
"""Coordinates a candidate that are used, those that say most: more add little and cost much."""
FEWEST_EQUATIONS = 3000


@dataclass(frozen=True)
class Candidates:
    """What each record may be: inputs (K, n, d) and labels (K, n) under each of K candidates.

    present (K,): candidates under which the record is the client's at all; members: how many
    records the client trains on.
    """

    inputs: Wire
    labels: Wire
    present: NDArray[np.bool_]
    members: int

    def drawn(self, belief: Array, count: int, rng: np.random.Generator) -> Indices:
        """Candidates (count, n) of every record, drawn from the belief (n, K)."""
        draws = rng.random((count, len(belief), 1))
        chosen = (draws > belief.cumsum(axis=1)).sum(axis=2)
        chosen = np.minimum(chosen, belief.shape[1] - 1)
        if self.present.all():
            return np.asarray(chosen, dtype=np.int64)
        # exactly as many members as the client reported, at random as believed
        absent = int(np.flatnonzero(~self.present)[0])
        inside = np.clip(1 - belief[:, absent], 1e-12, 1 - 1e-12)
        keys = np.log(inside) - np.log1p(-inside) + rng.logistic(size=(count, len(belief)))
        order = np.argsort(-keys, axis=1)
        given = belief.copy()
        given[:, absent] = 0
        given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
        which = (rng.random((count, len(belief), 1)) > given.cumsum(axis=1)).sum(axis=2)
        made = np.full((count, len(belief)), absent, dtype=np.int64)
        rows = np.arange(count)[:, None]
        first = order[:, : self.members]
        made[rows, first] = np.minimum(which, belief.shape[1] - 1)[rows, first]
        return made

    def shards(self, chosen: Indices, dtype: Any) -> Shards:
        """The records of clients whose candidates are ``chosen`` (S, n)."""
        count = len(chosen)
        inside = self.present[chosen]
        rows = np.argsort(~inside, axis=1, kind="stable")[:, : self.members]
        picked = np.take_along_axis(chosen, rows, axis=1)
        return Shards(
            self.inputs[picked, rows].astype(dtype),
            self.labels[picked, rows].astype(dtype),
            np.full(count, self.members, dtype=np.int64),
        )


@dataclass(frozen=True)
class Stretches:
    """Local steps taken together: ``groups[j]`` are step numbers, ``shares[j]`` the chance that a
    record falls into the stretch in its epoch, ``epochs[j]`` which (group of) epochs it is of,
    ``repeats[j]`` how many epochs that group has."""

    steps: int
    groups: tuple[Indices, ...]
    shares: Array
    epochs: Indices
    repeats: Array


def stretches(recipe: Recipe, members: int) -> Stretches:
    """The stretches of a client with so many records."""
    size = min(recipe.batch_size or members, members)
    batches = -(-members // size)
    sizes = np.full(batches, size)
    sizes[-1] = members - size * (batches - 1)
    odd = int(batches > 1 and sizes[-1] < size)
    per = max(1, min(STRETCHES, batches - odd))
    pieces = np.array_split(np.arange(batches - odd), per)
    pieces += [np.array([batches - 1])] * odd
    together = np.array_split(
        np.arange(recipe.epochs), max(1, min(recipe.epochs, MOST_STRETCHES // len(pieces)))
    )
    groups, shares, epochs, repeats = [], [], [], []
    for number, some in enumerate(together):
        for piece in pieces:
            groups.append((batches * some[:, None] + piece).ravel())
            shares.append(sizes[piece].sum() / members)
            epochs.append(number)
            repeats.append(len(some))
    return Stretches(
        batches * recipe.epochs,
        tuple(groups),
        np.array(shares),
        np.array(epochs),
        np.array(repeats, dtype=np.float64),
    )


@dataclass(frozen=True)
class Simulated:
    """Clients trained from the model that was sent: candidates (S, n), ends (S, P), the mean model
    (Q, P) of each stretch and the response (Q, P) of the returned model to its gradients, summed
    over the stretch's steps."""

    chosen: Indices
    ends: Wire
    path: Array
    response: Array


def simulate(
    recipe: Recipe,
    sent: Wire,
    candidates: Candidates,
    chosen: Indices,
    rng: np.random.Generator,
) -> Simulated:
    """Train clients whose candidates are ``chosen`` (S, n) from ``sent`` (P,)."""
    times = stretches(recipe, candidates.members)
    place = {int(step): j for j, group in enumerate(times.groups) for step in group}
    path = np.zeros((len(times.groups), sent.size))
    gradients: list[Wire] = []
    curved = isinstance(recipe.optimiser, Adam)

    def trace(step: int, theta: Wire, gradient: Wire) -> None:
        j = place[step]
        path[j] += theta.mean(axis=0) / len(times.groups[j])
        if curved:
            gradients.append(gradient[:RESPONDING].astype(np.float64))

    data = candidates.shards(chosen, sent.dtype)
    ends = local_training(recipe, sent, data, rng, trace=trace)
    if curved:
        steps = _curved(recipe, sent, np.stack(gradients))
    else:
        # a rule that is linear answers alike at every coordinate and on every path
        steps = _curved(recipe, np.zeros(1), np.zeros((times.steps, 1, 1)))
    response = np.stack([steps[group].sum(axis=0) for group in times.groups])
    return Simulated(chosen, ends, path, np.broadcast_to(response, path.shape))


def _curved(recipe: Recipe, sent: Wire, gradients: Array) -> Array:
    """Derivatives (T, P) of the returned model by each step's gradient, mean over clients.

    gradients: (T, S, P). Entry by entry, so the derivative of the sum of all entries is each one's
    own.
    """
    import torch

    rule = rule_of(recipe)
    slopes = torch.tensor(gradients, requires_grad=True)
    theta = torch.tensor(np.broadcast_to(sent, gradients.shape[1:]).astype(np.float64))
    state = rule.init(theta)
    for slope in slopes:
        step, state = rule.update(slope, state, theta)
        theta = theta + step
    (made,) = torch.autograd.grad(theta.sum(), slopes)
    # where a gradient is exactly zero at every step a square root has no slope: nothing moves there
    return np.asarray(torch.nan_to_num(made, 0.0, 0.0, 0.0).mean(dim=1).numpy())


@dataclass(frozen=True)
class Linearised:
    """One round at a belief, on the coordinates that say most.

    columns: (n (K - 1), R), record-major, each candidate's response relative to the first;
    order: (c, R) noise columns; variance: (R,) of the rest; ends: (S, R) of the simulated clients
    ``chosen`` (S, n); heard: (R,), the model that was returned, less the one that was sent, as
    are ends.
    """

    columns: NDArray[np.float32]
    order: NDArray[np.float32]
    variance: Array
    ends: Array
    heard: Array
    chosen: Indices
    base: Array

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
    parts = _Parts(net, done, times, candidates, belief)
    spread = done.ends.astype(np.float64).var(axis=0) + noise**2
    which = _telling(parts, spread, noise, candidates, rng)
    columns, order = parts.made(which, rng)
    ends = done.ends[:, which].astype(np.float64) - start[which]
    weights = _weights(chosen, belief.shape[1])
    left = ends - np.asarray(weights @ columns, dtype=np.float64)
    left -= left.mean(axis=0)
    shown = (left**2).sum(axis=0) / max(len(left) - 1, 1)
    own = np.einsum("cr,cr->r", order, order).astype(np.float64)
    excess = np.maximum(shown - own, 0.0)
    variance = noise[which] ** 2 + _UNEVEN * own + _TRUSTED * excess
    heard = returned[which].astype(np.float64) - start[which]
    return Linearised(columns, order, variance, ends, heard, chosen, left)


_UNEVEN = 0.05  # share of the order noise that is taken as independent between coordinates
_TRUSTED = 0.7  # of what simulated clients show beyond the order's columns


def _weights(chosen: Indices, values: int) -> NDArray[np.float32]:
    """Indicators (S, n (K - 1)) of all candidates but the first."""
    made = np.eye(values, dtype=np.float32)[chosen][:, :, 1:]
    return made.reshape(len(chosen), -1)


class _Parts:
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
        return columns.reshape(-1, len(which)), order

    def _order(
        self, means: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.float32]:
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


def _telling(
    parts: _Parts, spread: Array, noise: Array, candidates: Candidates, rng: np.random.Generator
) -> Indices:
    """The coordinates in which candidates differ most, in units of what else moves them."""
    size = len(spread)
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
    """Inner products of a round's columns under the inverse of its noise's covariance.

    gram: (n, n); heard: (n,) of the columns with the returned model less the simulated clients'
    mean; simulated: (S, n) the same of each simulated client; energies and rows for the fit.
    """

    gram: Array
    heard: Array
    simulated: Array
    energy: float
    energies: Array
    rows: int


EXTRA = 1.0


def whiten(one: Linearised, fitted: int) -> Whitened:
    """Under covariance ``order' order + variance`` (Woodbury). The first ``fitted`` simulated
    clients give the centre of the others, all of them that of the model heard."""
    sd = np.sqrt(one.variance)
    columns = (one.columns / sd.astype(np.float32)).astype(np.float32)
    extra = one.base[:fitted] * np.sqrt(EXTRA / max(fitted - 1, 1))
    order = (np.vstack([one.order, extra.astype(np.float32)]) / sd.astype(np.float32)).astype(np.float32)
    weights = _weights(one.chosen, one.columns.shape[0] // one.chosen.shape[1] + 1)
    left = one.ends - np.asarray(weights @ one.columns, dtype=np.float64)
    centre, early = left.mean(axis=0), left[:fitted].mean(axis=0)
    targets = np.vstack([one.heard - centre, one.ends - early]) / sd
    stacked = targets.astype(np.float32)
    gram = (columns @ columns.T).astype(np.float64)
    cross = (columns @ stacked.T).astype(np.float64)
    square = np.einsum("tr,tr->t", targets, targets)
    if len(order):
        inner = (order @ order.T).astype(np.float64)
        inner[np.diag_indices(len(inner))] += 1.0
        factor = linalg.cholesky(inner, lower=True, overwrite_a=True, check_finite=False)

        def half(right: NDArray[np.float32]) -> Array:
            found = linalg.solve_triangular(
                factor, (order @ right.T).astype(np.float64), lower=True, check_finite=False
            )
            return np.asarray(found)

        of_columns, of_targets = half(columns), half(stacked)
        gram -= of_columns.T @ of_columns
        cross -= of_columns.T @ of_targets
        square -= np.einsum("ct,ct->t", of_targets, of_targets)
    gram = (gram + gram.T) / 2
    return Whitened(
        gram, cross[:, 0], cross[:, 1:].T, float(square[0]), square[1:], len(sd)
    )
