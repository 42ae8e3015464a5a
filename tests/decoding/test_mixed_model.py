"""The mixed model against summing over every set of clients, and against its own simulations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln
from scipy.stats import multivariate_normal

from overheard.decoding.mixed_chains import (
    _Chains,
    best_set,
    posterior,
    sample,
)
from overheard.decoding.mixed_model import DEFAULT, Evidence, Settings, terms
from overheard.errors import FixData

pytestmark = pytest.mark.slow

FEW = Settings(scales=(0.7, 1.2), persistent=(0.5, 1.6), sweeps=400, chains=24)


def weight_of(value: float, model: Settings) -> float:
    """Of a scale or of a persistence: log-normal around one."""
    return float(np.exp(-((np.log(value) / model.alike_sd) ** 2) / 2))


def drawn(rng: np.random.Generator, grid: tuple[float, ...], model: Settings) -> float:
    weights = np.array([weight_of(value, model) for value in grid])
    return float(rng.choice(grid, p=weights / weights.sum()))


def simulated(
    rng: np.random.Generator,
    clients: int,
    rounds: int,
    effect: float,
    share: float = 0.2,
    positives: int | None = None,
    model: Settings = DEFAULT,
    gamma: float | None = None,
    variance: float = 0.3,
    lasting: float = 0.3,
) -> tuple[Evidence, np.ndarray]:
    """Rounds drawn from the model's own prior: scale, persistence, gamma, who is positive.

    ``lasting``: the share of a client's variance that is common to neighbouring rounds.
    """
    a = np.zeros((rounds, clients))
    for row in a:
        row[rng.choice(clients, max(1, round(share * clients)), replace=False)] = 1
    if positives is None:
        tau = rng.random(clients) < rng.beta(*model.positives)
    else:
        tau = np.isin(np.arange(clients), rng.choice(clients, positives, replace=False))
    s, k = (drawn(rng, grid, model) for grid in (model.scales, model.persistent))
    count = a.sum(axis=1)
    gamma = rng.normal(1, model.gamma_sd) if gamma is None else gamma
    lag = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    common = lasting * (2 + np.exp(-lag / 40)) / 3
    y = gamma * effect * (a @ tau)
    leaning = np.linalg.cholesky(common) @ rng.normal(size=(rounds, clients))
    y = y + np.sqrt(s * k) * (a * leaning).sum(axis=1)
    y = y + rng.normal(size=rounds) * np.sqrt(s * (1 - lasting * k) * count + variance * (a @ tau))
    doubt = 0.16 * (common + (1 - lasting) * np.eye(rounds))
    y = y + np.linalg.cholesky(doubt) @ rng.normal(size=rounds)
    full = np.full(rounds, 1.0)
    return Evidence(y, effect * full, variance * full, doubt, a, common), tau


def covariance(evidence: Evidence, s: float, k: float) -> np.ndarray:
    """Of y where nobody is positive, client by client: no algebra is shared with the model's."""
    common, rounds = evidence.common, len(evidence.y)
    c = np.zeros((rounds, rounds))
    for t, u in product(range(rounds), repeat=2):
        c[t, u] = evidence.doubt[t, u]
        for client in evidence.participation.T:
            own = 1.0 if t == u else k * common[t, u]
            c[t, u] += s * own * client[t] * client[u]
    return c


def prior_of(number: float, clients: int, model: Settings) -> float:
    """p(tau) of a set of so many: Beta-binomial, and more weight on nobody."""
    alpha, beta = model.positives
    some = np.exp(betaln(number + alpha, clients - number + beta) - betaln(alpha, beta))
    return float((1 - model.nobody) * some + model.nobody * (number == 0))


