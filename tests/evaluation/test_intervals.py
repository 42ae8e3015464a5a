"""Intervals contain what they should as often as they say, also of differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest
from scipy.stats import t as student_t

from overheard.evaluation.decision import (
    Changed,
    by_record,
    clustered_interval,
    mean_change,
    mean_interval,
    share_interval,
)

pytestmark = pytest.mark.slow

TRIALS = 2000


@pytest.mark.parametrize(("share", "n"), [(0.5, 100), (0.8, 60), (0.97, 300), (0.995, 1000)])
def test_share_interval_covers(rng, share, n):
    inside = 0
    for hits in rng.binomial(n, share, TRIALS):
        low, high = share_interval(np.repeat([1.0, 0.0], [hits, n - hits]))
        inside += low <= share <= high
    # of a discrete count the coverage of a single share lies off 95% by up to two in a hundred
    assert 0.93 <= inside / TRIALS <= 0.98


def test_share_interval_is_wilsons():
    for right, n in (*((right, 7) for right in range(8)), (0, 1), (1, 1), (95, 100)):
        wilson = binomtest(right, n).proportion_ci(0.9, method="wilson")
        mine = share_interval(np.repeat([1.0, 0.0], [right, n - right]), 0.9)
        assert mine == pytest.approx((wilson.low, wilson.high))


def test_mean_interval_covers_skewed_scores(rng):
    """Squared normals, as excess losses are."""
    inside = 0
    for _ in range(400):
        low, high = mean_interval(rng.normal(size=80) ** 2, rng)
        inside += low <= 1.0 <= high
    assert 0.92 <= inside / 400 <= 0.98


def test_mean_interval_is_students_below_ten_values(rng):
    for n in (2, 9):
        values = rng.normal(size=n)
        mine = mean_interval(values, rng, 0.9)
        error = values.std(ddof=1) / np.sqrt(n)
        assert mine == pytest.approx(student_t.interval(0.9, n - 1, values.mean(), error))


def test_clustered_interval_knows_that_records_of_a_client_err_together(rng):
    """Clients with shares of their own: the interval covers, one that ignores clients does not."""
    covered = naive = 0
    for _ in range(400):
        shares = rng.beta(8, 4, 6)
        clients = [rng.binomial(1, p, 100).astype(float) for p in shares]
        low, high = clustered_interval(clients, share=True)
        covered += low <= 8 / 12 <= high
        low, high = share_interval(np.concatenate(clients))
        naive += low <= 8 / 12 <= high
    assert 0.93 <= covered / 400 <= 0.98
    assert naive / 400 < 0.7


def test_clustered_interval_by_hand():
    """Two clients, two records each, means 1 and 5: spread 8, of which the records explain 1."""
    low, high = clustered_interval([np.array([0.0, 2.0]), np.array([4.0, 6.0])])
    sd = np.sqrt((0.5**2) * ((8 - 1) + 1) * 2)
    assert (low + high) / 2 == pytest.approx(3.0)
    assert (high - low) / 2 == pytest.approx(student_t.ppf(0.975, 1) * sd)
    narrow = clustered_interval([np.array([0.0, 2.0]), np.array([4.0, 6.0])], level=0.5)
    assert narrow[1] - narrow[0] < high - low


def test_clustered_interval_of_one_client_is_about_its_records(rng):
    values = rng.binomial(1, 0.7, 400).astype(float)
    assert clustered_interval([values], share=True) == share_interval(values)
    scores = rng.normal(size=50)
    low, high = clustered_interval([scores])
    reach = student_t.ppf(0.975, 49) * scores.std(ddof=1) / np.sqrt(50)
    assert (low, high) == pytest.approx((scores.mean() - reach, scores.mean() + reach))
    assert clustered_interval([np.array([2.0])]) == (2.0, 2.0)


def test_clustered_shares_stay_shares_and_are_never_surer_than_their_records():
    perfect = [np.ones(30), np.ones(50)]
    assert clustered_interval(perfect, share=True) == share_interval(np.ones(80))
    nearly = [np.ones(30), np.concatenate([np.ones(49), [0.0]])]
    low, high = clustered_interval(nearly, share=True)
    least, most = share_interval(np.concatenate(nearly))
    assert 0 < low <= least
    assert most <= high < 1


def test_a_few_records_in_one_direction_are_not_a_rise():
    """Three of a thousand, none the other way: McNemar's exact test has p = 1/8."""
    before = np.zeros(1000, dtype=bool)
    after = before.copy()
    after[:3] = True
    assert mean_change([by_record(before, after)], 0.95)[1] < 0
    after[:30] = True
    assert mean_change([by_record(before, after)], 0.95)[1] > 0


def test_clients_that_differ_by_more_than_their_records_are_students():
    differences = np.array([0.1, -0.2, 0.3, 0.05])
    found = mean_change([Changed(d, 0.0, 10) for d in differences], 0.9)
    wanted = stats.ttest_1samp(differences, 0.0).confidence_interval(0.9)
    assert found == pytest.approx((differences.mean(), wanted.low, wanted.high))


def test_the_interval_covers_changes_that_are_clients_own(rng):
    """Six clients whose change is their own, sd 5 points: 98% intervals."""
    inside = 0
    for _ in range(1000):
        true = rng.normal(0.1, 0.05, 6)
        clients = [Changed(float(rng.normal(d, 0.02)), 0.0004, 100) for d in true]
        _, low, high = mean_change(clients, 0.98)
        inside += low <= 0.1 <= high
    assert 965 <= inside <= 998
