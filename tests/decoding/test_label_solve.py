"""Residuals from stacked linear measurements: exact, honest about twins and noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.label_solve import solve_residuals
from overheard.errors import FixData


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 20))
def test_quiet_full_rank_rows_are_solved_exactly(seed, records, spare):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(records + spare, records))
    values = rng.normal(size=records)
    noise = np.full(records + spare, 1e-9)
    found = solve_residuals([(features, features @ values, noise)], records)
    np.testing.assert_allclose(found.values, values, atol=1e-5)
    assert found.rank == records
    assert found.identified.all()


def test_blocks_are_one_system(rng):
    features, values = rng.normal(size=(30, 8)), rng.normal(size=8)
    noise = rng.uniform(0.01, 0.1, 30)
    totals = features @ values + noise * rng.normal(size=30)
    whole = solve_residuals([(features, totals, noise)], 8)
    cut = [slice(0, 3), slice(3, 20), slice(20, 30)]
    parts = solve_residuals(((features[s], totals[s], noise[s]) for s in cut), 8)
    np.testing.assert_allclose(parts.values, whole.values, rtol=1e-9)
    np.testing.assert_allclose(parts.sd, whole.sd, rtol=1e-9)
    assert parts.misfit == pytest.approx(whole.misfit)


def test_intervals_cover(rng):
    hits = []
    for _ in range(200):
        features, values = rng.normal(size=(30, 20)), rng.normal(0, 2, 20)
        noise = np.full(30, 1.0)
        found = solve_residuals([(features, features @ values + rng.normal(size=30), noise)], 20)
        hits.append(np.mean(np.abs(found.values - values) <= 1.96 * found.sd))
    assert 0.93 <= np.mean(hits) <= 0.97


def test_noise_that_was_understated_is_noticed(rng):
    hits = []
    for _ in range(100):
        features, values = rng.normal(size=(60, 10)), rng.normal(0, 5, 10)
        totals = features @ values + rng.normal(size=60)
        found = solve_residuals([(features, totals, np.full(60, 0.01))], 10)
        assert found.misfit > 1000
        hits.append(np.mean(np.abs(found.values - values) <= 1.96 * found.sd))
    assert 0.92 <= np.mean(hits) <= 0.97


def test_bad_input(rng):
    features = rng.normal(size=(4, 3))
    with pytest.raises(FixData, match="nothing to solve"):
        solve_residuals([], 3)
    with pytest.raises(FixData, match="belong together"):
        solve_residuals([(features, np.ones(3), np.ones(4))], 3)
    with pytest.raises(FixData, match="noise positive"):
        solve_residuals([(features, np.ones(4), np.zeros(4))], 3)
    with pytest.raises(FixData, match="finite"):
        solve_residuals([(features * np.nan, np.ones(4), np.ones(4))], 3)
