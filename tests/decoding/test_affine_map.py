"""The affine update map of least squares: exactness, crowded models, honest uncertainty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding.local_optimum import decode_least_squares
from overheard.errors import FixRecording, ListenLonger

pytestmark = pytest.mark.slow

Array = np.ndarray


def client(rng: np.random.Generator, m: int, d: int, decay: float = 1.0) -> tuple[Array, Array]:
    X = (
        rng.normal(size=(m, d))
        * np.logspace(0, -decay, d)
        @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    )
    return X, X @ rng.normal(size=d) + rng.normal(size=m)


def answer(X: Array, y: Array, sent: Array, lr: float, steps: int) -> Array:
    """Full-batch gradient descent on mean squared error, the obvious way."""
    theta = sent.copy()
    for _ in range(steps):
        theta = theta - lr * 2.0 * (theta @ X.T - y) @ X / len(y)
    return theta


def stable_rate(clients: list[tuple[Array, Array]]) -> float:
    return 0.5 / max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X, _ in clients)


def optimum(X: Array, y: Array) -> Array:
    return np.linalg.lstsq(X, y, rcond=None)[0]


def excess(X: Array, y: Array, theta: Array) -> float:
    best = np.mean((X @ optimum(X, y) - y) ** 2)
    return float(np.mean((X @ theta - y) ** 2) / best - 1.0)


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_agrees_with_plain_least_squares_where_that_works(d: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = client(rng, 20, d, decay=0.3)
    sent = rng.normal(size=(3 * d + 2, d))
    back = answer(X, y, sent, stable_rate([(X, y)]), steps)
    fit = decode_least_squares(sent, back)
    naive = np.linalg.lstsq(np.c_[sent, np.ones(len(sent))], sent - back, rcond=None)[0]
    np.testing.assert_allclose(fit.W, naive[:d].T, atol=1e-8)
    np.testing.assert_allclose(fit.W, fit.W.T)
    np.testing.assert_allclose(
        fit.estimate, -np.linalg.solve(naive[:d].T, naive[d]), rtol=1e-5, atol=1e-6
    )
    assert np.linalg.eigvalsh(fit.W)[0] > 0


def test_symmetry_beats_plain_least_squares_under_noise() -> None:
    ours, plain = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = client(rng, 100, 12, decay=0.5)
        sent = rng.normal(size=(14, 12))
        back = answer(X, y, sent, stable_rate([(X, y)]), 1) + 1e-4 * rng.normal(size=sent.shape)
        fit = decode_least_squares(sent, back)
        naive = np.linalg.lstsq(np.c_[sent, np.ones(14)], sent - back, rcond=None)[0]
        plain.append(excess(X, y, -np.linalg.lstsq(naive[:12].T, naive[12], rcond=None)[0]))
        ours.append(excess(X, y, fit.estimate))
    assert np.median(ours) < 0.5 * np.median(plain)


def test_identified_optimum_has_calibrated_errors() -> None:
    rng = np.random.default_rng(0)
    X, y = client(rng, 100, 8, decay=0.5)
    truth, scores = optimum(X, y), []
    for _ in range(200):
        sent = rng.normal(size=(20, 8))
        back = answer(X, y, sent, stable_rate([(X, y)]), 5) + 1e-6 * rng.normal(size=sent.shape)
        fit = decode_least_squares(sent, back)
        scores.append((fit.estimate - truth) / fit.estimate_sd)
    assert 0.8 < np.std(scores) < 1.25
    assert 0.93 < np.mean(np.abs(scores) < 2) < 0.98


def test_flat_directions_are_counted_not_feared() -> None:
    rng = np.random.default_rng(1)
    X, y = client(rng, 6, 10)  # fewer records than parameters
    sent = rng.normal(size=(30, 10))
    fit = decode_least_squares(sent, answer(X, y, sent, stable_rate([(X, y)]), 3))
    assert (fit.identified, fit.flat) == (6, 4)
    assert np.mean((X @ fit.estimate - y) ** 2) < 1e-12


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rounds", [10, 60, 200])
def test_crowded_models_of_an_ill_conditioned_client(steps: int, rounds: int) -> None:
    """Everybody in every round, float32: what is not identified is guessed for the better, and the
    covariance allows for it."""
    ratios, covered = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        clients = [client(rng, 100, 12, decay=0.7) for _ in range(3)]
        rate, theta = 0.2 * stable_rate(clients), np.zeros(12, dtype=np.float32)
        sent, back = [], []
        for _ in range(rounds):
            answers = np.array([answer(X, y, theta.astype(float), rate, steps) for X, y in clients])
            sent.append(theta.astype(float))
            back.append(answers.astype(np.float32).astype(float))
            theta = back[-1].mean(0).astype(np.float32)
        for (X, y), returned in zip(clients, np.array(back).transpose(1, 0, 2), strict=True):
            fit = decode_least_squares(np.array(sent), returned)
            ratios.append(excess(X, y, fit.estimate) / excess(X, y, returned[-1]))
            off = np.abs(fit.estimate - optimum(X, y))
            covered.append(np.mean(off <= 2 * fit.estimate_sd))
            assert 0 < fit.identified < 12
            assert np.linalg.eigvalsh(fit.W)[0] > 0
    assert np.median(ratios) < 0.3
    assert np.max(ratios) < 1
    assert np.mean(covered) > 0.95


def test_bad_messages_are_named() -> None:
    good = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(FixRecording, match="shape"):
        decode_least_squares(good, good[:4])
    bad = good.copy()
    bad[2, 1] = np.nan
    with pytest.raises(FixRecording, match="message 2"):
        decode_least_squares(good, bad)
    with pytest.raises(ListenLonger, match="1 message"):
        decode_least_squares(good[:1], good[:1])
    with pytest.raises(ListenLonger, match="noise"):
        decode_least_squares(good, good)


def test_what_the_law_leaves_is_the_noise_and_the_map_is_the_clients() -> None:
    """Rounds to spare: residual and noise_sd are those of the noise put in, W is the true one."""
    rng = np.random.default_rng(8)
    size, noise = 3, 1e-3
    X = rng.normal(size=(50, size))
    W = 0.2 * X.T @ X / len(X)
    theta = rng.normal(size=size)
    sent = rng.normal(size=(200, size))
    returned = sent - (sent - theta) @ W + noise * rng.normal(size=sent.shape)
    fit = decode_least_squares(sent, returned)
    assert fit.noise_sd == pytest.approx(noise, rel=0.1)
    assert fit.misfit == pytest.approx(1.0, rel=0.1)
    assert fit.trusted == 1.0
    np.testing.assert_allclose(fit.W, W, atol=5 * noise / np.sqrt(200))
    np.testing.assert_allclose(fit.W, fit.W.T)
    assert (fit.identified, fit.flat) == (size, 0)
    spread = np.linalg.svd(sent - sent.mean(0), compute_uv=False)
    assert fit.condition == pytest.approx(spread[0] / spread[-1])
    loud = decode_least_squares(sent, returned, rounding_sd=4e-3)
    assert loud.noise_sd == 4e-3
