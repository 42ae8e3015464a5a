"""Who has the property: sets of clients, sampled under the mixed model in two stages.

First as if the target's own variance were spread evenly over all clients, where a step is cheap
(`sample`), then under the exact C(tau) of `mixed_model` from where those chains ended
(`sample_exactly`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.special import expit

from overheard.decoding.mixed_model import (
    DEFAULT,
    Evidence,
    Settings,
    Terms,
    covariances,
    grid_of,
    log_prior,
    log_prior_of_pairs,
    terms,
)

Array = NDArray[np.float64]


class Posterior(NamedTuple):
    """Probabilities (N,), the set of the greatest expected F1 (N,), and how it was found.

    ``expected_f1`` of that set; ``scale``, ``persistent`` and ``gamma`` are posterior means;
    ``disagreement`` is the greatest standard deviation of a probability between the chains;
    ``states`` (chains, N) where the chains ended, to go on from when more rounds were heard.
    """

    probabilities: Array
    chosen: NDArray[np.bool_]
    expected_f1: float
    scale: float
    persistent: float
    gamma: float
    disagreement: float
    states: NDArray[np.bool_]


def posterior(
    evidence: Evidence,
    rng: np.random.Generator,
    settings: Settings = DEFAULT,
    start: NDArray[np.bool_] | None = None,
) -> Posterior:
    """Probability of the property for each client; ``start`` from an earlier posterior's states."""
    rough = sample(terms(evidence, settings), rng, settings, start)
    if not (evidence.variance * evidence.participation.sum(axis=1) > 0).any():
        return rough
    return sample_exactly(evidence, rng, settings, rough.states)


def sample(
    given: Terms,
    rng: np.random.Generator,
    settings: Settings = DEFAULT,
    start: NDArray[np.bool_] | None = None,
) -> Posterior:
    """Collapsed Gibbs: flips of every client and swaps, all chains at once, cooling down first."""
    chains = _Chains(given, _starts(given, rng, settings, start))
    return _gathered(
        chains, rng, np.geomspace(settings.hottest, 1.0, settings.burn_in), settings.sweeps
    )


def sample_exactly(
    evidence: Evidence, rng: np.random.Generator, settings: Settings, start: NDArray[np.bool_]
) -> Posterior:
    """Under C(tau), from the states (chains, N) where the chains of `sample` ended."""
    chains = _ExactChains(evidence, settings, start.astype(np.float64))
    return _gathered(
        chains, rng, np.geomspace(2.0, 1.0, settings.exact_burn_in), settings.exact_sweeps
    )


class _Sampler(Protocol):
    """Chains with their sets tau (chains, N) and, for each chain, s, k and gamma."""

    tau: Array

    def sweep(self, rng: np.random.Generator, cold: float) -> Array: ...
    def others(self) -> tuple[Array, Array, Array]: ...


def _gathered(chains: _Sampler, rng: np.random.Generator, cooling: Array, sweeps: int) -> Posterior:
    for heat in cooling:
        chains.sweep(rng, 1 / heat)
    number, clients = chains.tau.shape
    states = np.empty((sweeps, number, clients), dtype=bool)
    chance = np.zeros((number, clients))
    others = np.zeros(3)
    for step in range(sweeps):
        chance += chains.sweep(rng, 1.0) / sweeps
        states[step] = chains.tau > 0.5
        others += np.mean(chains.others(), axis=1) / sweeps
    scale, persistent, gamma = (float(x) for x in others)
    probabilities = np.clip(chance.mean(axis=0), 0.0, 1.0)
    chosen, expected = best_set(probabilities, states.reshape(-1, clients))
    disagreement = float(chance.std(axis=0).max())
    return Posterior(
        probabilities, chosen, expected, scale, persistent, gamma, disagreement, states[-1]
    )


def _starts(
    given: Terms,
    rng: np.random.Generator,
    settings: Settings,
    start: NDArray[np.bool_] | None,
) -> Array:
    """Half of the chains go on from ``start`` (or from nobody), half from random sets."""
    clients = given.projections.shape[1]
    tau = (rng.random((settings.chains, clients)) < 0.1).astype(np.float64)
    tau[::2] = 0.0 if start is None else start[: settings.chains : 2]
    return tau


