"""Clients' contributions: the posterior of a linear model, and what it says of strangers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.contribution import contributions


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 5), st.floats(0.2, 3.0))
def test_agrees_with_conditioning_a_joint_gaussian(seed, rounds, clients, spread):
    """The twin conditions (shares, sums) as one Gaussian, without precisions."""
    rng = np.random.default_rng(seed)
    took = (rng.random((rounds, clients)) < 0.6).astype(float)
    variance, sums = rng.uniform(0.1, 2.0, rounds), rng.normal(2, 2, rounds)
    prior = spread**2 * np.eye(clients)
    heard = took @ prior @ took.T + np.diag(variance)
    gain = prior @ took.T @ np.linalg.inv(heard)
    found = contributions(sums, variance, took, spread)
    np.testing.assert_allclose(found.mean, 1 + gain @ (sums - took.sum(axis=1)), atol=1e-9)
    left = np.diag(prior - gain @ took @ prior)
    np.testing.assert_allclose(found.sd, np.sqrt(left), atol=1e-9)


def test_one_client_a_round_is_a_weighted_mean():
    sums, variance = np.array([0.0, 0.2, 1.0]), np.array([1e-6, 1e-6, 1e-6])
    found = contributions(sums, variance, np.array([[1.0, 0], [1, 0], [0, 1]]))
    np.testing.assert_allclose(found.mean, [0.1, 1.0], atol=1e-5)


def test_who_never_took_part_keeps_the_prior():
    found = contributions(np.array([5.0]), np.array([0.1]), np.array([[1.0, 0.0]]), spread=2.0)
    assert found.mean[1] == 1.0
    assert found.sd[1] == 2.0
