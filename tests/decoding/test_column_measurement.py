"""Columns of a first layer: moments against simulated orders, exactness, pooling, noise."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.column_measurement import (
    Columns,
    Moments,
    order_moments,
    pooled,
    stacked,
    usage,
    whole_equations,
)
from overheard.decoding.measurement import from_differences
from overheard.decoding.noisy import noisy_posterior


def test_usage_counts_the_smaller_last_batch():
    weights = np.array([1 / 4] * 8 + [1 / 2] * 2)
    used = usage(10, 4, 3)
    assert used.mean == pytest.approx(weights.mean())
    assert used.variance == pytest.approx(weights.var())
    assert usage(10, None, 1).variance == pytest.approx(0)
    assert usage(10, 50, 1).mean == pytest.approx(0.1)


def test_moments_are_those_of_random_orders(rng):
    """A twin that shuffles: 3 batches of an epoch, errors that depend on the batch."""
    m, h, batch = 9, 4, 3
    nodes = rng.normal(size=(1, 3, 1, m, h))
    moments = order_moments(nodes, np.full((1, 3), 1 / 3), usage(m, batch, 1), np.ones((m, 1)))
    draws = np.empty((20_000, m, h))
    for draw in draws:
        order = rng.permutation(m)
        for step in range(3):
            used = order[step * batch : (step + 1) * batch]
            draw[used] = nodes[0, step, 0, used] / batch
    assert moments.mean[0] == pytest.approx(draws.mean(axis=0), abs=0.01)
    assert moments.variance == pytest.approx(draws.var(axis=0).sum(axis=1), rel=0.05)
    assert np.trace(moments.shape) == pytest.approx(1)


def test_the_shape_of_what_varies_has_no_unit(rng):
    """Errors a thousand times smaller: the same shape, and a millionth of the variance."""
    nodes, shares = rng.normal(size=(1, 3, 2, 6, 4)), np.full((1, 3), 1 / 3)
    believed = rng.dirichlet(np.ones(2), 6)
    large, small = (
        order_moments(unit * nodes, shares, usage(6, 2, 1), believed) for unit in (1.0, 1e-3)
    )
    assert small.shape == pytest.approx(large.shape)
    assert small.variance == pytest.approx(1e-6 * large.variance)
    assert np.trace(large.shape) == pytest.approx(1.0)


def test_many_public_columns_make_the_errors_known(rng):
    """The model's errors may be wrong altogether: public columns replace them."""
    m, h, public = 20, 6, rng.normal(size=(20, 25))
    secret = rng.integers(0, 2, m)
    true_errors = rng.normal(size=(m, h))
    model = Moments(rng.normal(size=(2, m, h)), np.ones(m), np.eye(h) / h)
    direct = np.stack([np.zeros((m, 1)), np.ones((m, 1))])
    columns = Columns(model, public, direct, np.full((m, 2), 0.5), 1e-6)
    one = columns.equations(true_errors.T @ secret[:, None], true_errors.T @ public)
    truth = np.eye(2)[secret]
    assert np.abs(one.misses(truth)).max() < 1e-3
    assert one.differences[:, 0] == pytest.approx(true_errors, abs=1e-3)
    wrong = np.eye(2)[1 - secret]
    assert np.abs(one.misses(wrong)).max() > 0.1


def test_few_public_columns_leave_the_stated_noise(rng):
    """Mean square of the white misses is one when errors scatter as stated."""
    m, h, chi2 = 60, 10, []
    public = rng.normal(size=(m, 8))
    secret = rng.integers(0, 2, m)
    truth = np.eye(2)[secret]
    mean = np.repeat(rng.normal(size=(1, m, h)), 2, axis=0)
    variance = rng.uniform(0.5, 2, m)
    direct = np.stack([np.zeros((m, 1)), np.ones((m, 1))])
    columns = Columns(Moments(mean, variance, np.eye(h) / h), public, direct, truth, 1e-3)
    for _ in range(200):
        errors = mean[0] + rng.normal(size=(m, h)) * np.sqrt(variance / h)[:, None]
        chi2.append(columns.equations(errors.T @ secret[:, None], errors.T @ public).chi2(truth))
    assert np.mean(chi2) == pytest.approx(1, abs=0.08)


def test_pooling_inner_products_is_stacking_rows(rng):
    m, rows = 12, 9
    rounds = []
    for _ in range(3):
        moments = Moments(rng.normal(size=(2, m, rows)), np.ones(m), np.eye(rows) / rows)
        rounds.append(whole_equations(moments, rng.normal(size=rows), np.full(rows, 0.1)))
    one, two = pooled(rounds, [1.0, 2.0, 3.0]), stacked(rounds, [1.0, 2.0, 3.0])
    p = rng.random((m, 1))
    p = np.hstack([1 - p, p])
    assert one.rank == two.rank == m
    assert one.chi2_per_equation(p) == pytest.approx(two.chi2_per_equation(p))
    assert one.spare_chi2 == pytest.approx(two.spare_chi2)
    assert one.spare_rows == two.spare_rows


@pytest.mark.parametrize("understated", [1.0, 3.0])
def test_probabilities_stay_calibrated_when_noise_is_understated(rng, understated):
    m, rows = 300, 400
    features = rng.normal(size=(m, 1, rows))
    noise = 6.0
    secret = (rng.random(m) < 0.2).astype(int)
    total = features[:, 0].T @ secret + noise * understated * rng.normal(size=rows)
    posterior, variance = noisy_posterior(from_differences(features, total, noise), [0.8, 0.2])
    p = posterior.probabilities[:, 1]
    assert posterior.method == "expectation_propagation"
    assert np.abs(p.mean() - secret.mean()) < 0.05
    surprise = -np.mean(np.log(np.where(secret, p, 1 - p)))
    entropy = -np.mean(p * np.log(p + 1e-12) + (1 - p) * np.log(1 - p + 1e-12))
    assert surprise == pytest.approx(entropy, abs=0.08)
    assert (variance > 3) == (understated > 1)
