"""Who has the property: sets of clients, sampled under the mixed model in two stages.

First as if the target's own variance were spread evenly over all clients, where a step is cheap
(`sample`). Then under the exact C(tau) of `mixed_model`, from where those chains ended
(`sample_exactly`): the cheap chains, their variance spread by what the first stage found, propose a
sweep that is taken or taken back, and Gibbs steps under C(tau) follow.
"""

from __future__ import annotations

from dataclasses import replace
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
    log_prior_of_pairs,
    terms,
)

Array = NDArray[np.float64]
PAIRS_ALONE = 1 / 3
"""Share of the proposals that change no client: those are taken where others are not."""


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
    given = terms(evidence, settings)
    if not (evidence.variance * evidence.participation.sum(axis=1) > 0).any():
        return sample(given, rng, settings, start)
    rough = sample(given, rng, replace(settings, sweeps=settings.rough), start)
    return sample_exactly(evidence, rng, settings, rough)


def sample(
    given: Terms,
    rng: np.random.Generator,
    settings: Settings = DEFAULT,
    start: NDArray[np.bool_] | None = None,
) -> Posterior:
    """Collapsed Gibbs: flips of every client and swaps, all chains at once, cooling down first."""
    chains = _Chains(given, _starts(given, rng, settings, start))
    cooling = np.geomspace(settings.hottest, 1.0, settings.burn_in)
    return _gathered(chains, rng, cooling, settings.sweeps)


def sample_exactly(
    evidence: Evidence, rng: np.random.Generator, settings: Settings, rough: Posterior
) -> Posterior:
    """Under C(tau), from where the chains of `sample` ended and with what they found.

    Nobody is taken to be less probable than a priori: who proposes too little is never corrected.
    """
    positive = np.maximum(rough.probabilities, settings.share)
    proposing = _Chains(terms(evidence, settings, positive), rough.states.astype(np.float64))
    chains = _ExactChains(evidence, settings, proposing)
    return _gathered(chains, rng, np.ones(settings.rough), settings.sweeps)


class _Sampler(Protocol):
    """Chains with their sets tau (chains, N) and, for each chain, s, k and gamma.

    ``sweep`` returns the probabilities by which it drew each client (chains, N).
    """

    @property
    def tau(self) -> Array: ...
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


def _flips(chains: _Chains | _ExactChains, rng: np.random.Generator, cold: float) -> Array:
    """Every client once in random order; the probabilities (chains, N) by which it was drawn."""
    number, clients = chains.tau.shape
    chance = np.empty((number, clients))
    uniform = rng.random((clients, number))
    for turn, client in enumerate(rng.permutation(clients)):
        chance[:, client] = chains.flip(client, uniform[turn], cold)
    return chance


