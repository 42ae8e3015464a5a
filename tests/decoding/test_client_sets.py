"""The posterior over sets of clients against summing over every set, and its own simulations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import betaln, logsumexp

from overheard.decoding.client_sets import Evidence, Options, best_set, posterior

pytestmark = pytest.mark.slow
DEFAULT = Options()

FEW = Options(scales=(0.7, 1.2))


def weight_of(value: float, model: Options) -> float:
    """Of a scale: log-normal around one."""
    return float(np.exp(-((np.log(value) / model.alike_sd) ** 2) / 2))


def drawn(rng: np.random.Generator, grid: tuple[float, ...], model: Options) -> float:
    weights = np.array([weight_of(value, model) for value in grid])
    return float(rng.choice(grid, p=weights / weights.sum()))


def simulated(
    rng: np.random.Generator,
    clients: int,
    rounds: int,
    effect: float,
    share: float = 0.2,
    positives: int | None = None,
    model: Options = DEFAULT,
    variance: float = 0.3,
    lasting: float = 0.3,
) -> tuple[Evidence, np.ndarray]:
    """Rounds drawn from the model's own prior: scale, who is positive.

    ``lasting``: the share of a client's variance that is common to neighbouring rounds.
    """
    a = np.zeros((rounds, clients))
    for row in a:
        row[rng.choice(clients, max(1, round(share * clients)), replace=False)] = 1
    if positives is None:
        tau = rng.random(clients) < rng.beta(*model.share)
    else:
        tau = np.isin(np.arange(clients), rng.choice(clients, positives, replace=False))
    s = drawn(rng, model.scales, model)
    count = a.sum(axis=1)
    lag = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    common = lasting * (2 + np.exp(-lag / 40)) / 3
    y = effect * (a @ tau)
    leaning = np.linalg.cholesky(common) @ rng.normal(size=(rounds, clients))
    y = y + np.sqrt(s) * (a * leaning).sum(axis=1)
    y = y + rng.normal(size=rounds) * np.sqrt(s * (1 - lasting) * count + variance * (a @ tau))
    doubt = 0.16 * (common + (1 - lasting) * np.eye(rounds))
    y = y + np.linalg.cholesky(doubt) @ rng.normal(size=rounds)
    full = np.full(rounds, 1.0)
    return Evidence(y, effect * full, variance * full, doubt, a, common), tau


def covariance(evidence: Evidence, s: float) -> np.ndarray:
    """Of y where nobody is positive, client by client: no algebra is shared with the model's."""
    common, rounds = evidence.common, len(evidence.y)
    c = np.zeros((rounds, rounds))
    for t, u in product(range(rounds), repeat=2):
        c[t, u] = evidence.doubt[t, u]
        for client in evidence.participation.T:
            c[t, u] += s * (1.0 if t == u else common[t, u]) * client[t] * client[u]
    return c


def prior_of(number: float, clients: int, model: Options) -> float:
    """p(tau | somebody) of a set of so many: Beta-binomial."""
    alpha, beta = model.share
    some = np.exp(betaln(number + alpha, clients - number + beta) - betaln(alpha, beta))
    return float(some)


SETS = np.array(list(product((0.0, 1.0), repeat=10)))


def summed_exactly(evidence: Evidence, model: Options) -> tuple[np.ndarray, float]:
    """Probabilities of ten clients under C(tau), and the log Bayes factor against nobody: a
    Cholesky factor for each set and scale."""
    a, t = evidence.participation, len(evidence.y)
    there = SETS @ a.T
    shift = evidence.effect * there
    rest = evidence.y - shift
    prior = np.log([prior_of(number, 10, model) for number in SETS.sum(axis=1)])
    joint = []
    for s in model.scales:
        c = covariance(evidence, s) + np.eye(t) * (evidence.variance * there)[:, None, :]
        root = np.linalg.cholesky(c)
        white = np.linalg.solve(root, rest[:, :, None])[:, :, 0]
        halves = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        joint.append(np.log(weight_of(s, model)) - halves - (white**2).sum(axis=1) / 2)
    somebody = logsumexp(np.array(joint) + prior, axis=0)
    log_odds = float(logsumexp(somebody) - logsumexp(np.array(joint)[:, 0]))
    chance = np.exp(somebody - logsumexp(somebody)) @ SETS
    odds = np.exp(log_odds) * (1 - model.nobody) / model.nobody
    return np.asarray(chance * odds / (1 + odds)), log_odds


