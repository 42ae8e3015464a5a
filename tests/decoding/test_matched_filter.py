"""Matched filters, what clients repeat from round to round, and what each contributes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.client_sets import (
    FilterOptions,
    Rows,
    background,
    block,
    common_part,
    contributions,
    matched,
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
    found = np.stack([matched(around, t, 0 * t, 40, 0.005) for t in targets.T], axis=1)
    np.testing.assert_allclose(found, direct(rows, targets), rtol=1e-6)


def test_starts_warm() -> None:
    """From the last round's filter a few iterations get nearer than from nothing."""
    rng = np.random.default_rng(1)
    rows, target = some_rows(rng), rng.normal(size=12)
    before = direct(rows, target)
    moved = rows + 0.05 * rng.normal(size=rows.shape)
    around = background([block(Matrix(moved))])
    exact = direct(moved, target)
    cold, warm = (
        np.abs(matched(around, target, start, 3, 0.005) - exact).max()
        for start in (0 * before, before)
    )
    assert warm < cold / 3
    np.testing.assert_array_equal(matched(around, target, before, 0, 0.005), before)


def test_what_cannot_be_used() -> None:
    with pytest.raises(FixData, match="no covariance"):
        background([block(Matrix(np.ones((1, 12))))])
    same = background([block(Matrix(np.ones((5, 12))))])
    with pytest.raises(FixData, match="do not vary"):
        matched(same, np.ones(12), np.zeros(12), 3, 0.005)


def answers(loadings: np.ndarray, records: int, seed: int = 0) -> np.ndarray:
    """Factors that records have, loaded on rounds, and each round's own noise; variance 1."""
    rng = np.random.default_rng(seed)
    own = np.sqrt(1 - (loadings**2).sum(axis=1))
    common = loadings @ rng.normal(size=(loadings.shape[1], records))
    return common + own[:, None] * rng.normal(size=(len(loadings), records))


def test_it_is_what_factors_in_common_make() -> None:
    t = np.linspace(0, 1, 60)
    loadings = np.stack([0.5 + 0.1 * t, 0.35 * np.cos(3 * t)], axis=1)
    found = common_part(answers(loadings, 4000))
    np.testing.assert_allclose(found, loadings @ loadings.T, atol=0.05)


@pytest.mark.parametrize(("rounds", "records"), [(1, 5), (40, 2), (200, 30), (30, 1000)])
def test_it_is_the_covariance_of_something(rounds: int, records: int) -> None:
    found = common_part(answers(np.full((rounds, 1), 0.5), records).astype(np.float32))
    assert found.shape == (rounds, rounds)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    assert np.diag(found).max() < 1.2


def test_few_records_say_little() -> None:
    """Two records agree or disagree perfectly: that is no evidence of anything."""
    found = common_part(answers(np.full((10, 1), 0.9), 2))
    np.testing.assert_allclose(found, FilterOptions().usual, atol=0.15)


def test_what_does_not_change_from_round_to_round_is_all_common() -> None:
    """A network without dropout: a hundred records are enough to see it."""
    records = np.random.default_rng(0).standard_t(4, size=100)
    slowly = records + 0.02 * np.random.default_rng(1).normal(size=(30, 100)).cumsum(axis=0)
    assert common_part(slowly).min() > 0.9
    assert np.diag(common_part(slowly)).min() > 0.95


def test_rounds_with_nothing_in_common_have_little() -> None:
    found = common_part(answers(np.zeros((30, 1)), 5000))
    assert np.abs(found).max() < 0.1


def test_units_and_means_do_not_matter() -> None:
    plain = answers(np.full((20, 1), 0.6), 300)
    units = np.arange(1.0, 21)[:, None]
    np.testing.assert_allclose(common_part(5 + units * plain), common_part(plain), atol=1e-9)


def test_answers_that_are_all_alike_leave_the_usual() -> None:
    assert np.isfinite(common_part(np.ones((4, 10)))).all()


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 5), st.floats(0.2, 3.0))
def test_agrees_with_conditioning_a_joint_gaussian(seed, rounds, clients, spread):
    """The twin conditions (shares, sums) as one Gaussian, without precisions."""
    rng = np.random.default_rng(seed)
    took = (rng.random((rounds, clients)) < 0.6).astype(float)
    variance, sums = rng.uniform(0.1, 2.0, rounds), rng.normal(2, 2, rounds)
    prior = spread**2 * np.eye(clients)
    heard = took @ prior @ took.T + np.diag(variance)
    gain = prior @ took.T @ np.linalg.inv(heard)
    mean, sd = contributions(sums, variance, took, spread)
    np.testing.assert_allclose(mean, 1 + gain @ (sums - took.sum(axis=1)), atol=1e-9)
    left = np.diag(prior - gain @ took @ prior)
    np.testing.assert_allclose(sd, np.sqrt(left), atol=1e-9)
