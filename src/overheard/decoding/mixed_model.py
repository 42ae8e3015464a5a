"""Which clients have a property, from one number a round that is a sum over its participants.

Round r gives y_r, standardised so that a client without the property adds about N(0, 1) and a
client with it e_r more (kerkouche2023 asks the same of its linear features; DECODERS section 5).
Rounds are not independent: a client's own records lean the same way in every round. So

    y | tau, gamma ~ N(gamma E tau, C(tau)),    E = diag(e) A,    gamma ~ N(1, 0.25^2),
    C(tau) = M + diag(s (1 - k) A 1 + v A tau),
    M = s k A A' + offset (rho + (1 - rho) drift) offset',

with A who took part (T, N), k the persistent share of a client's variance, s its size, offset what
is not known of the mean (rho of it the same in all rounds, the rest drifting), and v the variance
of the target's own feature. s and k lie on a small grid; the number of positive clients is
Beta-binomial. tau is sampled (flips, and swaps of a positive with a negative) in several chains, in
two stages. First as if v were spread evenly over all clients, C without tau, where gamma is
integrated out in closed form and a step is cheap. Then exactly: (s, k), gamma and m ~ N(0, M) are
drawn given tau, and given them the rounds are independent, so that a flip costs a sum over the
client's rounds. Fewer rounds than clients are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import betaln, expit

from overheard.errors import FixData

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """What the rounds told: y, effect e, variance v, offset (each (T,)), participation (T, N).

    ``offset`` is the standard deviation of the round's error of the mean, in units of y.
    """

    y: Array
    effect: Array
    variance: Array
    offset: Array
    participation: Array

    def __post_init__(self) -> None:
        rounds = len(self.y)
        shapes = {a.shape for a in (self.y, self.effect, self.variance, self.offset)}
        if shapes != {(rounds,)} or self.participation.shape[:1] != (rounds,):
            raise FixData(
                f"evidence of {rounds} rounds beside {sorted(shapes)} and a participation of "
                f"{self.participation.shape}; give one number a round and a row of clients each"
            )
        numbers = (self.y, self.effect, self.variance, self.offset, self.participation)
        if not all(np.isfinite(a).all() for a in numbers):
            raise FixData("the evidence holds NaN or infinite numbers; leave those rounds out")
        if not np.isin(self.participation, (0, 1)).all():
            raise FixData("participation is 1 where a client took part and 0 where it did not")

    def first(self, rounds: int) -> Evidence:
        """What was told by then."""
        return Evidence(
            self.y[:rounds],
            self.effect[:rounds],
            self.variance[:rounds],
            self.offset[:rounds],
            self.participation[:rounds],
        )


@dataclass(frozen=True)
class Settings:
    """Priors and the length of the search.

    ``positives`` are the two numbers of the Beta distribution of the share of positive clients.
    """

    positives: tuple[float, float] = (1.0, 9.0)
    gamma_sd: float = 0.25
    scales: tuple[float, ...] = (0.6, 0.8, 1.0, 1.3, 1.7, 2.3)
    persistent: tuple[float, ...] = (0.02, 0.1, 0.2, 0.35, 0.5)
    constant: float = 0.5
    drift_rounds: float = 20.0
    chains: int = 16
    burn_in: int = 30
    sweeps: int = 80
    hottest: float = 4.0
    exact_burn_in: int = 20
    exact_sweeps: int = 60


DEFAULT = Settings()


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


@dataclass(frozen=True)
class Terms:
    """What the likelihood of tau needs, for each of G pairs (s, k).

    ``products`` E' C^-1 E (G, N, N), ``projections`` E' C^-1 y (G, N), ``constants`` (G,).
    """

    scales: Array
    persistent: Array
    products: Array
    projections: Array
    constants: Array
    gamma_sd: float
    prior: Array = field(repr=False)
    """log p(tau) of a set of 0 to N clients (N + 1,)."""

    def gain(self, q: Array, h: Array) -> Array:
        """log p(y | tau) over that of nobody: q = tau' products tau, h = tau' projections."""
        s2 = self.gamma_sd**2
        spread = 1 + s2 * q
        return np.asarray(h - q / 2 + s2 * (h - q) ** 2 / (2 * spread) - np.log(spread) / 2)

    def log_joint(self, tau: Array) -> Array:
        """log p(y, tau, s, k) for sets (m, N): (m, G)."""
        q = np.einsum("mi,gij,mj->mg", tau, self.products, tau, optimize=True)
        h = tau @ self.projections.T
        count = np.rint(tau.sum(axis=1)).astype(int)
        return np.asarray(self.gain(q, h) + self.constants + self.prior[count][:, None])

    def gamma(self, q: Array, h: Array) -> Array:
        """The posterior mean of gamma."""
        s2 = self.gamma_sd**2
        return np.asarray((1 + s2 * h) / (1 + s2 * q))


def terms(evidence: Evidence, settings: Settings = DEFAULT) -> Terms:
    """The Gaussian algebra: a Cholesky factor for each pair (s, k)."""
    a = evidence.participation
    rounds, clients = a.shape
    together, count = a @ a.T, a.sum(axis=1)
    alpha, beta = settings.positives
    own = evidence.variance * count * alpha / (alpha + beta)
    fixed = _of_the_mean(evidence, settings) + np.diag(own)
    pairs = _pairs(settings)
    design = np.column_stack([evidence.effect[:, None] * a, evidence.y])
    products, projections, constants = [], [], []
    for s, k in pairs:
        covariance = s * (k * together + np.diag((1 - k) * count)) + fixed
        covariance[np.diag_indices(rounds)] += 1e-9
        root = np.linalg.cholesky(covariance)
        white = solve_triangular(root, design, lower=True, check_finite=False)
        gram = white.T @ white
        products.append(gram[:clients, :clients])
        projections.append(gram[:clients, clients])
        constants.append(-np.log(np.diag(root)).sum() - gram[clients, clients] / 2)
    return Terms(
        pairs[:, 0],
        pairs[:, 1],
        np.array(products),
        np.array(projections),
        np.array(constants),
        settings.gamma_sd,
        _prior(clients, settings),
    )


def _pairs(settings: Settings) -> Array:
    """The grid of (s, k), k running fastest."""
    return np.array([(s, k) for s in settings.scales for k in settings.persistent])


def _of_the_mean(evidence: Evidence, settings: Settings) -> Array:
    """The covariance (T, T) of what is not known of the rounds' means."""
    rounds = np.arange(len(evidence.y))
    moving = np.exp(-np.abs(np.subtract.outer(rounds, rounds)) / settings.drift_rounds)
    shared = settings.constant + (1 - settings.constant) * moving
    return np.asarray(shared * np.multiply.outer(evidence.offset, evidence.offset))


