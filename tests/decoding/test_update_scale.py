"""The factor by which a whole sum was multiplied is found from the sum itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.decoding.update_scale import ScaledSum, likeliest_scale, refit

RECORDS, ROWS = 40, 120


def heard(alpha, noise, candidates=2, rows=ROWS, seed=0):
    """A sum of unit-size features times alpha plus noise, and the one-hot truth."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(RECORDS, candidates, rows))
    truth = np.eye(candidates)[rng.integers(candidates, size=RECORDS)]
    t = alpha * np.einsum("ik,ikr->r", truth, features) + noise * rng.normal(size=rows)
    base = features[:, 0].sum(axis=0) / noise
    d = (features[:, 1:] - features[:, :1]).reshape(-1, rows) / noise
    t = t / noise
    one = ScaledSum(d @ d.T, d @ t, d @ base, t @ t, t @ base, base @ base, rows, candidates)
    return one, truth


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("candidates", [2, 3])
@pytest.mark.parametrize("noise", [1e-5, 0.02])
def test_the_scale_is_found_without_the_records(alpha, candidates, noise):
    one, truth = heard(alpha, noise * alpha, candidates)
    found = likeliest_scale(one)
    assert found.value == pytest.approx(alpha, rel=0.03)
    assert found.noise < 3
    assert refit(one, truth) == pytest.approx(alpha, rel=0.01)
    if alpha < 1:
        assert found.gain > 100
        assert likeliest_scale(one, most=1.0).value == pytest.approx(alpha, rel=0.03)


def test_noise_beyond_the_stated_one_is_seen_in_the_spare_rows():
    """Three times the stated noise: nine times its variance, in the rows that no record moves."""
    honest, _ = heard(0.2, 0.02, rows=400)
    nine = {n: 9 * getattr(honest, n) for n in ("gram", "with_message", "with_base")}
    nine |= {n: 9 * getattr(honest, n) for n in ("message", "both", "base")}
    louder = likeliest_scale(replace(honest, **nine))
    assert louder.noise == pytest.approx(9, rel=0.25)
    assert likeliest_scale(honest).noise == pytest.approx(1, rel=0.25)
    assert louder.value == pytest.approx(0.2, rel=0.03)


def test_an_unscaled_sum_gains_next_to_nothing():
    gains = [likeliest_scale(heard(1.0, 0.01, seed=seed)[0]).gain for seed in range(5)]
    assert max(gains) < 15


def test_the_scale_is_bounded():
    one, truth = heard(3.0, 0.01)
    assert likeliest_scale(one).value == pytest.approx(3.0, rel=0.03)
    assert likeliest_scale(one, most=1.0).value <= 1.0
    assert refit(one, truth, most=1.0) == 1.0


def test_fewer_equations_than_unknowns_still_show_the_size():
    """No spare rows: only the size of the whole tells, so roughly."""
    one, _ = heard(0.1, 1e-4, rows=30)
    assert likeliest_scale(one).value == pytest.approx(0.1, rel=0.35)
