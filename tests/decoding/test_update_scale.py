"""The factor by which a whole sum was multiplied is found from the sum itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.decoding.rounds import ScaledSum, by_length, refit, regressed

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


@pytest.mark.parametrize("alpha", [3.0, 1.0, 0.3, 0.01])
@pytest.mark.parametrize("candidates", [2, 3])
@pytest.mark.parametrize("noise", [1e-5, 0.02])
def test_the_scale_is_found_without_the_records(alpha, candidates, noise):
    one, truth = heard(alpha, noise * alpha, candidates)
    found = regressed(one)
    assert found.value == pytest.approx(alpha, rel=0.03)
    assert abs(found.value - alpha) < 4.5 * found.sd
    assert found.noise < 3
    assert refit(one, truth) == pytest.approx(alpha, rel=0.01)
    if alpha != 1:
        assert found.noise < found.noise_unscaled / 100


def test_it_is_least_squares_outside_of_the_span(rng):
    """Twin: the projections written out."""
    d, base, t = rng.normal(size=(6, 40)), rng.normal(size=40), rng.normal(size=40)
    one = ScaledSum(d @ d.T, d @ t, d @ base, t @ t, t @ base, base @ base, 40, 2)
    outside = np.eye(40) - d.T @ np.linalg.pinv(d.T)
    t, base = outside @ t, outside @ base
    found = regressed(one)
    assert found.value == pytest.approx(t @ base / (base @ base))
    left = t - found.value * base
    assert found.noise == pytest.approx(max(left @ left / 34, 1))
    assert found.noise_unscaled == pytest.approx(max((t - base) @ (t - base) / 34, 1))
    assert found.sd == pytest.approx(np.sqrt(found.noise / (base @ base)))


def test_noise_beyond_the_stated_one_is_seen_in_the_spare_rows():
    """Three times the stated noise: nine times its variance, in the rows that no record moves."""
    honest, _ = heard(0.2, 0.02, rows=400)
    nine = {n: 9 * getattr(honest, n) for n in ("gram", "with_message", "with_base")}
    nine |= {n: 9 * getattr(honest, n) for n in ("message", "both", "base")}
    louder = regressed(replace(honest, **nine))
    assert louder.noise == pytest.approx(9, rel=0.25)
    assert regressed(honest).noise == pytest.approx(1, rel=0.25)
    assert louder.value == pytest.approx(0.2, rel=0.03)


def test_fewer_equations_than_unknowns_show_the_size_beside_what_is_expected():
    one, _ = heard(0.1, 1e-4, rows=30)
    assert regressed(one) is None
    assert by_length(one, np.full((RECORDS, 2), 0.5)) == pytest.approx(0.1, rel=0.35)