def _prior(clients: int, settings: Settings) -> Array:
    """log p(tau) of a set of 0 to N clients."""
    alpha, beta = settings.positives
    positive = np.arange(clients + 1)
    return np.asarray(betaln(positive + alpha, clients - positive + beta) - betaln(alpha, beta))


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
        chains, clients = self.tau.shape
        chance = np.empty((chains, clients))
        uniform = rng.random((clients, chains))
        for turn, client in enumerate(rng.permutation(clients)):
            chance[:, client] = self._flip(client, uniform[turn], cold)
        for _ in range(max(3, clients // 10)):
            self._swap(rng, cold)
        return chance

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

    def _flip(self, client: int, uniform: Array, cold: float) -> Array:
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

    def _swap(self, rng: np.random.Generator, cold: float) -> None:
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
        self.pairs, self.prior = _pairs(settings), _prior(a.shape[1], settings)
        together, tiny = a @ a.T, 1e-9 * np.eye(len(a))
        size = (self.pairs[:, 0] * self.pairs[:, 1])[:, None, None]
        self.common = size * together + _of_the_mean(evidence, settings) + tiny
        self.roots = np.linalg.cholesky(self.common)
        self.own = self.pairs[:, :1] * (1 - self.pairs[:, 1:]) * a.sum(axis=1) + 1e-9
        self.rounds = [np.flatnonzero(column) for column in a.T]
        self.pair = np.full(len(tau), len(self.pairs) // 2)
        self.gamma, self.m = np.ones(len(tau)), np.zeros((len(tau), len(a)))
        self.there, self.quiet = tau @ a.T, self.own[self.pair]

    def others(self) -> tuple[Array, Array, Array]:
        return self.pairs[self.pair, 0], self.pairs[self.pair, 1], self.gamma

    def sweep(self, rng: np.random.Generator, cold: float) -> Array:
        """(s, k), gamma and m anew, then flips and swaps; returns the flips' probabilities."""
        self.there = self.tau @ self.evidence.participation.T
        self._draw_common(rng, self._choose_pair(rng))
        chains, clients = self.tau.shape
        chance = np.empty((chains, clients))
        uniform = rng.random((clients, chains))
        for turn, client in enumerate(rng.permutation(clients)):
            chance[:, client] = self._flip(client, uniform[turn], cold)
        for _ in range(max(3, clients // 10)):
            self._swap(rng, cold)
        return chance

    def _whole(self, pair: NDArray[np.int64]) -> Array:
        """The covariance of y given tau alone, gamma's part included (chains, T, T)."""
        shift = self.evidence.effect * self.there
        whole = self.common[pair] + self.settings.gamma_sd**2 * shift[:, :, None] * shift[:, None]
        rounds = np.arange(whole.shape[1])
        whole[:, rounds, rounds] += self.own[pair] + self.evidence.variance * self.there
        return np.asarray(whole)

    def _choose_pair(self, rng: np.random.Generator) -> Array:
        """A step of Metropolis to a neighbour on the grid; returns the covariance there."""
        chains, wide = len(self.tau), len(self.settings.persistent)
        along_s, up = rng.random(chains) < 0.5, np.where(rng.random(chains) < 0.5, 1, -1)
        s, k = self.pair // wide + along_s * up, self.pair % wide + ~along_s * up
        inside = (s >= 0) & (s < len(self.settings.scales)) & (k >= 0) & (k < wide)
        other = np.where(inside, s * wide + k, self.pair)
        both = np.stack([self._whole(self.pair), self._whole(other)])
        rest = self.evidence.y - self.evidence.effect * self.there
        root = np.linalg.cholesky(both)
        solved = np.linalg.solve(both, np.stack([rest, rest])[..., None])[..., 0]
        log_roots = np.log(np.diagonal(root, axis1=2, axis2=3)).sum(axis=2)
        likely = -log_roots - np.einsum("ct,xct->xc", rest, solved) / 2
        moved = np.log(rng.random(chains)) < likely[1] - likely[0]
        self.pair = np.where(moved, other, self.pair)
        return np.asarray(np.where(moved[:, None, None], both[1], both[0]))

    def _draw_common(self, rng: np.random.Generator, whole: Array) -> None:
        """gamma and m given tau and y: drawn without y, then moved by what y says."""
        chains, rounds = self.there.shape
        shift, sd = self.evidence.effect * self.there, self.settings.gamma_sd
        gamma = np.asarray(rng.normal(1.0, sd, size=chains))
        m = np.einsum("ctu,cu->ct", self.roots[self.pair], rng.normal(size=(chains, rounds)))
        self.quiet = self.own[self.pair]
        noise = np.sqrt(self.quiet + self.evidence.variance * self.there)
        drawn = gamma[:, None] * shift + m + noise * rng.normal(size=(chains, rounds))
        apart = np.asarray(self.evidence.y - drawn)
        pull = np.linalg.solve(whole, apart[:, :, None])[:, :, 0]
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

    def _flip(self, client: int, uniform: Array, cold: float) -> Array:
        rounds, now = self.rounds[client], self.tau[:, client].copy()
        others = (self.tau.sum(axis=1) - now).astype(int)
        odds = self._one_more(self.there[:, rounds] - now[:, None], rounds).sum(axis=1)
        chance = expit(cold * (odds + self.prior[others + 1] - self.prior[others]))
        new = (uniform < chance).astype(np.float64)
        if (new != now).any():
            self.there[:, rounds] += (new - now)[:, None]
            self.tau[:, client] = new
        return np.asarray(chance)

    def _swap(self, rng: np.random.Generator, cold: float) -> None:
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