SETS = np.array(list(product((0.0, 1.0), repeat=10)))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), effect=st.floats(0.5, 8), rounds=st.integers(3, 40))
def test_sampling_finds_what_summing_over_all_sets_finds(
    seed: int, effect: float, rounds: int
) -> None:
    """Ten clients: 1,024 sets, also where the evidence is strong and chains could get stuck."""
    rng = np.random.default_rng(seed)
    evidence, _ = simulated(rng, 10, rounds, effect, 0.3)
    joint = terms(evidence).log_joint(SETS)
    weight = np.exp(joint - joint.max()).sum(axis=1)
    found = sample(terms(evidence), rng)
    np.testing.assert_allclose(found.probabilities, weight @ SETS / weight.sum(), atol=0.06)


def test_a_swap_draws_who_takes_the_place_by_the_odds() -> None:
    """Many chains, one positive client each: where it goes, against the joint probabilities."""
    rng = np.random.default_rng(8)
    one = replace(FEW, scales=(1.0,), persistent=(1.0,))
    evidence, _ = simulated(rng, 6, 8, 1.5, 0.4, positives=2)
    given_ = terms(evidence, one)
    tau = np.zeros((20_000, 6))
    tau[:, 2] = 1
    chains = _Chains(given_, tau)
    chains.swap(rng, 1.0)
    joint = given_.log_joint(np.eye(6))[:, 0]
    chance = np.exp(joint - joint.max()) / np.exp(joint - joint.max()).sum()
    np.testing.assert_allclose(chains.tau.mean(axis=0), chance, atol=0.015)
    kept = chains.held()
    chains.add_up()  # the sums that were carried along are the sums
    for name in ("count", "linked", "q", "h"):
        np.testing.assert_allclose(kept[name], getattr(chains, name), atol=1e-9)
    np.testing.assert_allclose(chains.log_joint(), given_.log_joint(chains.tau)[:, 0])


def summed_exactly(evidence: Evidence, model: Settings) -> np.ndarray:
    """Probabilities of ten clients under C(tau): a Cholesky factor for each set and (s, k)."""
    a, t = evidence.participation, len(evidence.y)
    there = SETS @ a.T
    shift = evidence.effect * there
    rest = evidence.y - shift
    prior = np.log([prior_of(number, 10, model) for number in SETS.sum(axis=1)])
    joint = []
    for s, k in product(model.scales, model.persistent):
        c = covariance(evidence, s, k)
        c = c + model.gamma_sd**2 * shift[:, :, None] * shift[:, None, :]
        c = c + np.eye(t) * (evidence.variance * there)[:, None, :]
        root = np.linalg.cholesky(c)
        white = np.linalg.solve(root, rest[:, :, None])[:, :, 0]
        halves = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        pair = np.log(weight_of(s, model) * weight_of(k, model))
        joint.append(pair + prior - halves - (white**2).sum(axis=1) / 2)
    weight = np.exp(np.array(joint) - np.max(joint)).sum(axis=0)
    return np.asarray(weight @ SETS / weight.sum())


@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    effect=st.floats(0.5, 8),
    rounds=st.integers(3, 40),
    variance=st.sampled_from([1e-9, 1.0, 8.0]),
    lasting=st.sampled_from([0.3, 0.7]),
)
def test_the_exact_stage_finds_what_summing_over_all_sets_finds(
    seed: int, effect: float, rounds: int, variance: float, lasting: float
) -> None:
    """Also where a client leans the same way in most rounds, and chains could get stuck."""
    rng = np.random.default_rng(seed)
    few = replace(FEW, persistent=(0.6, 1.3))
    evidence, _ = simulated(
        rng, 10, rounds, effect, 0.3, variance=variance, lasting=lasting, model=few
    )
    found = posterior(evidence, rng, few)
    np.testing.assert_allclose(found.probabilities, summed_exactly(evidence, few), atol=0.05)