def _flips_and_swaps(
    chains: _Chains | _ExactChains, rng: np.random.Generator, cold: float
) -> Array:
    """Every client once in random order, then some swaps; the flips' probabilities (chains, N)."""
    number, clients = chains.tau.shape
    chance = np.empty((number, clients))
    uniform = rng.random((clients, number))
    for turn, client in enumerate(rng.permutation(clients)):
        chance[:, client] = chains.flip(client, uniform[turn], cold)
    for _ in range(max(3, clients // 10)):
        chains.swap(rng, cold)
    return chance


class _Chains:
    """The sets that the chains hold, with the sums that make a step cheap."""

    def __init__(self, given: Terms, tau: Array) -> None:
        self.given, self.tau = given, tau
        self.rows = np.arange(len(tau))
        self.pair = np.zeros(len(tau), dtype=np.int64)
        self.linked = self.q = self.h = np.zeros(0)
        self.count = tau.sum(axis=1)

    def sweep(self, rng: np.random.Generator, cold: float) -> Array:
        """A new (s, k), a flip of every client, some swaps; returns the flips' probabilities."""
        self._choose_pair(rng, cold)
        return _flips_and_swaps(self, rng, cold)

    def others(self) -> tuple[Array, Array, Array]:
        """s, k and the posterior mean of gamma."""
        given, pair = self.given, self.pair
        return given.scales[pair], given.persistent[pair], given.gamma(self.q, self.h)

    def _choose_pair(self, rng: np.random.Generator, cold: float) -> None:
        joint = cold * self.given.log_joint(self.tau)
        weight = np.exp(joint - joint.max(axis=1, keepdims=True))
        bounds = np.cumsum(weight, axis=1)
        drawn = rng.random(len(self.tau)) * bounds[:, -1]
        self.pair = (bounds < drawn[:, None]).sum(axis=1)
        self.linked = np.einsum("cij,cj->ci", self.given.products[self.pair], self.tau)
        self.q = np.einsum("ci,ci->c", self.linked, self.tau)
        self.h = np.einsum("ci,ci->c", self.given.projections[self.pair], self.tau)
        self.count = self.tau.sum(axis=1)

    def flip(self, client: int, uniform: Array, cold: float) -> Array:
        given, now = self.given, self.tau[:, client].copy()
        own = given.products[self.pair, client, client]
        toward = given.projections[self.pair, client]
        cross = self.linked[:, client] - now * own  # of the others
        q0, h0 = self.q - now * (2 * cross + own), self.h - now * toward
        q1, h1 = q0 + 2 * cross + own, h0 + toward
        others = (self.count - now).astype(int)
        odds = given.gain(q1, h1) - given.gain(q0, h0)
        odds = cold * (odds + given.prior[others + 1] - given.prior[others])
        chance = expit(odds)
        new = (uniform < chance).astype(np.float64)
        moved = np.flatnonzero(new != now)
        if len(moved):
            change = (new - now)[moved]
            self.linked[moved] += change[:, None] * given.products[self.pair[moved], client]
            self.tau[:, client] = new
            self.count = self.count + (new - now)
        self.q, self.h = np.where(new > 0, q1, q0), np.where(new > 0, h1, h0)
        return np.asarray(chance)

    def swap(self, rng: np.random.Generator, cold: float) -> None:
        """Takes a random positive client out and draws who takes its place (maybe itself)."""
        some = np.flatnonzero(self.count > 0)
        if not len(some):
            return
        given, pair, tau = self.given, self.pair[some], self.tau[some]
        out = (rng.random(tau.shape) * tau).argmax(axis=1)
        rows = np.arange(len(some))
        own = given.products[pair, out, out]
        linked = self.linked[some] - given.products[pair, out]
        q = self.q[some] - 2 * linked[rows, out] - own
        h = self.h[some] - given.projections[pair, out]
        diagonal = np.einsum("cii->ci", given.products[pair])
        new_q = q[:, None] + 2 * linked + diagonal
        new_h = h[:, None] + given.projections[pair]
        weight = cold * given.gain(new_q, new_h)
        tau[rows, out] = 0.0
        weight[tau > 0.5] = -np.inf
        chance = np.exp(weight - weight.max(axis=1, keepdims=True))
        bounds = np.cumsum(chance, axis=1)
        into = (bounds < (rng.random(len(some)) * bounds[:, -1])[:, None]).sum(axis=1)
        tau[rows, into] = 1.0
        self.tau[some] = tau
        self.linked[some] = linked + given.products[pair, into]
        self.q[some], self.h[some] = new_q[rows, into], new_h[rows, into]


class _ExactChains:
    """Chains under C(tau), with gamma and the rounds' common part m drawn and not integrated out.

    Given those the rounds are independent: a flip is a sum over the client's rounds.
    """

    def __init__(self, evidence: Evidence, settings: Settings, tau: Array) -> None:
        self.evidence, self.settings, self.tau = evidence, settings, tau
        a = evidence.participation
        self.pairs, self.prior = grid_of(settings), log_prior(a.shape[1], settings)
        self.common, self.own = covariances(evidence, self.pairs)
        self.log_pairs = log_prior_of_pairs(self.pairs, settings)
        self.roots = np.linalg.cholesky(self.common)
        self.rounds = [np.flatnonzero(column) for column in a.T]
        self.pair, self.turn = np.full(len(tau), self.log_pairs.argmax()), 0
        self.gamma, self.m = np.ones(len(tau)), np.zeros((len(tau), len(a)))
        self.there, self.quiet = tau @ a.T, self.own[self.pair]

    def others(self) -> tuple[Array, Array, Array]:
        return self.pairs[self.pair, 0], self.pairs[self.pair, 1], self.gamma

    def sweep(self, rng: np.random.Generator, cold: float) -> Array:
        """gamma, m and at times (s, k) anew, then flips and swaps; returns the flips' chances."""
        self.there = self.tau @ self.evidence.participation.T
        due = self.turn % self.settings.pairs_every == 0
        self.turn += 1
        self._draw_common(rng, self._choose_pair(rng) if due else self._root(self.pair))
        return _flips_and_swaps(self, rng, cold)

    def _root(self, pair: NDArray[np.int64]) -> Array:
        """Cholesky factors of the covariance of y given tau alone, gamma's part included."""
        shift = self.evidence.effect * self.there
        whole = self.common[pair] + self.settings.gamma_sd**2 * shift[:, :, None] * shift[:, None]
        rounds = np.arange(whole.shape[1])
        whole[:, rounds, rounds] += self.own[pair] + self.evidence.variance * self.there
        return np.asarray(np.linalg.cholesky(whole))

    def _choose_pair(self, rng: np.random.Generator) -> Array:
        """A step of Metropolis to a neighbour on the grid; returns the covariance's root there."""
        chains, wide = len(self.tau), len(self.settings.persistent)
        along_s, up = rng.random(chains) < 0.5, np.where(rng.random(chains) < 0.5, 1, -1)
        s, k = self.pair // wide + along_s * up, self.pair % wide + ~along_s * up
        inside = (s >= 0) & (s < len(self.settings.scales)) & (k >= 0) & (k < wide)
        other = np.where(inside, s * wide + k, self.pair)
        rest = self.evidence.y - self.evidence.effect * self.there
        here, there = self._root(self.pair), self._root(other)
        gain = self.log_pairs[other] - self.log_pairs[self.pair]
        gain = gain + _log_density(there, rest) - _log_density(here, rest)
        moved = np.log(rng.random(chains)) < gain
        self.pair = np.where(moved, other, self.pair)
        here[moved] = there[moved]
        return here

    def _draw_common(self, rng: np.random.Generator, roots: Array) -> None:
        """gamma and m given tau and y: drawn without y, then moved by what y says."""
        chains, rounds = self.there.shape
        shift, sd = self.evidence.effect * self.there, self.settings.gamma_sd
        gamma = np.asarray(rng.normal(1.0, sd, size=chains))
        m = np.einsum("ctu,cu->ct", self.roots[self.pair], rng.normal(size=(chains, rounds)))
        self.quiet = self.own[self.pair]
        noise = np.sqrt(self.quiet + self.evidence.variance * self.there)
        drawn = gamma[:, None] * shift + m + noise * rng.normal(size=(chains, rounds))
        apart = np.asarray(self.evidence.y - drawn)
        pull = _solved(roots, apart)
        self.gamma = gamma + sd**2 * np.einsum("ct,ct->c", shift, pull)
        self.m = m + np.einsum("ctu,cu->ct", self.common[self.pair], pull)

    def _one_more(self, there: Array, rounds: Any) -> Array:
        """log p(y_r) with one positive client more over that with ``there`` (chains, R)."""
        evidence = self.evidence
        step = self.gamma[:, None] * evidence.effect[rounds]
        rest = evidence.y[rounds] - self.m[:, rounds] - step * there
        extra = evidence.variance[rounds]
        before = self.quiet[:, rounds] + extra * there
        after = before + extra
        squares = rest**2 / before - (rest - step) ** 2 / after
        return np.asarray((squares - np.log(after / before)) / 2)

    def flip(self, client: int, uniform: Array, cold: float) -> Array:
        rounds, now = self.rounds[client], self.tau[:, client].copy()
        others = (self.tau.sum(axis=1) - now).astype(int)
        odds = self._one_more(self.there[:, rounds] - now[:, None], rounds).sum(axis=1)
        chance = expit(cold * (odds + self.prior[others + 1] - self.prior[others]))
        new = (uniform < chance).astype(np.float64)
        if (new != now).any():
            self.there[:, rounds] += (new - now)[:, None]
            self.tau[:, client] = new
        return np.asarray(chance)

    def swap(self, rng: np.random.Generator, cold: float) -> None:
        """Takes a random positive client out and draws who takes its place (maybe itself)."""
        a = self.evidence.participation
        rows = np.arange(len(self.tau))
        some = self.tau.sum(axis=1) > 0
        if not some.any():
            return
        out = (rng.random(self.tau.shape) * self.tau).argmax(axis=1)
        without = self.there - a[:, out].T * some[:, None]
        left = self.tau.copy()
        left[rows, out] = 0.0
        weight = cold * (self._one_more(np.maximum(without, 0), slice(None)) @ a)
        weight[left > 0.5] = -np.inf
        bounds = np.cumsum(np.exp(weight - weight.max(axis=1, keepdims=True)), axis=1)
        into = (bounds < (rng.random(len(rows)) * bounds[:, -1])[:, None]).sum(axis=1)
        left[rows, into] = 1.0
        self.tau[some] = left[some]
        self.there[some] = (without + a[:, into].T)[some]


def _solved(roots: Array, right: Array) -> Array:
    """C^-1 right for each of several Cholesky factors (c, T, T) and right-hand sides (c, T)."""
    both = zip(roots, right, strict=True)
    return np.stack([cho_solve((root, True), r, check_finite=False) for root, r in both])


def _log_density(roots: Array, rest: Array) -> Array:
    """log N(rest; 0, C) but for a constant, for each of several (c, T)."""
    log_roots = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(-log_roots - np.einsum("ct,ct->c", rest, _solved(roots, rest)) / 2)


def best_set(probabilities: Array, states: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], float]:
    """The most probable clients, as many as give the greatest expected F1 over the states (m, N).

    Naming nobody counts as F1 = 1 where nobody is positive, and as 0 elsewhere.
    """
    order = np.argsort(-probabilities, kind="stable")
    real = states.sum(axis=1)
    hits = np.cumsum(states[:, order], axis=1)
    named = np.arange(1, len(order) + 1)
    expected = np.concatenate([[np.mean(real == 0)], (2 * hits / (named + real[:, None])).mean(0)])
    best = int(expected.argmax())
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[:best]] = True
    return chosen, float(expected[best])
