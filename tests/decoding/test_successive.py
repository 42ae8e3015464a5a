"""Deciding record by record: exact where a few equations are missing, silent where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.ladder import decode
from overheard.decoding.measurement import from_differences
from overheard.decoding.successive import _gaussian, _gaussian_by_svd, successive


def problem(rng, records, equations, noise):
    rows = rng.normal(size=(records, equations))
    secret = rng.integers(0, 2, records)
    total = secret @ rows + noise * rng.normal(size=equations)
    return from_differences(rows, total, noise), secret


@pytest.mark.parametrize("share", [0.9, 0.97])
def test_decides_everything_with_a_few_equations_missing(rng, share):
    measurement, secret = problem(rng, 300, int(share * 300), 1e-5)
    found = successive(measurement)
    assert found.converged
    assert np.array_equal(found.guess, secret)
    assert decode(measurement).method == "successive"


def test_says_nothing_where_it_cannot_know(rng):
    for records, equations, noise in [(300, 60, 1e-5), (100, 90, 30.0)]:
        measurement, _ = problem(rng, records, equations, noise)
        assert not successive(measurement).converged


def test_twins_are_never_decided(rng):
    """Two records with the same row: only their sum is known."""
    rows = rng.normal(size=(100, 95))
    rows[1] = rows[0]
    secret = rng.integers(0, 2, 100)
    secret[:2] = 0, 1
    measurement = from_differences(rows, secret @ rows + 1e-6 * rng.normal(size=95), 1e-6)
    assert not successive(measurement).converged


def test_a_total_that_nothing_explains_is_refused(rng):
    measurement, _ = problem(rng, 100, 98, 1e-3)
    wrong = from_differences(
        measurement.features[:, 1], measurement.total + 50 * rng.normal(size=measurement.rank), 1.0
    )
    assert not successive(wrong).converged


def test_priors_of_zero_and_one_are_kept(rng):
    measurement, secret = problem(rng, 80, 70, 1e-4)
    prior = np.full((80, 2), 0.5)
    prior[:10] = np.eye(2)[secret[:10]]
    found = successive(measurement, prior)
    assert found.converged
    assert np.array_equal(found.guess, secret)


def test_nearly_exact_messages_are_decided_too(rng):
    """Messages in double precision: rows from a thousand to 1e12 times the noise, whose squares
    are farther apart than doubles tell."""
    turns = [np.linalg.qr(rng.normal(size=(30, 30)))[0] for _ in range(2)]
    rows = turns[0] * np.logspace(12, 3, 30) @ turns[1]
    secret, half = rng.integers(0, 2, 30), np.full(30, 0.5)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(rows.T @ rows / 4 + np.eye(30))
    middle, deviation = _gaussian(rows, secret @ rows, half, half**2)
    np.testing.assert_allclose(middle, secret, atol=0.01)
    assert (deviation < 0.01).all()


def test_the_slow_way_is_the_same(rng):
    rows, mean = rng.normal(size=(40, 30)), rng.random(40)
    given = rows, rng.normal(size=30), mean, mean * (1 - mean)
    for one, other in zip(_gaussian(*given), _gaussian_by_svd(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