def test_two_runs_agree() -> None:
    """With the settings that are used: what is said of a client does not hang on the seed."""
    rng = np.random.default_rng(6)
    evidence, _ = simulated(rng, 50, 60, 2.5, 0.3, variance=2.0, lasting=0.6)
    one, other = (posterior(evidence, np.random.default_rng(seed)) for seed in (1, 2))
    assert one.disagreement < 0.3
    assert np.abs(one.probabilities - other.probabilities).max() < 0.12


def test_calibrated_under_its_own_model() -> None:
    """Of those given a probability p, a share p is positive; and the expected F1 is reached."""
    rng = np.random.default_rng(7)
    quick = Settings(chains=6, burn_in=10, rough=8, sweeps=30)
    given_, real, expected, reached = [], [], [], []
    for _ in range(24):
        evidence, tau = simulated(rng, 20, 30, 4.0, variance=5.0)
        found = posterior(evidence, rng, quick)
        given_.append(found.probabilities)
        real.append(tau)
        expected.append(found.expected_f1)
        both = found.chosen.sum() + tau.sum()
        reached.append(2 * (found.chosen & tau).sum() / both if both else 1.0)
    p, hit = np.concatenate(given_), np.concatenate(real)
    for low, high in ((0.0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.95), (0.95, 1.01)):
        inside = (p >= low) & (p < high)
        error = np.sqrt(p[inside].mean() * (1 - p[inside].mean()) / inside.sum())
        assert abs(hit[inside].mean() - p[inside].mean()) < 3.5 * error + 0.02
    assert abs(np.mean(expected) - np.mean(reached)) < 0.1


def test_fewer_rounds_than_clients() -> None:
    """Least squares has nothing to say at 35 rounds of 50 clients; this has."""
    rng = np.random.default_rng(0)
    evidence, tau = simulated(rng, 50, 35, 12.0, positives=5, gamma=1.0)
    found = posterior(evidence, rng)
    assert found.probabilities[tau].min() > found.probabilities[~tau].max()
    assert (found.chosen == tau).all()


def test_best_set_by_hand() -> None:
    states = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    chosen, expected = best_set(states.mean(axis=0), states)
    assert chosen.tolist() == [True, False, False]
    assert expected == pytest.approx((2 / 3 + 1 + 0) / 3)
    nobody, expected = best_set(np.zeros(3), np.zeros((2, 3), dtype=bool))
    assert not nobody.any()
    assert expected == 1.0


def test_evidence_is_checked() -> None:
    one = np.ones(3)
    with pytest.raises(FixData, match="3 rounds"):
        Evidence(one, one, one, np.eye(3), np.ones((2, 4)), np.eye(3))
    with pytest.raises(FixData, match="NaN"):
        Evidence(one * np.nan, one, one, np.eye(3), np.ones((3, 4)), np.eye(3))
    with pytest.raises(FixData, match="correlations of"):
        Evidence(one, one, one, np.eye(3), np.ones((3, 4)), np.eye(2))
    with pytest.raises(FixData, match="took part"):
        Evidence(one, one, one, np.eye(3), np.full((3, 4), 0.5), np.eye(3))


def test_gamma_is_the_posterior_mean_given_a_set() -> None:
    """One set, one pair: against the ratio of two integrals over gamma."""
    evidence, tau = simulated(np.random.default_rng(9), 6, 12, 3.0, 0.4, positives=2)
    one = Settings(scales=(1.0,), persistent=(1.0,), gamma_sd=0.5)
    given = terms(replace(evidence, variance=np.zeros(12)), one)
    mean = evidence.effect * (evidence.participation @ tau)
    density = multivariate_normal(np.zeros(12), covariance(evidence, 1.0, 1.0))
    gammas = np.linspace(-1.5, 3.5, 2001)
    weight = np.exp(density.logpdf(evidence.y - gammas[:, None] * mean) - 2 * (gammas - 1) ** 2)
    q = tau @ given.products[0] @ tau
    found = given.gamma(q, tau @ given.projections[0])
    assert found == pytest.approx(float(weight @ gammas / weight.sum()), abs=1e-6)
