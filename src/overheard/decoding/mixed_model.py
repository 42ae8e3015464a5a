"""Which clients have a property, from one number a round that is a sum over its participants.

Round r gives y_r, standardised so that a client without the property adds about N(0, 1) and a
client with it e_r more (kerkouche2023 asks the same of its linear features; decoders.md section 5).
Rounds are not independent: a client's own records lean the same way in rounds that are near. So

    y | tau, gamma ~ N(gamma E tau, C(tau)),    E = diag(e) A,    gamma ~ N(1, 0.1^2),
    C(tau) = M + diag(s (1 - k diag(L)) A 1 + v A tau),
    M = s k (A A') * L + doubt,

with A who took part (T, N), * entry by entry, L the part of a client's correlation between rounds
that is common to them, known from records from elsewhere (`persistence`), doubt the covariance of
the error of the mean, which came from such records too, and v the variance of the target's own
feature. s and k are what clients differ by from those records: log-normal around 1, on a small
grid. With probability one half nobody is positive, else the number of positive clients is
Beta-binomial. tau is sampled (flips, and swaps of a positive with a negative) in several chains,
which move in two ways because either alone gets stuck (`mixed_chains`). As if v were spread over
the clients, C without tau, gamma is integrated out and a step is cheap; a whole sweep of such steps
is taken, or taken back, by what C(tau) says of where it leads (delayed acceptance, Christen and Fox
2005). And gamma and m ~ N(0, M) are drawn given tau; given them the rounds are independent, and a
flip costs a sum over the client's rounds. Fewer rounds than clients will do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import betaln

from overheard.errors import FixData

Array = NDArray[np.float64]
LEAST_OWN = 0.05
"""Of a client's variance in a round, what no other round shares, at least."""


@dataclass(frozen=True)
class Evidence:
    """What the rounds told: y, effect e, variance v (each (T,)), participation (T, N).

    ``doubt`` (T, T) is the covariance of the rounds' errors of the mean, in units of y; ``common``
    (T, T) the part of an honest client's correlation that is common to two rounds.
    """

    y: Array
    effect: Array
    variance: Array
    doubt: Array
    participation: Array
    common: Array

    def __post_init__(self) -> None:
        rounds = len(self.y)
        shapes = {a.shape for a in (self.y, self.effect, self.variance)}
        square = self.common.shape == self.doubt.shape == (rounds, rounds)
        if shapes != {(rounds,)} or self.participation.shape[:1] != (rounds,) or not square:
            raise FixData(
                f"evidence of {rounds} rounds beside {sorted(shapes)}, a participation of "
                f"{self.participation.shape}, correlations of {self.common.shape} and a doubt of "
                f"{self.doubt.shape}; give one number a round, a row of clients each and a "
                "correlation of every two"
            )
        numbers = (self.y, self.effect, self.variance, self.doubt, self.participation, self.common)
        if not all(np.isfinite(a).all() for a in numbers):
            raise FixData("the evidence holds NaN or infinite numbers; leave those rounds out")
        if not np.isin(self.participation, (0, 1)).all():
            raise FixData("participation is 1 where a client took part and 0 where it did not")


@dataclass(frozen=True)
class Settings:
    """Priors and the length of the search.

    ``nobody``: the probability that no client is positive, apart from which ``positives`` are the
    two numbers of the Beta distribution of the share of positive clients. ``scales`` and
    ``persistent``: the grid of s and k, whose logarithms have the standard deviation ``alike_sd``
    (clients of one kind are like the held-out records; of many kinds less). ``hottest``: the
    temperature from which the chains are cooled down in ``burn_in`` sweeps; ``rough``: sweeps until
    it is known about whom the target's own variance is to be spread; ``sweeps``: those that count.
    """

    nobody: float = 0.5
    positives: tuple[float, float] = (1.0, 9.0)
    gamma_sd: float = 0.1
    scales: tuple[float, ...] = (0.6, 0.8, 1.0, 1.25, 1.6, 2.3)
    persistent: tuple[float, ...] = (0.6, 1.0, 1.5, 2.5)
    alike_sd: float = 0.25
    chains: int = 16
    hottest: float = 4.0
    burn_in: int = 30
    rough: int = 20
    sweeps: int = 60

    @property
    def share(self) -> float:
        """Of the clients, how many are positive on average where some are."""
        return self.positives[0] / sum(self.positives)


DEFAULT = Settings()


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


def terms(evidence: Evidence, settings: Settings = DEFAULT, positive: Array | None = None) -> Terms:
    """The Gaussian algebra: a Cholesky factor for each pair (s, k).

    v is spread over the clients by how probably ``positive`` (N,) they are; a priori, evenly.
    """
    a = evidence.participation
    rounds, clients = a.shape
    if positive is None:
        positive = np.full(clients, settings.share)
    spread = evidence.variance * (a @ positive)
    pairs = grid_of(settings)
    design = np.column_stack([evidence.effect[:, None] * a, evidence.y])
    products, projections, constants = [], [], []
    for covariance, own in zip(*covariances(evidence, pairs), strict=True):
        covariance[np.diag_indices(rounds)] += own + spread
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
        np.array(constants) + log_prior_of_pairs(pairs, settings),
        settings.gamma_sd,
        log_prior(clients, settings),
    )


def grid_of(settings: Settings) -> Array:
    """The grid of (s, k), k running fastest."""
    return np.array([(s, k) for s in settings.scales for k in settings.persistent])


def log_prior_of_pairs(pairs: Array, settings: Settings) -> Array:
    """log p(s, k) of each pair, but for a constant: log-normal around 1, independent."""
    return np.asarray(-((np.log(pairs) / settings.alike_sd) ** 2).sum(axis=1) / 2)


def covariances(evidence: Evidence, pairs: Array) -> tuple[Array, Array]:
    """For each (s, k): M, common to rounds (G, T, T), and the variance of each by itself (G, T)."""
    a, common = evidence.participation, evidence.common
    share = np.diag(common)
    s, k = pairs[:, 0], pairs[:, 1]
    tiny = 1e-9 * np.eye(len(a))
    between = (s * k)[:, None, None] * ((a @ a.T) * common) + evidence.doubt + tiny
    left = np.maximum(1 - k[:, None] * share, LEAST_OWN)
    return between, s[:, None] * left * a.sum(axis=1) + 1e-9


def log_prior(clients: int, settings: Settings) -> Array:
    """log p(tau) of a set of 0 to N clients."""
    alpha, beta = settings.positives
    positive = np.arange(clients + 1)
    share = betaln(positive + alpha, clients - positive + beta) - betaln(alpha, beta)
    some = np.asarray(share + np.log1p(-settings.nobody))
    if settings.nobody > 0:
        some[0] = np.logaddexp(some[0], np.log(settings.nobody))
    return some
