from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import Measurement, from_differences, from_gram, from_rows
from overheard.errors import FixData


def _primal(p, measurement, prior):
    """Relative entropy to the prior plus half the squared residual: what the dual minimises."""
    residual = measurement.total - np.tensordot(p, measurement.features, 2)
    safe = np.maximum(p, 1e-300)
    return float((p * np.log(safe / prior)).sum() + 0.5 * residual @ residual)


@pytest.mark.parametrize(("m", "k", "rows"), [(6, 2, 2), (5, 3, 4), (1, 4, 2)])
def test_no_product_distribution_does_better(simulate, m, k, rows):
    problem = simulate(11, m, k, rows, 0.5)
    measurement = from_rows(problem.features, problem.total, 0.5)
    rng = np.random.default_rng(0)
    prior = rng.dirichlet(np.ones(k), size=m)
    ours = max_entropy(measurement, prior)
    result = optimize.minimize(
        lambda x: _primal(x.reshape(m, k), measurement, prior),
        np.full(m * k, 1 / k),
        method="SLSQP",
        bounds=[(1e-9, 1.0)] * (m * k),
        constraints={"type": "eq", "fun": lambda x: x.reshape(m, k).sum(axis=1) - 1},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert result.success
    assert _primal(ours.probabilities, measurement, prior) <= result.fun + 1e-7
    np.testing.assert_allclose(ours.probabilities, result.x.reshape(m, k), atol=2e-4)


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-5])
@pytest.mark.parametrize(("m", "k", "rows"), [(40, 2, 10), (30, 4, 15), (25, 2, 60)])
def test_duality_gap_is_closed(simulate, m, k, rows, noise):
    """The gap is zero at the optimum and nowhere else: a certificate that needs no solver."""
    problem = simulate(12, m, k, rows, noise)
    measurement = from_rows(problem.features, problem.total, noise).capped(1e6)
    prior = np.random.default_rng(0).dirichlet(np.ones(k), size=m)
    posterior = max_entropy(measurement, prior)
    assert posterior.converged
    p = posterior.probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    multipliers = measurement.total - np.tensordot(p, measurement.features, 2)
    log_partition = special.logsumexp(np.log(prior) + measurement.features @ multipliers, axis=1)
    dual = log_partition.sum() - measurement.total @ multipliers + multipliers @ multipliers / 2
    assert _primal(p, measurement, prior) + dual == pytest.approx(0.0, abs=5e-3)


def test_one_record_is_exact(enumerate_posterior, simulate):
    problem = simulate(13, 1, 2, 1, 1.0)
    prior = np.array([[0.7, 0.3]])
    exact = enumerate_posterior(*problem[:2], 1.0, prior)
    # For one record the variance of the indicator is ignored, so it is the mode that must agree.
    got = max_entropy(from_rows(*problem[:2], 1.0), prior)
    assert got.guess[0] == exact.best[0]


@pytest.mark.parametrize("k", [2, 3])
def test_full_rank_low_noise_is_exact(simulate, enumerate_posterior, k):
    problem = simulate(14, 6, k, 30, 1e-3)
    prior = np.full((6, k), 1 / k)
    exact = enumerate_posterior(*problem[:2], 1e-3, prior)
    got = max_entropy(from_rows(*problem[:2], 1e-3), prior)
    np.testing.assert_array_equal(got.guess, exact.best)
    np.testing.assert_allclose(got.probabilities, exact.marginals, atol=1e-3)


def test_marginals_are_close_to_enumeration_when_rows_are_few(simulate, enumerate_posterior):
    """One or two equations about a dozen records: correlations are weak, marginals agree."""
    gaps = []
    for seed in range(10):
        problem = simulate(seed, 12, 2, 2, 1.0)
        prior = np.full((12, 2), 0.5)
        exact = enumerate_posterior(*problem[:2], 1.0, prior).marginals
        gaps.append(np.abs(max_entropy(from_rows(*problem[:2], 1.0)).probabilities - exact))
    assert np.mean(gaps) < 0.05


def test_calibrated_with_few_equations(simulate, calibration_error):
    """Stated probabilities are met over simulated problems, prior skewed (ECE <= 0.05)."""
    prior = np.array([0.7, 0.3])
    p, s = [], []
    for seed in range(30):
        problem = simulate(seed, 120, 2, 15, 0.3, prior)
        p.append(max_entropy(from_rows(*problem[:2], 0.3), prior).probabilities)
        s.append(problem.secret)
    assert calibration_error(np.concatenate(p), np.concatenate(s)) <= 0.05


def test_exact_separable_data_without_noise(simulate):
    problem = simulate(15, 60, 2, 80, 0.0)
    posterior = max_entropy(from_rows(*problem[:2], 0.0))
    np.testing.assert_array_equal(posterior.guess, problem.secret)
    assert posterior.converged
    assert posterior.confidence.min() > 1 - 1e-6
    assert posterior.rank == posterior.unknowns == 60


def test_rank_deficient_duplicates_share_their_count(simulate):
    """Two records alike in everything public: only their count can be known."""
    problem = simulate(16, 20, 2, 60, 1e-4)
    features = problem.features.copy()
    features[1] = features[0]
    secret = problem.secret.copy()
    secret[:2] = 0, 1
    total = features[np.arange(20), secret].sum(axis=0)
    posterior = max_entropy(from_rows(features, total, 1e-4))
    assert posterior.rank == 19
    np.testing.assert_allclose(posterior.probabilities[:2], 0.5, atol=1e-3)
    np.testing.assert_array_equal(posterior.guess[2:], secret[2:])


