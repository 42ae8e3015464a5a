"""The posterior over sets of clients against summing over every set, and its own simulations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, logsumexp
from scipy.stats import multivariate_normal

from overheard.decoding.client_sets import (
    Evidence,
    Options,
    background,
    block,
    common_part,
    contributions,
    matched,
    posterior,
)
from overheard.errors import FixData
from overheard.programs.gradient_rows import GradientRows, Written
from overheard.questions.property import f1

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


def with_lookalikes(evidence: Evidence, clients: int) -> tuple[np.ndarray, float]:
    """The slow twin: every client honest, a lookalike or a holder; the log Bayes factor too."""
    chance, joint = evidence.lookalike, {0: [], 1: []}
    holders, c = [], covariance(evidence, 1.0)
    for kinds in product((0, 1, 2), repeat=clients):
        holds, alike = np.equal(kinds, 2), np.equal(kinds, 1)
        a = evidence.effect[:, None] * evidence.participation
        whole = c + 0.25 * a[:, alike] @ a[:, alike].T
        log_density = multivariate_normal(a @ holds, whole).logpdf(evidence.y)
        honest = alike.sum() * np.log(chance) + (~alike & ~holds).sum() * np.log(1 - chance)
        joint[1].append(log_density + honest + np.log(prior_of(holds.sum(), clients, DEFAULT)))
        holders.append(holds)
        if not holds.any():
            joint[0].append(log_density + honest)
    log_odds = float(logsumexp(joint[1]) - logsumexp(joint[0]))
    p = np.exp(joint[1] - logsumexp(joint[1])) @ holders
    return p / (1 + np.exp(-log_odds)), log_odds


def test_one_who_holds_something_like_it_is_not_accused() -> None:
    """What a lone client adds may be a record that is like the target; four who add just as much
    as the target does hold it. Both as summing over all sets has it."""
    rng, one = np.random.default_rng(5), Options(scales=(1.0,))
    for added, accused in (([0.8], False), ([1.0], False), ([1.0, 1.0, 1.0, 1.0], True)):
        evidence, _ = simulated(rng, 6, 40, 9.0, positives=0, variance=0.0, model=one)
        level = np.append(added, np.zeros(6 - len(added)))
        moved = evidence.y + evidence.effect * (evidence.participation @ level)
        sure = posterior(evidence._replace(y=moved), one)
        assert sure.accused.any()
        evidence = evidence._replace(y=moved, lookalike=0.1)
        found, (p, log_odds) = posterior(evidence, one), with_lookalikes(evidence, 6)
        np.testing.assert_allclose(found.probabilities, p, atol=0.1)
        assert found.log_odds == pytest.approx(log_odds, abs=0.5)
        assert found.accused.tolist() == [accused and added > 0 for added in level]


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
        posterior(simulated(rng, 20, 40, e, positives=0, lasting=0.8)[0]).accused.any()
        for e in np.tile((1.0, 2.0, 3.0, 6.0), 30)
    ]
    assert np.mean(named) <= 0.05


def test_the_likeliest_are_named_and_accused_on_evidence_alone() -> None:
    """Four of twenty who stand out too little to be accused: the guess is worth nearly as much as
    if it were known that somebody has the property."""
    rng, known = np.random.default_rng(6), replace(DEFAULT, nobody=0.0)
    scores = []
    for _ in range(30):
        evidence, tau = simulated(rng, 20, 30, 1.5, positives=4)
        found, told = posterior(evidence), posterior(evidence, known)
        assert found.accused.tolist() == (found.chosen & (found.log_odds > np.log(20))).tolist()
        assert told.chosen.any()
        assert (told.accused == told.chosen).all()
        scores.append([f1(flags, tau) for flags in (found.accused, found.chosen, told.chosen)])
    accused, named, best = np.mean(scores, axis=0)
    assert accused < 0.8 * named
    assert named > 0.8 * best


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


def matrix(rows: np.ndarray) -> GradientRows:
    """Two layers that are written out: (2, 3) with 2 biases, and (1, 4)."""
    return GradientRows((Written(rows[:, :8], 2), Written(rows[:, 8:], 1, bias=False)))


def some_rows(rng: np.random.Generator, n: int = 60, size: int = 12) -> np.ndarray:
    return rng.normal(size=(n, size)) * np.geomspace(0.2, 3, size) + rng.normal(size=size)


def direct(rows: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Cov, the Kronecker products written out, and the ridge."""
    covariance = np.cov(rows.T, bias=True)
    system = covariance + 0.005 * np.diag(covariance).mean() * np.eye(12)
    for at, shape in ((0, (2, 3)), (8, (1, 4))):
        g = rows[:, at : at + shape[0] * shape[1]].reshape(-1, *shape)
        left, right = np.einsum("nab,ncb->ac", g, g), np.einsum("nab,nac->bc", g, g)
        size = shape[0] * shape[1]
        product = np.kron(left, right) / np.trace(left) / len(rows)
        system[at : at + size, at : at + size] += product
    system[[6, 7], [6, 7]] += np.diag(covariance)[6:8]
    return np.linalg.solve(system, differences)


