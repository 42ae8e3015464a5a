"""Which clients have a property, from one number a round that is a sum over its participants.

Round r gives y_r, standardised so that a client without the property adds about N(0, 1) and a
client with it e_r more (kerkouche2023 asks the same of its linear features; DECODERS section 5).
Rounds are not independent: a client's own records lean the same way in every round. So

    y | tau, gamma ~ N(gamma E tau, C),    E = diag(e) A,    gamma ~ N(1, 0.25^2),
    C = s [k A A' + (1 - k) diag(A 1)] + offset (rho + (1 - rho) drift) offset' + diag(v A p),

with A who took part (T, N), k the persistent share of a client's variance, s its size, offset what
is not known of the mean (rho of it the same in all rounds, the rest drifting), and v the variance
of the target's own feature. gamma is integrated out in closed form, s and k over a small grid; the
number of positive clients is Beta-binomial. tau is sampled by collapsed Gibbs steps (flips, and
swaps of a positive with a negative) in several chains. Fewer rounds than clients are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

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
    lag = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    moving = np.exp(-lag / settings.drift_rounds)
    shared = settings.constant + (1 - settings.constant) * moving
    alpha, beta = settings.positives
    own = evidence.variance * count * alpha / (alpha + beta)
    fixed = shared * np.multiply.outer(evidence.offset, evidence.offset) + np.diag(own)
    pairs = np.array([(s, k) for s in settings.scales for k in settings.persistent])
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
    positive = np.arange(clients + 1)
    prior = betaln(positive + alpha, clients - positive + beta) - betaln(alpha, beta)
    return Terms(
        pairs[:, 0],
        pairs[:, 1],
        np.array(products),
        np.array(projections),
        np.array(constants),
        settings.gamma_sd,
        prior,
    )


def posterior(
    evidence: Evidence,
    rng: np.random.Generator,
    settings: Settings = DEFAULT,
    start: NDArray[np.bool_] | None = None,
) -> Posterior:
    """Probability of the property for each client; ``start`` from an earlier posterior's states."""
    return sample(terms(evidence, settings), rng, settings, start)


def sample(
    given: Terms,
    rng: np.random.Generator,
    settings: Settings = DEFAULT,
    start: NDArray[np.bool_] | None = None,
) -> Posterior:
    """Collapsed Gibbs: flips of every client and swaps, all chains at once, cooling down first."""
    clients = given.projections.shape[1]
    chains = _Chains(given, _starts(given, rng, settings, start))
    cooling = np.geomspace(settings.hottest, 1.0, settings.burn_in)
    for heat in cooling:
        chains.sweep(rng, 1 / heat)
    states = np.empty((settings.sweeps, settings.chains, clients), dtype=bool)
    chance = np.zeros((settings.chains, clients))
    scale = persistent = gamma = 0.0
    for step in range(settings.sweeps):
        chance += chains.sweep(rng, 1.0) / settings.sweeps
        states[step] = chains.tau > 0.5
        scale += float(given.scales[chains.pair].mean()) / settings.sweeps
        persistent += float(given.persistent[chains.pair].mean()) / settings.sweeps
        gamma += float(given.gamma(chains.q, chains.h).mean()) / settings.sweeps
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
