"""Solvers on ill-conditioned cases, against the same formulas in fifty digits (mpmath)."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from overheard.attacks.papers.kerkouche2023 import ridge
from overheard.decoding.gaussian import cavities, moment_sites
from overheard.decoding.labels import solve_residuals
from overheard.decoding.local_optimum import decode_least_squares
from overheard.decoding.rounds import ScaledSum, refit


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def exact(values):
    return mp.matrix(np.asarray(values, dtype=np.float64).tolist())


def back(matrix):
    return np.array(matrix.tolist(), dtype=np.float64)


def crooked(rng, rows, columns, condition):
    """A matrix with singular values spread evenly over the orders of magnitude."""
    left = np.linalg.qr(rng.normal(size=(rows, columns)))[0]
    right = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    return left * np.geomspace(1.0, 1.0 / condition, columns) @ right.T


@pytest.mark.parametrize("condition", [1e3, 1e6, 1e9])
def test_labels_behind_crowded_rows(rng, condition):
    features, noise = crooked(rng, 9, 5, condition), 1e-4
    values = rng.normal(size=5)
    totals = features @ values + noise * rng.normal(size=9)
    found = solve_residuals(features, totals, np.full(9, noise))
    louder = max(1.0, found.misfit)
    a, b = exact(features), exact(totals[:, None])
    precision = a.T * a / (mp.mpf(noise) ** 2 * louder) + mp.eye(5) / mp.mpf(found.tau) ** 2
    covariance = precision**-1
    mean = covariance * a.T * b / (mp.mpf(noise) ** 2 * louder)
    np.testing.assert_allclose(found.values, back(mean)[:, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(back(covariance))), rtol=1e-6)


@pytest.mark.parametrize("strength", [1e2, 1e4, 1e6])
def test_cavities_of_precise_and_blind_directions(rng, strength):
    """Singular values from a hundredth of the noise to a million times it. What is lost is the
    digits that 1 - |gain|^2 loses; probabilities move by less than 1e-4."""
    features = crooked(rng, 6, 6, strength * 1e2) * strength
    total = rng.normal(size=6)
    prior = rng.dirichlet([2, 2], size=6)
    precision, shift = moment_sites(prior)
    found_precision, found_shift = cavities(features[:, None, :], total, precision, shift)
    d = exact(features)
    whole = d * d.T + mp.diag([mp.mpf(x) for x in precision[:, 0, 0]])
    covariance = whole**-1
    mean = covariance * (d * exact(total[:, None]) + exact(shift))
    for i in range(6):
        own = 1 / covariance[i, i]
        want_precision = own - mp.mpf(precision[i, 0, 0])
        want_shift = own * mean[i] - mp.mpf(shift[i, 0])
        log_odds = want_shift - want_precision / 2
        found = found_shift[i, 0] - found_precision[i, 0, 0] / 2
        right = 1 / (1 + mp.e ** (-log_odds))
        assert 1 / (1 + mp.e ** (-mp.mpf(found))) == pytest.approx(float(right), abs=1e-4)


@pytest.mark.parametrize("spread", [1.0, 1e-4])
def test_optima_from_crowded_models(rng, spread):
    size, rounds = 3, 8
    curve = crooked(rng, 12, size, 30.0)
    pull = 0.1 * curve.T @ curve
    optimum = rng.normal(size=size)
    sent = rng.normal(size=size) + spread * rng.normal(size=(rounds, size))
    returned = sent - (sent - optimum) @ pull
    found = decode_least_squares(sent, returned).estimate
    update = exact(sent) - exact(returned)
    mean = mp.matrix([mp.fsum(update[:, j]) / rounds for j in range(size)])
    centred = update - mp.ones(rounds, 1) * mean.T
    weights = mp.ones(rounds, 1) / rounds - centred * ((centred.T * centred) ** -1 * mean)
    want = back(exact(sent).T * weights)[:, 0]
    np.testing.assert_allclose(found, want, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found, optimum, atol=1e-5 / spread)


def test_ridge_regression_of_clients_that_come_together(rng):
    took = (rng.random((5, 4)) < 0.7).astype(float)
    took[:, 3] = took[:, 2]
    weights, sums = rng.uniform(0.5, 2, 5), rng.normal(size=5)
    found = ridge(sums, took, weights, 1e-6)
    a, w = exact(took), mp.diag(weights.tolist())
    want = (a.T * w * a + mp.mpf("1e-6") * mp.eye(4)) ** -1 * (a.T * w * exact(sums[:, None]))
    np.testing.assert_allclose(found, back(want)[:, 0], rtol=1e-7, atol=1e-9)


def test_a_scale_from_vectors_of_very_different_length(rng):
    rows = rng.normal(size=(5, 12)) * np.geomspace(1e-4, 1e4, 5)[:, None]
    base = 1e3 * rng.normal(size=12)
    p = rng.random(5)
    message = 0.37 * (base + p @ rows)
    heard = ScaledSum(
        rows @ rows.T, rows @ message, rows @ base,
        float(message @ message), float(message @ base), float(base @ base), 12, 2,
    )  # fmt: skip
    found = refit(heard, np.column_stack([1 - p, p]))
    mean = exact(base) + exact(rows).T * exact(p)
    spread = mp.fsum(
        mp.mpf(q) * (1 - mp.mpf(q)) * mp.norm(exact(row)) ** 2
        for q, row in zip(p.tolist(), rows, strict=True)
    )
    want = (exact(message).T * mean)[0] / (mp.norm(mean) ** 2 + spread)
    assert found == pytest.approx(float(want), rel=1e-10)
