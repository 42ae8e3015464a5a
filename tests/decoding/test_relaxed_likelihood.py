"""PROLIN's regression and its search, on features whose clients are known."""

from __future__ import annotations

import numpy as np

from overheard.decoding.relaxed_likelihood import Features, _Moments, relaxed_likelihood, ridge


def features(
    rng: np.random.Generator, rounds: int = 120, noise: float = 0.3
) -> tuple[Features, np.ndarray]:
    a = (rng.random((rounds, 15)) < 0.25).astype(float)
    positive = np.arange(15) < 3
    own = np.where(positive, 1.0, -1.0) + noise * rng.normal(size=(rounds, 15))
    full = np.ones(rounds)
    made = Features(
        (a * own).sum(axis=1), 0.9 * full, full, noise**2 * full, -full, noise**2 * full, a
    )
    return made, positive


def test_ridge_is_its_normal_equations() -> None:
    made, _ = features(np.random.default_rng(0))
    a, v = made.participation, np.diag(made.weights)
    expected = np.linalg.solve(a.T @ v @ a + 5 * np.eye(15), a.T @ v @ made.sums)
    np.testing.assert_allclose(ridge(made, 5.0), expected)
    plain = np.linalg.lstsq(a, made.sums, rcond=None)[0]
    np.testing.assert_allclose(ridge(made, 0.0, weighted=False), plain)


def test_finds_the_positive_clients() -> None:
    made, positive = features(np.random.default_rng(1))
    tau = relaxed_likelihood(made, ridge(made, 5.0))
    assert ((tau > 0.5) == positive).all()
    assert ((tau >= 0) & (tau <= 1)).all()


def test_a_client_that_never_came_stays_undecided() -> None:
    made, _ = features(np.random.default_rng(2))
    away = made.participation.copy()
    away[:, 14] = 0
    tau = relaxed_likelihood(made._replace(participation=away), ridge(made, 5.0), steps=200)
    assert abs(tau[14] - 0.5) < 0.05


def test_one_loss_is_adam() -> None:
    """MTAdam with a single loss takes Adam's steps."""
    rng = np.random.default_rng(3)
    memory, m, v = _Moments(1, (4,)), np.zeros(4), np.zeros(4)
    for turn in range(1, 6):
        gradient = rng.normal(size=4)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = -0.1 * (m / (1 - 0.9**turn)) / (np.sqrt(v / (1 - 0.999**turn)) + 1e-8)
        np.testing.assert_allclose(memory.step([gradient], 0.1), step)


def test_losses_are_brought_to_one_length() -> None:
    """A loss of a thousandfold gradient pulls no harder than the first."""
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1000.0])
    step = _Moments(2, (2,)).step([one, other], 0.1)
    np.testing.assert_allclose(step[0], step[1], rtol=1e-6)
