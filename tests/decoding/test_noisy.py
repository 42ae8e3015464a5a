"""Sweeps under noise of roughly known size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from overheard.decoding import noisy
from overheard.decoding.measurement import from_rows
from overheard.decoding.noisy import few_equations, learned_share, noisy_posterior, tilted


@pytest.mark.parametrize(("k", "noise"), [(2, 2.0), (3, 2.0), (2, 0.3)])
def test_close_to_the_exact_posterior(simulate, enumerate_posterior, k, noise):
    gaps, raised = [], []
    for seed in range(12):
        problem = simulate(seed, 7, k, 12, noise)
        exact = enumerate_posterior(
            problem.features, problem.total, noise, np.full((7, k), 1 / k)
        ).marginals
        found, variance = noisy_posterior(from_rows(problem.features, problem.total, noise))
        gaps.append(np.abs(found.probabilities - exact).max())
        raised.append(variance)
    assert np.median(gaps) < 0.05
    assert np.median(raised) == 1.0


def test_candidates_at_points_of_few_dimensions(enumerate_posterior):
    """Absent, or present in one of three sizes: one unknown number a record,
    and the answer is the exact posterior's."""
    points, prior = np.array([[0.0], [0.5], [1.0], [1.5]]), np.tile([0.4, 0.2, 0.2, 0.2], (5, 1))
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        features = points @ rng.normal(size=(5, 1, 12))
        chosen = rng.choice(4, size=5, p=prior[0])
        total = features[np.arange(5), chosen].sum(axis=0) + 0.3 * rng.normal(size=12)
        exact = enumerate_posterior(features, total, 0.3, prior).marginals
        found, _ = noisy_posterior(from_rows(features, total, 0.3), prior, points)
        gaps.append(np.abs(found.probabilities - exact).max())
    assert np.median(gaps) < 0.1


def test_understated_noise_is_raised_to_about_what_it_is(simulate):
    raised = []
    for seed in range(10):
        problem = simulate(seed, 20, 2, 200, 3.0)
        found, variance = noisy_posterior(from_rows(problem.features, problem.total, 1.0))
        assert found.method == "expectation_propagation"
        raised.append(variance)
    assert 4.0 < np.median(raised) < 14.0


def test_nothing_to_say_leaves_the_prior(simulate):
    problem = simulate(0, 5, 2, 3, 1.0)
    prior = np.tile([0.2, 0.8], (5, 1))
    silent = from_rows(np.ones((5, 2, 3)), np.zeros(3), 1.0)
    found, variance = noisy_posterior(silent, prior)
    assert (found.method, variance) == ("prior", 1.0)
    np.testing.assert_array_equal(found.probabilities, prior)
    certain = np.eye(2)[[0, 1, 0, 1, 1]]
    found, _ = noisy_posterior(from_rows(problem.features, problem.total, 1.0), certain)
    np.testing.assert_array_equal(found.probabilities, certain)


def test_sweeps_that_never_rest_give_way_to_maximum_entropy(simulate, monkeypatch):
    """A site that loses positive definiteness is no answer, however often it is tried."""
    problem = simulate(1, 6, 2, 4, 0.5)

    def broken(*_):
        raise linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(noisy, "cavities", broken)
    found, variance = noisy_posterior(from_rows(problem.features, problem.total, 0.5))
    assert found.method == "max_entropy"
    assert variance == 2.0**6


def people(rng, count, share, related):
    """Rows of a few numbers about many records, whose secret may go with their features."""
    features = np.zeros((count, 2, 6))
    features[:, 1] = rng.normal(size=(count, 6)) + 0.5
    score = features[:, 1, 1] * related + rng.normal(size=count)
    secret = (score > np.quantile(score, 1 - share)).astype(int)
    total = features[np.arange(count), secret].sum(axis=0) + rng.normal(0, 1.0, 6)
    return from_rows(features, total, 1.0), secret


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_of_a_client_unlike_the_population_is_learned(rng, share):
    measurement, secret = people(rng, 600, share, related=0.0)
    learned = learned_share(measurement, np.array([0.7, 0.3]))
    assert learned.sum() == pytest.approx(1)
    assert learned[1] == pytest.approx(secret.mean(), abs=0.06)


def test_a_secret_that_goes_with_the_features_is_not_noise(rng):
    """Few equations, many records: sweeps from a shared prior would raise the noise many times."""
    measurement, secret = people(rng, 600, 0.5, related=2.0)
    prior = np.array([0.8, 0.2])
    assert few_equations(measurement)
    found, raised = tilted(measurement, prior)
    assert noisy_posterior(measurement, prior)[1] > 3.0
    assert raised < 1.5
    assert (found.guess == secret).mean() > 0.75
    assert found.confidence.mean() == pytest.approx((found.guess == secret).mean(), abs=0.06)