@pytest.mark.parametrize(
    ("variance", "off", "logs", "less"),
    [(0.0, 0.03, 0.3, 0.01), (1, 0.05, 0.3, 0.01), (8, 0.12, 1, 0.1)],
)
@pytest.mark.parametrize("lasting", [0.3, 0.7])
def test_finds_what_summing_over_all_sets_finds(variance, off, logs, less, lasting) -> None:
    """Thirty federations of ten clients, also where a client leans the same way in most rounds and
    where the target's own variance is most of what a round shows: probabilities, Bayes factors, and
    nearly the same log-likelihood of the truth (less nearly where it is most)."""
    rng = np.random.default_rng(0)
    apart, factors, scores = [], [], []
    for _ in range(30):
        rounds, effect = int(rng.integers(3, 40)), rng.uniform(0.5, 6)
        evidence, tau = simulated(
            rng, 10, rounds, effect, 0.3, variance=variance, lasting=lasting, model=FEW
        )
        found, (want, log_odds) = posterior(evidence, FEW), summed_exactly(evidence, FEW)
        apart.append(np.abs(found.probabilities - want).max())
        factors.append(abs(found.log_odds - log_odds))
        both = np.clip([found.probabilities, want], 1e-4, 1 - 1e-4)
        scores.append(np.log(np.where(tau, both, 1 - both)).mean(axis=1))
    assert np.mean(apart) < off
    assert np.median(factors) < logs
    ours, exact = np.mean(scores, axis=0)
    assert ours > exact - less


def test_calibrated_under_its_own_model() -> None:
    """Of those given a probability p, a share p is positive."""
    rng = np.random.default_rng(7)
    given_, real = [], []
    for _ in range(60):
        evidence, tau = simulated(rng, 20, 30, 4.0, variance=5.0)
        found = posterior(evidence)
        given_.append(found.probabilities)
        real.append(tau)
    p, hit = np.concatenate(given_), np.concatenate(real)
    for low, high in ((0.0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.95), (0.95, 1.01)):
        inside = (p >= low) & (p < high)
        error = np.sqrt(p[inside].mean() * (1 - p[inside].mean()) / inside.sum())
        assert abs(hit[inside].mean() - p[inside].mean()) < 3.5 * error + 0.02


def test_nobody_is_rarely_accused() -> None:
    """The Bayes factor exceeds 20 with probability at most 1 / 20 where nobody is positive."""
    rng = np.random.default_rng(3)
    named = [
        posterior(simulated(rng, 20, 40, e, positives=0, lasting=0.8)[0]).chosen.any()
        for e in np.tile((1.0, 2.0, 3.0, 6.0), 30)
    ]
    assert np.mean(named) <= 0.05


def test_what_a_lone_holder_would_show() -> None:
    """``detectability`` is its signal-to-noise ratio; more rounds and effect make it larger."""
    rng = np.random.default_rng(4)
    one = Options(scales=(1.0,))
    sizes = []
    for effect, rounds in ((0.5, 20), (3.0, 20), (3.0, 60)):
        evidence, _ = simulated(rng, 10, rounds, effect, positives=0, variance=0.0)
        e = evidence.effect[:, None] * evidence.participation
        want = np.sqrt(np.diag(e.T @ np.linalg.solve(covariance(evidence, 1), e)))
        sizes.append(posterior(evidence, one).detectability)
        assert sizes[-1] == pytest.approx(np.median(want), rel=1e-6)
    assert sizes[0] < sizes[1] < sizes[2]
    assert Options(odds=100).least_detectable(20) > Options(odds=10).least_detectable(20)


def test_fewer_rounds_than_clients() -> None:
    """Least squares has nothing to say at 35 rounds of 50 clients; this has."""
    rng = np.random.default_rng(0)
    evidence, tau = simulated(rng, 50, 35, 12.0, positives=5)
    found = posterior(evidence)
    assert found.probabilities[tau].min() > found.probabilities[~tau].max()
    assert (found.chosen == tau).all()


def test_best_set_by_hand() -> None:
    assert best_set(np.array([0.1, 0.9, 0.8])).tolist() == [False, True, True]
    assert best_set(np.array([0.1, 0.2, 0.9])).tolist() == [False, False, True]
    assert best_set(np.full(3, 0.1)).all()
