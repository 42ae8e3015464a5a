"""The matched filter against the written-out linear system."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.matched_filter import (
    Rows,
    background,
    block,
    matched_filters,
    scale_of,
    smoothed,
)
from overheard.errors import FixData


class Matrix:
    """Rows that are simply a matrix."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def times(self, vectors: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows @ vectors)

    def transposed(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows.T @ weights)

    def squares(self) -> np.ndarray:
        return np.asarray((self.rows**2).sum(axis=0))

    def moments(self) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Two layers: (2, 3) with 2 biases, and (1, 4)."""
        one, other = self.rows[:, :6].reshape(-1, 2, 3), self.rows[:, 8:].reshape(-1, 1, 4)
        return [
            (np.einsum("nab,ncb->ac", g, g), np.einsum("nab,nac->bc", g, g), biases)
            for g, biases in ((one, 2), (other, 0))
        ]


def some_rows(rng: np.random.Generator, n: int = 60, size: int = 12) -> np.ndarray:
    return rng.normal(size=(n, size)) * np.geomspace(0.2, 3, size) + rng.normal(size=size)


def direct(rows: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Cov, the Kronecker products written out, and the ridge."""
    covariance = np.cov(rows.T, bias=True)
    system = covariance + 0.005 * np.diag(covariance).mean() * np.eye(12)
    for at, shape in ((0, (2, 3)), (8, (1, 4))):
        g = rows[:, at : at + shape[0] * shape[1]].reshape(-1, *shape)
        left, right = np.einsum("nab,ncb->ac", g, g), np.einsum("nab,nac->bc", g, g)
        size = shape[0] * shape[1]
        product = np.kron(left, right) / np.trace(left) / len(rows)
        system[at : at + size, at : at + size] += product
    system[[6, 7], [6, 7]] += np.diag(covariance)[6:8]
    return np.linalg.solve(system, differences)


def test_solves_the_system() -> None:
    rng = np.random.default_rng(0)
    rows, targets = some_rows(rng), rng.normal(size=(12, 3))
    parts: list[Rows] = [Matrix(rows[:25]), Matrix(rows[25:])]
    around = background([block(part) for part in parts])
    np.testing.assert_allclose(around.mean, rows.mean(axis=0))
    np.testing.assert_allclose(around.variance, rows.var(axis=0))
    found = matched_filters(around, targets, iterations=40)
    np.testing.assert_allclose(found, direct(rows, targets), rtol=1e-6)


def test_starts_warm() -> None:
    """From the last round's filter a few iterations get nearer than from nothing."""
    rng = np.random.default_rng(1)
    rows, target = some_rows(rng), rng.normal(size=(12, 1))
    before = direct(rows, target)
    moved = rows + 0.05 * rng.normal(size=rows.shape)
    around = background([block(Matrix(moved))])
    exact = direct(moved, target)
    cold, warm = (
        np.abs(matched_filters(around, target, start, iterations=3) - exact).max()
        for start in (None, before)
    )
    assert warm < cold / 3
    np.testing.assert_array_equal(matched_filters(around, target, before, iterations=0), before)


def test_it_tells_the_target_best() -> None:
    """Its answer stands out further than that of the plain difference."""
    rng = np.random.default_rng(2)
    rows, target = some_rows(rng, 2000), rng.normal(size=12) * 2
    difference = (target - rows.mean(axis=0))[:, None]
    a = matched_filters(background([block(Matrix(rows))]), difference, iterations=30)
    others = some_rows(np.random.default_rng(3), 2000)

    def effect(vector: np.ndarray) -> float:
        scale = scale_of(others @ vector)
        return float((target @ vector - scale.mean)[0] / scale.sd[0])

    assert effect(a) > 1.1 * effect(difference)


def test_what_cannot_be_used() -> None:
    with pytest.raises(FixData, match="no covariance"):
        background([block(Matrix(np.ones((1, 12))))])
    same = background([block(Matrix(np.ones((5, 12))))])
    with pytest.raises(FixData, match="do not vary"):
        matched_filters(same, np.ones((12, 1)))
    with pytest.raises(FixData, match="held-out"):
        scale_of(np.ones((1, 1)))
    with pytest.raises(FixData, match="alike"):
        scale_of(np.ones((5, 1)))


def test_smoothing_uses_no_later_round() -> None:
    values = np.random.default_rng(0).normal(size=(20, 2))
    by_hand = [values[max(0, r - 5) : r + 6].mean(axis=0) for r in range(20)]
    np.testing.assert_allclose(smoothed(values), by_hand)
    np.testing.assert_allclose(smoothed(values[:8])[7], values[2:8].mean(axis=0))
