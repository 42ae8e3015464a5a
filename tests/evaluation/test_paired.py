"""Differences of the same clients, by hand and against slower ways."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from overheard.evaluation.intervals import Changed, by_interval, by_record, by_share, mean_change


def test_records_guessed_right_once_count():
    before = np.array([True] * 6 + [False] * 4)
    after = np.array([True] * 4 + [False] * 2 + [True] * 3 + [False])
    found = by_record(before, after)
    assert found.difference == pytest.approx(0.1)
    assert found.n == 10
    up, down = 4 / 12, 3 / 12
    assert found.variance == pytest.approx((up + down - (up - down) ** 2) / 12)
    assert by_record(before, before).difference == 0


def test_pairing_by_record_is_closer_where_luck_is_shared(rng):
    luck = rng.random(400)
    before, after = luck < 0.6, luck < 0.7
    apart = by_share(float(before.mean()), float(after.mean()), 400, 400)
    assert by_record(before, after).difference == pytest.approx(apart.difference)
    assert by_record(before, after).variance < 0.4 * apart.variance


def test_a_few_records_in_one_direction_are_not_a_rise():
    """Three of a thousand, none the other way: McNemar's exact test has p = 1/8."""
    before = np.zeros(1000, dtype=bool)
    after = before.copy()
    after[:3] = True
    assert mean_change([by_record(before, after)], 0.95)[1] < 0
    after[:30] = True
    assert mean_change([by_record(before, after)], 0.95)[1] > 0


def test_intervals_tell_their_variance():
    found = by_interval((1.0, 0.0, 2.0), (3.0, 2.0, 4.0), 7)
    assert found.difference == 2.0
    assert found.variance == pytest.approx(2 * (1 / 1.959964) ** 2, rel=1e-6)


def test_clients_that_differ_by_more_than_their_records_are_students():
    differences = np.array([0.1, -0.2, 0.3, 0.05])
    found = mean_change([Changed(d, 0.0, 10) for d in differences], 0.9)
    wanted = stats.ttest_1samp(differences, 0.0).confidence_interval(0.9)
    assert found == pytest.approx((differences.mean(), wanted.low, wanted.high))


def test_clients_that_do_not_differ_have_the_noise_of_their_records():
    found = mean_change([Changed(0.1, 0.01, 10), Changed(0.1, 0.01, 30)], 0.95)
    sd = np.sqrt(0.01 * (0.25**2 + 0.75**2))
    assert found[0] == pytest.approx(0.1)
    assert found[2] - found[0] == pytest.approx(stats.t.ppf(0.975, 1) * sd)


def test_the_interval_covers_changes_that_are_clients_own(rng):
    """Six clients whose change is their own, sd 5 points: 98% intervals."""
    inside = 0
    for _ in range(1000):
        true = rng.normal(0.1, 0.05, 6)
        clients = [Changed(float(rng.normal(d, 0.02)), 0.0004, 100) for d in true]
        _, low, high = mean_change(clients, 0.98)
        inside += low <= 0.1 <= high
    assert 965 <= inside <= 998
