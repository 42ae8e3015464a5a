from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.measurement import from_rows
from overheard.decoding.posterior import decode
from overheard.decoding.rounds import float32_noise, from_factors
from overheard.errors import FixData


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def _federation(seed, m, d, rounds, noise, k=2):
    """Logistic regression whose model drifts smoothly; the last coordinate is sensitive."""
    rng = np.random.default_rng(seed)
    inputs = np.repeat(rng.normal(size=(m, 1, d)), k, axis=1)
    inputs[:, :, -1] = np.arange(k)
    labels = rng.integers(0, 2, m)
    start, end = rng.normal(size=(2, d))
    times = np.linspace(0, 1, rounds)[:, None]
    models = start + (end - start) * times + 0.3 * np.sin(6 * times) * rng.normal(size=d)
    residuals = _sigmoid(inputs @ models.T) - labels[:, None, None]
    secret = rng.integers(0, k, m)
    who = np.arange(m)
    totals = residuals[who, secret].T @ inputs[who, secret]
    totals += noise * rng.normal(size=totals.shape)
    return residuals, inputs, totals, secret


def _explicit(residuals, inputs, totals, noise):
    rows = residuals[:, :, :, None] * inputs[:, :, None, :]
    m, k = rows.shape[:2]
    return from_rows(rows.reshape(m, k, -1), totals.ravel(), noise)


def _score(measurement, answer):
    picked = measurement.features[np.arange(measurement.records), answer].sum(axis=0)
    return float(((measurement.total - picked) ** 2).sum())


@pytest.mark.parametrize(("rounds", "k"), [(1, 2), (3, 3), (60, 2), (200, 2)])
def test_no_answer_changes_its_likelihood(rounds, k):
    residuals, inputs, totals, secret = _federation(1, 40, 5, rounds, 0.01, k)
    small = from_factors(residuals, inputs, totals, 0.01)
    whole = _explicit(residuals, inputs, totals, 0.01)
    rng = np.random.default_rng(0)
    for _ in range(10):
        other = np.where(rng.random(40) < 0.1, rng.integers(0, k, 40), secret)
        expected = _score(whole, other) - _score(whole, secret)
        got = _score(small, other) - _score(small, secret)
        # Noise is raised where the left-over series is louder by chance: a few per cent.
        assert got == pytest.approx(expected, rel=0.2, abs=0.5)


def test_thousand_rounds_are_few_rows_and_a_sharper_answer():
    residuals, inputs, totals, secret = _federation(2, 150, 6, 1000, 0.05)
    everything = from_factors(residuals, inputs, totals, 0.05)
    tenth = from_factors(residuals[:, :, ::100], inputs, totals[::100], 0.05)
    assert everything.rank < 150
    assert everything.spare_rows > 4000
    assert everything.misfit == pytest.approx(1.0, abs=0.1)
    right = [np.mean(decode(x).guess == secret) for x in (tenth, everything)]
    assert right[1] > right[0]


def test_a_noisier_coordinate_is_trusted_less():
    """One coordinate carries thirty times the stated noise; only that one is discounted."""
    residuals, inputs, totals, _ = _federation(3, 60, 4, 300, 0.01)
    totals[:, 1] += 0.3 * np.random.default_rng(4).normal(size=300)
    calibrated = from_factors(residuals, inputs, totals, 0.01)
    assert calibrated.misfit == pytest.approx(1.0, abs=0.1)
    assert _explicit(residuals, inputs, totals, 0.01).misfit > 50


def test_unused_coordinates_and_constant_records_are_harmless():
    residuals, inputs, totals, secret = _federation(5, 30, 5, 50, 1e-3)
    padded = np.concatenate([inputs, np.zeros((30, 2, 3))], axis=2)
    more = np.concatenate([totals, np.zeros((50, 3))], axis=1)
    one = from_factors(residuals, inputs, totals, 1e-3)
    two = from_factors(residuals, padded, more, 1e-3)
    assert one.rank == two.rank
    assert _score(one, secret) == pytest.approx(_score(two, secret))
    none = from_factors(residuals, np.zeros((30, 2, 5)), np.zeros((50, 5)), 1.0)
    assert none.rank == 0


def test_float32_noise_covers_the_true_error():
    """A float32 client against float64 arithmetic: root mean square ratio near one, no outliers."""
    residuals, inputs, _, secret = _federation(6, 300, 8, 100, 0.0)
    rng = np.random.default_rng(7)
    models = rng.normal(size=(100, 8)).astype(np.float32)
    who, rate = np.arange(300), np.float32(0.1)
    x = inputs[who, secret].astype(np.float32)
    inputs = inputs.astype(np.float32).astype(np.float64)
    labels = rng.integers(0, 2, 300).astype(np.float32)
    returned = []
    for theta in models:
        prediction = (1 / (1 + np.exp(-(x @ theta)))).astype(np.float32)
        gradient = x.T @ ((prediction - labels) / np.float32(300))
        returned.append(theta - rate * gradient)
    returned = np.array(returned)
    residuals = _sigmoid(inputs @ models.astype(np.float64).T) - labels[:, None, None]
    scale = 300 / float(rate)
    heard = (models.astype(np.float64) - returned.astype(np.float64)) * scale
    error = heard - residuals[who, secret].T @ inputs[who, secret]
    ratio = error / float32_noise(returned, residuals, inputs, scale)
    assert 0.5 < np.sqrt((ratio**2).mean()) < 1.2
    assert np.abs(ratio).max() < 5


def test_numbers_that_are_none_are_refused_by_name():
    residuals, inputs, totals, _ = _federation(3, 20, 4, 30, 0.01)
    totals[3, 1] = np.nan
    with pytest.raises(FixData, match="NaN"):
        from_factors(residuals, inputs, totals, 0.01)