def _swaps(chains: _Chains | _ExactChains, rng: np.random.Generator, cold: float) -> None:
    for _ in range(max(3, chains.tau.shape[1] // 10)):
        chains.swap(rng, cold)


class _Chains:
    """The sets that the chains hold, with the sums that make a step cheap.

    ``linked`` is products tau, ``q`` tau' products tau and ``h`` tau' projections of the pair.
    """

    HELD = ("tau", "count", "pair", "linked", "q", "h")

    def __init__(self, given: Terms, tau: Array) -> None:
        self.given, self.tau = given, tau
        self.pair = np.full(len(tau), given.constants.argmax())
        self.count = self.linked = self.q = self.h = np.zeros(0)
        self.add_up()

    def sweep(self, rng: np.random.Generator, cold: float) -> Array:
        """A new (s, k), a flip of every client in random order, some swaps; or that backwards.

        Either way by a coin, so that a sweep is as likely as its reverse (`_ExactChains` builds on
        that). Returns the flips' probabilities.
        """
        if rng.random() < 0.5:
            self.choose_pair(rng, cold)
            chance = _flips(self, rng, cold)
            _swaps(self, rng, cold)
        else:
            _swaps(self, rng, cold)
            chance = _flips(self, rng, cold)
            self.choose_pair(rng, cold)
        return chance

    def log_joint(self) -> Array:
        """log p(y, tau, s, k) of where each chain is, without C(tau) (chains,)."""
        given = self.given
        gain = given.gain(self.q, self.h) + given.constants[self.pair]
        return np.asarray(gain + given.prior[np.rint(self.count).astype(int)])

    def held(self) -> dict[str, NDArray[Any]]:
        """A copy of where the chains are."""
        return {name: getattr(self, name).copy() for name in self.HELD}

    def take_back(self, held: dict[str, NDArray[Any]], which: NDArray[np.bool_]) -> None:
        """Puts these chains back to where they were."""
        for name, before in held.items():
            getattr(self, name)[which] = before[which]

    def others(self) -> tuple[Array, Array, Array]:
        """s, k and the posterior mean of gamma."""
        given, pair = self.given, self.pair
        return given.scales[pair], given.persistent[pair], given.gamma(self.q, self.h)

    def choose_pair(self, rng: np.random.Generator, cold: float) -> None:
        joint = cold * self.given.log_joint(self.tau)
        weight = np.exp(joint - joint.max(axis=1, keepdims=True))
        bounds = np.cumsum(weight, axis=1)
        drawn = rng.random(len(self.tau)) * bounds[:, -1]
        self.pair = (bounds < drawn[:, None]).sum(axis=1)
        self.add_up()

    def add_up(self) -> None:
        """The sums anew, after tau or the pair was changed."""
        self.count = self.tau.sum(axis=1)
        self.linked = np.einsum("cij,cj->ci", self.given.products[self.pair], self.tau)
        self.q = np.einsum("ci,ci->c", self.linked, self.tau)
        self.h = np.einsum("ci,ci->c", self.given.projections[self.pair], self.tau)

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
    """Chains under C(tau), moved in two ways; either alone can get stuck.

    Another model's chains propose a sweep, which is as likely as its reverse under that model.
    Taken with probability min(1, w(after) / w(before)), w being how much more probable C(tau) makes
    a state than they do, it is so under C(tau). Few are taken where v is large.

    Then gamma and the rounds' common part m are drawn. Given those the rounds are independent, and
    a flip is a sum over the client's rounds; but little moves where m is most of what varies.
    """

    def __init__(self, evidence: Evidence, settings: Settings, proposing: _Chains) -> None:
        self.evidence, self.settings, self.proposing = evidence, settings, proposing
        self.prior, pairs = proposing.given.prior, grid_of(settings)
        self.common, self.own = covariances(evidence, pairs)
        self.log_pairs = log_prior_of_pairs(pairs, settings)
        self.roots = np.linalg.cholesky(self.common)
        self.rounds = [np.flatnonzero(column) for column in evidence.participation.T]
        chains, rounds = len(proposing.tau), len(evidence.y)
        self.gamma, self.m = np.ones(chains), np.zeros((chains, rounds))
        self.there = self.quiet = self.m

    @property
    def tau(self) -> Array:
        return self.proposing.tau

    def others(self) -> tuple[Array, Array, Array]:
        """s, k and gamma."""
        pair, given = self.proposing.pair, self.proposing.given
        return given.scales[pair], given.persistent[pair], self.gamma

    def sweep(self, rng: np.random.Generator, cold: float) -> Array:
        """A proposal, taken or not; gamma and m anew; flips and swaps, the flips' chances."""
        roots = self._propose(rng, cold)
        self.there = self.tau @ self.evidence.participation.T
        self._draw_common(rng, roots)
        chance = _flips(self, rng, cold)
        _swaps(self, rng, cold)
        self.proposing.add_up()
        return chance

    def _propose(self, rng: np.random.Generator, cold: float) -> Array:
        """A sweep of the others, at times of (s, k) alone; returns the covariances' roots then."""
        chains, before = self.proposing, self.proposing.held()
        roots, density = self._state()
        weight = density - chains.log_joint()
        step = chains.choose_pair if rng.random() < PAIRS_ALONE else chains.sweep
        step(rng, cold)
        new_roots, density = self._state()
        back = np.log(rng.random(len(weight))) >= density - chains.log_joint() - weight
        chains.take_back(before, back)
        new_roots[back] = roots[back]
        return new_roots

    def _state(self) -> tuple[Array, Array]:
        """Roots of the covariance of y given tau alone, gamma's part included (chains, T, T); and
        log p(y, tau, s, k), but for a constant (chains,)."""
        evidence, pair = self.evidence, self.proposing.pair
        there = self.tau @ evidence.participation.T
        shift = evidence.effect * there
        whole = self.common[pair] + self.settings.gamma_sd**2 * shift[:, :, None] * shift[:, None]
        rounds = np.arange(whole.shape[1])
        whole[:, rounds, rounds] += self.own[pair] + evidence.variance * there
        roots = np.asarray(np.linalg.cholesky(whole))
        prior = self.log_pairs[pair] + self.prior[np.rint(self.proposing.count).astype(int)]
        return roots, np.asarray(prior + _log_density(roots, evidence.y - shift))

    def _draw_common(self, rng: np.random.Generator, roots: Array) -> None:
        """gamma and m given tau and y: drawn without y, then moved by what y says."""
        chains, rounds = self.there.shape
        pair = self.proposing.pair
        shift, sd = self.evidence.effect * self.there, self.settings.gamma_sd
        gamma = np.asarray(rng.normal(1.0, sd, size=chains))
        m = np.einsum("ctu,cu->ct", self.roots[pair], rng.normal(size=(chains, rounds)))
        self.quiet = self.own[pair]
        noise = np.sqrt(self.quiet + self.evidence.variance * self.there)
        drawn = gamma[:, None] * shift + m + noise * rng.normal(size=(chains, rounds))
        apart = np.asarray(self.evidence.y - drawn)
        pull = _solved(roots, apart)
        self.gamma = gamma + sd**2 * np.einsum("ct,ct->c", shift, pull)
        self.m = m + np.einsum("ctu,cu->ct", self.common[pair], pull)

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
