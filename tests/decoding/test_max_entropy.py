from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import from_differences, from_rows
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


def test_very_ill_conditioned_rows_still_converge():
    rng = np.random.default_rng(18)
    left, _ = np.linalg.qr(rng.normal(size=(60, 60)))
    right, _ = np.linalg.qr(rng.normal(size=(80, 60)))
    d = (left * np.logspace(4, -8, 60)) @ right.T
    secret = rng.integers(0, 2, 60)
    posterior = max_entropy(from_differences(d[:, None], secret @ d, 1e-9))
    assert posterior.converged
    assert np.mean(posterior.guess == secret) > 0.9


def test_bits(simulate):
    problem = simulate(20, 10, 4, 60, 1e-4)
    posterior = max_entropy(from_rows(*problem[:2], 1e-4))
    np.testing.assert_allclose(posterior.entropy_bits, 0.0, atol=1e-2)
    unknown = max_entropy(from_rows(np.ones((10, 4, 1)), np.ones(1), 1.0))
    np.testing.assert_allclose(unknown.entropy_bits, 2.0)


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
