"""Cavities and tilted distributions, against dense formulas and fifty digits (mpmath)."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from measurements import crooked

from overheard.decoding.gaussian import cavities, match, moment_sites, tilt


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


def test_indicators_are_a_special_case_of_points():
    p = np.random.default_rng(1).dirichlet(np.ones(3), size=4)
    points = np.eye(3)[:, 1:]
    for ours, general in zip(moment_sites(p), moment_sites(p, points), strict=True):
        np.testing.assert_allclose(ours, general, rtol=1e-6)
    cavity = np.tile(0.3 * np.eye(2), (4, 1, 1)), np.ones((4, 2))
    np.testing.assert_allclose(tilt(p, *cavity), tilt(p, *cavity, points))


def test_a_matched_site_gives_the_posterior_the_tilted_moments():
    p = np.random.default_rng(2).dirichlet(np.ones(3) * 3, size=5)
    cavity = np.tile(0.5 * np.eye(2), (5, 1, 1)), np.full((5, 2), 0.1)
    site, shift = match(p, *cavity)
    mean = np.linalg.solve(cavity[0] + site, (cavity[1] + shift)[:, :, None])[:, :, 0]
    np.testing.assert_allclose(mean, p[:, 1:], atol=1e-6)
    sure, _ = match(p, 1e6 * cavity[0], cavity[1])  # surer than any discrete record
    assert np.linalg.eigvalsh(sure).min() >= 1e-2 - 1e-9


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def exact(values):
    return mp.matrix(np.asarray(values, dtype=np.float64).tolist())


@pytest.mark.parametrize("strength", [1e2, 1e4, 1e6])
def test_cavities_of_precise_and_blind_directions(rng, strength):
    """Singular values from a hundredth of the noise to a million times it. What is lost is the
    digits that 1 - |gain|^2 loses; probabilities move by less than 1e-4."""
    features = crooked(rng, 6, 6, np.geomspace(strength, 1e-2, 6))
    total = rng.normal(size=6)
    prior = rng.dirichlet([2, 2], size=6)
    precision, shift = moment_sites(prior)
    found_precision, found_shift = cavities(features[:, None, :], total, precision, shift)
    d = exact(features)
    whole = d * d.T + mp.diag([mp.mpf(x) for x in precision[:, 0, 0]])
    covariance = whole**-1
    mean = covariance * (d * exact(total[:, None]) + exact(shift))
    for i in range(6):
        own = 1 / covariance[i, i]
        want_precision = own - mp.mpf(precision[i, 0, 0])
        want_shift = own * mean[i] - mp.mpf(shift[i, 0])
        log_odds = want_shift - want_precision / 2
        found = found_shift[i, 0] - found_precision[i, 0, 0] / 2
        right = 1 / (1 + mp.e ** (-log_odds))
        assert 1 / (1 + mp.e ** (-mp.mpf(found))) == pytest.approx(float(right), abs=1e-4)