def test_solves_the_system() -> None:
    rng = np.random.default_rng(0)
    rows, targets = some_rows(rng), rng.normal(size=(12, 3))
    around = background([block(matrix(part)) for part in (rows[:25], rows[25:])])
    np.testing.assert_allclose(around.mean, rows.mean(axis=0))
    np.testing.assert_allclose(around.variance, rows.var(axis=0))
    found = np.stack([matched(around, t, 0 * t, 40, 0.005) for t in targets.T], axis=1)
    np.testing.assert_allclose(found, direct(rows, targets), rtol=1e-6)


def test_what_cannot_be_used() -> None:
    with pytest.raises(FixData, match="no covariance"):
        background([block(matrix(np.ones((1, 12))))])
    same = background([block(matrix(np.ones((5, 12))))])
    with pytest.raises(FixData, match="do not vary"):
        matched(same, np.ones(12), np.zeros(12), 3, 0.005)


def answers(loadings: np.ndarray, records: int, seed: int = 0) -> np.ndarray:
    """Factors that records have, loaded on rounds, and each round's own noise; variance 1."""
    rng = np.random.default_rng(seed)
    own = np.sqrt(1 - (loadings**2).sum(axis=1))
    common = loadings @ rng.normal(size=(loadings.shape[1], records))
    return common + own[:, None] * rng.normal(size=(len(loadings), records))


def test_it_is_what_factors_in_common_make() -> None:
    t = np.linspace(0, 1, 60)
    loadings = np.stack([0.5 + 0.1 * t, 0.35 * np.cos(3 * t)], axis=1)
    found = common_part(answers(loadings, 4000))
    np.testing.assert_allclose(found, loadings @ loadings.T, atol=0.05)


@pytest.mark.parametrize(("rounds", "records"), [(1, 5), (40, 2), (200, 30), (30, 1000)])
def test_it_is_the_covariance_of_something(rounds: int, records: int) -> None:
    found = common_part(answers(np.full((rounds, 1), 0.5), records).astype(np.float32))
    assert found.shape == (rounds, rounds)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    assert np.diag(found).max() < 1.2


def test_what_does_not_change_from_round_to_round_is_all_common() -> None:
    """A network without dropout: a hundred records are enough to see it."""
    records = np.random.default_rng(0).standard_t(4, size=100)
    slowly = records + 0.02 * np.random.default_rng(1).normal(size=(30, 100)).cumsum(axis=0)
    assert common_part(slowly).min() > 0.9
    assert np.diag(common_part(slowly)).min() > 0.95


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 5))
def test_agrees_with_conditioning_a_joint_gaussian(seed, rounds, clients):
    """The twin conditions (shares, sums) as one Gaussian, without precisions."""
    rng = np.random.default_rng(seed)
    took = (rng.random((rounds, clients)) < 0.6).astype(float)
    variance, sums = rng.uniform(0.1, 2.0, rounds), rng.normal(2, 2, rounds)
    gain = took.T @ np.linalg.inv(took @ took.T + np.diag(variance))
    mean, sd = contributions(sums, variance, took)
    np.testing.assert_allclose(mean, 1 + gain @ (sums - took.sum(axis=1)), atol=1e-9)
    left = np.diag(np.eye(clients) - gain @ took)
    np.testing.assert_allclose(sd, np.sqrt(left), atol=1e-9)
