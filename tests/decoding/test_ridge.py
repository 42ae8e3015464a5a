from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.measurement import from_rows
from overheard.decoding.ridge import cavities, fits, moment_sites, ridge, tilt


@pytest.mark.parametrize(("m", "k", "rows"), [(40, 2, 60), (15, 4, 60), (1, 3, 5)])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_exact_when_equations_reach_unknowns(simulate, m, k, rows, noise):
    problem = simulate(1, m, k, rows, noise)
    posterior = ridge(from_rows(*problem[:2], noise))
    assert posterior.converged
    assert posterior.method == "ridge"
    np.testing.assert_array_equal(posterior.guess, problem.secret)


def test_ambiguity_is_admitted(simulate):
    few_rows = simulate(2, 40, 2, 20, 1e-3)
    assert not ridge(from_rows(*few_rows[:2], 1e-3)).converged
    noisy = simulate(2, 40, 2, 60, 5.0)
    assert not ridge(from_rows(*noisy[:2], 5.0)).converged


def test_a_total_from_elsewhere_is_not_called_exact(simulate):
    problem = simulate(3, 20, 2, 30, 1e-3)
    posterior = ridge(from_rows(problem.features, problem.total + 5.0, 1e-3))
    assert not posterior.converged
    assert posterior.chi2_per_equation > 100


def test_masked_candidates_count_as_known(simulate):
    """30 unknowns, 20 equations; the prior decides half of the records."""
    problem = simulate(4, 30, 2, 20, 1e-3)
    prior = np.full((30, 2), 0.5)
    prior[:15] = np.eye(2)[problem.secret[:15]]
    posterior = ridge(from_rows(*problem[:2], 1e-3), prior)
    assert posterior.unknowns == 15
    assert posterior.converged
    np.testing.assert_array_equal(posterior.guess, problem.secret)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_cavities_agree_with_the_dense_formula(k):
    rng = np.random.default_rng(5)
    n, r = 6, 4
    features = rng.normal(size=(n, k - 1, r))
    total = rng.normal(size=r)
    precision, shift = moment_sites(rng.dirichlet(np.ones(k), size=n))
    got_precision, got_shift = cavities(features, total, precision, shift)
    flat = features.reshape(-1, r)
    for i in range(n):
        own = slice(i * (k - 1), (i + 1) * (k - 1))
        sites = np.zeros((n * (k - 1), n * (k - 1)))
        for j in range(n):
            block = slice(j * (k - 1), (j + 1) * (k - 1))
            sites[block, block] = precision[j]
        covariance = np.linalg.inv(flat @ flat.T + sites)
        mean = covariance @ (flat @ total + shift.ravel())
        marginal = np.linalg.inv(covariance[own, own])
        np.testing.assert_allclose(got_precision[i], marginal - precision[i], atol=1e-8)
        np.testing.assert_allclose(got_shift[i], marginal @ mean[own] - shift[i], atol=1e-8)


def test_one_record_is_the_exact_posterior(simulate, enumerate_posterior):
    for seed in range(5):
        problem = simulate(seed, 1, 3, 2, 1.0)
        prior = np.array([[0.2, 0.5, 0.3]])
        exact = enumerate_posterior(*problem[:2], 1.0, prior).marginals
        got = ridge(from_rows(*problem[:2], 1.0, floor=1e-9), prior)
        np.testing.assert_allclose(got.probabilities, exact, atol=1e-9)


def test_moments_are_those_of_one_hot_indicators():
    p = np.array([[0.5, 0.2, 0.3]])
    precision, shift = moment_sites(p)
    covariance = np.diag(p[0, 1:]) - np.outer(p[0, 1:], p[0, 1:])
    np.testing.assert_allclose(precision[0], np.linalg.inv(covariance))
    np.testing.assert_allclose(np.linalg.solve(precision[0], shift[0]), p[0, 1:])


def test_a_flat_cavity_returns_the_prior():
    prior = np.array([[0.1, 0.0, 0.9]])
    np.testing.assert_allclose(tilt(prior, np.zeros((1, 2, 2)), np.zeros((1, 2))), prior)


def test_fit_accepts_noise_and_refuses_errors():
    rng = np.random.default_rng(6)
    assert all(fits(float(rng.chisquare(n)), n) for n in (1, 2, 10, 500) for _ in range(200))
    assert fits(0.0, 0)
    assert not fits(100.0, 2)
