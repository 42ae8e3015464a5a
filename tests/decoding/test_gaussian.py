from __future__ import annotations

import numpy as np
import pytest

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


def test_moments_are_those_of_one_hot_indicators():
    p = np.array([[0.5, 0.2, 0.3]])
    precision, shift = moment_sites(p)
    covariance = np.diag(p[0, 1:]) - np.outer(p[0, 1:], p[0, 1:])
    np.testing.assert_allclose(precision[0], np.linalg.inv(covariance))
    np.testing.assert_allclose(np.linalg.solve(precision[0], shift[0]), p[0, 1:])


def test_a_flat_cavity_returns_the_prior():
    prior = np.array([[0.1, 0.0, 0.9]])
    np.testing.assert_allclose(tilt(prior, np.zeros((1, 2, 2)), np.zeros((1, 2))), prior)


def test_a_matched_site_gives_the_posterior_the_tilted_moments():
    p = np.random.default_rng(2).dirichlet(np.ones(3) * 3, size=5)
    cavity = np.tile(0.5 * np.eye(2), (5, 1, 1)), np.full((5, 2), 0.1)
    site, shift = match(p, *cavity)
    mean = np.linalg.solve(cavity[0] + site, (cavity[1] + shift)[:, :, None])[:, :, 0]
    np.testing.assert_allclose(mean, p[:, 1:], atol=1e-6)
    sure, _ = match(p, 1e6 * cavity[0], cavity[1])  # surer than any discrete record
    assert np.linalg.eigvalsh(sure).min() >= 1e-2 - 1e-9
