"""Residuals from stacked linear measurements: exact, honest about twins and noise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.labels import solve_residuals


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 20))
def test_quiet_full_rank_rows_are_solved_exactly(seed, records, spare):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(records + spare, records))
    values = rng.normal(size=records)
    noise = np.full(records + spare, 1e-9)
    found = solve_residuals(features, features @ values, noise)
    np.testing.assert_allclose(found.values, values, atol=1e-5)
    assert found.identified.all()


def test_intervals_cover(rng):
    hits = []
    for _ in range(200):
        features, values = rng.normal(size=(30, 20)), rng.normal(0, 2, 20)
        noise = np.full(30, 1.0)
        found = solve_residuals(features, features @ values + rng.normal(size=30), noise)
        hits.append(np.mean(np.abs(found.values - values) <= 1.96 * found.sd))
    assert 0.93 <= np.mean(hits) <= 0.97


def test_noise_that_was_understated_is_noticed(rng):
    hits = []
    for _ in range(100):
        features, values = rng.normal(size=(60, 10)), rng.normal(0, 5, 10)
        totals = features @ values + rng.normal(size=60)
        found = solve_residuals(features, totals, np.full(60, 0.01))
        assert found.misfit > 1000
        hits.append(np.mean(np.abs(found.values - values) <= 1.96 * found.sd))
    assert 0.92 <= np.mean(hits) <= 0.97