def test_ill_conditioned_rows_and_gram_agree_where_both_can_see(simulate):
    rng = np.random.default_rng(17)
    left, _ = np.linalg.qr(rng.normal(size=(60, 60)))
    right, _ = np.linalg.qr(rng.normal(size=(80, 60)))
    d = (left * np.logspace(2, -3, 60)) @ right.T
    secret = rng.integers(0, 2, 60)
    b = secret @ d + 1e-3 * rng.normal(size=80)
    rows = max_entropy(from_differences(d, b, 1e-3))
    gram = max_entropy(from_gram(d @ d.T, d @ b, 1e-3))
    assert rows.converged
    assert gram.converged
    np.testing.assert_allclose(rows.probabilities, gram.probabilities, atol=1e-3)


def test_very_ill_conditioned_rows_still_converge():
    rng = np.random.default_rng(18)
    left, _ = np.linalg.qr(rng.normal(size=(60, 60)))
    right, _ = np.linalg.qr(rng.normal(size=(80, 60)))
    d = (left * np.logspace(4, -8, 60)) @ right.T
    secret = rng.integers(0, 2, 60)
    posterior = max_entropy(from_differences(d, secret @ d, 1e-9))
    assert posterior.converged
    assert np.mean(posterior.guess == secret) > 0.9


def test_masked_and_certain_candidates_are_respected(simulate):
    problem = simulate(19, 20, 3, 12, 0.1)
    prior = np.full((20, 3), 1 / 3)
    prior[0] = (0.0, 1.0, 0.0)
    prior[1] = (0.5, 0.0, 0.5)
    posterior = max_entropy(from_rows(*problem[:2], 0.1), prior)
    np.testing.assert_array_equal(posterior.probabilities[0], prior[0])
    assert posterior.probabilities[1, 1] == 0.0
    assert posterior.unknowns == 40 - 3
    np.testing.assert_allclose(posterior.probabilities.sum(axis=1), 1.0)


def test_no_information_returns_the_prior():
    prior = np.array([0.2, 0.5, 0.3])
    posterior = max_entropy(from_rows(np.ones((5, 3, 2)), np.full(2, 5.0), 0.1), prior)
    np.testing.assert_allclose(posterior.probabilities, np.tile(prior, (5, 1)))
    np.testing.assert_allclose(posterior.bits_leaked(prior), 0.0, atol=1e-12)
    assert posterior.chi2_per_equation == 0.0
    single = max_entropy(Measurement(np.zeros((4, 1, 2)), np.zeros(2)))
    np.testing.assert_array_equal(single.probabilities, 1.0)


def test_bits(simulate):
    problem = simulate(20, 10, 4, 60, 1e-4)
    posterior = max_entropy(from_rows(*problem[:2], 1e-4))
    np.testing.assert_allclose(posterior.bits_leaked(), 2.0, atol=1e-2)
    np.testing.assert_allclose(posterior.entropy_bits, 0.0, atol=1e-2)


def test_a_total_from_elsewhere_shows_in_chi2(simulate):
    problem = simulate(21, 30, 2, 100, 1e-2)
    wrong = max_entropy(from_rows(problem.features, problem.total + 50.0, 1e-2))
    assert wrong.chi2_per_equation > 100


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    m=st.integers(1, 12),
    k=st.integers(2, 4),
    rows=st.integers(1, 20),
    noise=st.sampled_from([1.0, 0.1, 1e-3]),
)
def test_invariances(seed, m, k, rows, noise):
    """Order of records, order of candidates, a shift per record, a rotation of the rows."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(m, k, rows))
    secret = rng.integers(0, k, m)
    total = features[np.arange(m), secret].sum(axis=0) + noise * rng.normal(size=rows)
    prior = rng.dirichlet(np.ones(k) * 3, size=m)
    base = max_entropy(from_rows(features, total, noise), prior).probabilities

    order = rng.permutation(m)
    got = max_entropy(from_rows(features[order], total, noise), prior[order]).probabilities
    np.testing.assert_allclose(got, base[order], atol=1e-5)

    values = rng.permutation(k)
    got = max_entropy(from_rows(features[:, values], total, noise), prior[:, values])
    np.testing.assert_allclose(got.probabilities, base[:, values], atol=1e-5)

    shift = rng.normal(size=(m, 1, rows))
    got = max_entropy(from_rows(features + shift, total + shift.sum(axis=(0, 1)), noise), prior)
    np.testing.assert_allclose(got.probabilities, base, atol=1e-5)

    q, _ = np.linalg.qr(rng.normal(size=(rows, rows)))
    got = max_entropy(from_rows(features @ q, total @ q, noise), prior)
    np.testing.assert_allclose(got.probabilities, base, atol=1e-5)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (np.array([0.5, 0.6]), "sum"),
        (np.array([0.2, 0.3, 0.5]), "shape"),
        (np.array([1.5, -0.5]), "negative"),
        (np.array([np.nan, 1.0]), "finite"),
        ("half", "not an array"),
    ],
)
def test_bad_priors_are_refused_by_name(simulate, prior, words):
    measurement = from_rows(*simulate(0, 3, 2, 4, 0.1)[:2], 0.1)
    with pytest.raises(FixData, match=words):
        max_entropy(measurement, prior)
