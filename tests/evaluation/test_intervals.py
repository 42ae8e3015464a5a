"""Intervals contain the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.evaluation.intervals import clustered_interval, mean_interval, share_interval

TRIALS = 2000


@pytest.mark.parametrize(("share", "n"), [(0.5, 100), (0.8, 60), (0.97, 300), (0.995, 1000)])
def test_share_interval_covers(rng, share, n):
    inside = 0
    for hits in rng.binomial(n, share, TRIALS):
        low, high = share_interval(np.repeat([1.0, 0.0], [hits, n - hits]))
        inside += low <= share <= high
    assert 0.93 <= inside / TRIALS <= 0.98


def test_share_interval_of_a_perfect_attack_is_not_a_point():
    low, high = share_interval(np.ones(100))
    assert high == 1.0
    assert 0.9 < low < 1.0


def test_mean_interval_covers_skewed_scores(rng):
    """Squared normals, as excess losses are."""
    inside = 0
    for _ in range(400):
        low, high = mean_interval(rng.normal(size=80) ** 2, rng)
        inside += low <= 1.0 <= high
    assert 0.92 <= inside / 400 <= 0.98


def test_mean_interval_without_spread_is_a_point(rng):
    assert mean_interval(np.full(5, 2.0), rng) == (2.0, 2.0)
    assert mean_interval(np.array([3.0]), rng) == (3.0, 3.0)


def test_clustered_interval_knows_that_records_of_a_client_err_together(rng):
    """Clients with shares of their own: the interval covers, one that ignores clients does not."""
    covered = naive = 0
    for _ in range(300):
        shares = rng.beta(8, 4, 20)
        clients = [rng.binomial(1, p, 100).astype(float) for p in shares]
        low, high = clustered_interval(clients, rng)
        covered += low <= 8 / 12 <= high
        low, high = share_interval(np.concatenate(clients))
        naive += low <= 8 / 12 <= high
    assert 0.88 <= covered / 300 <= 0.98
    assert naive / 300 < 0.7


def test_clustered_interval_of_one_client_is_about_its_records(rng):
    values = rng.binomial(1, 0.7, 400).astype(float)
    low, high = clustered_interval([values], rng)
    wilson = share_interval(values)
    assert (low, high) == pytest.approx(wilson, abs=0.01)
