"""What a round says in units of its noise: the same however it is worked out, and not too much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.programs import whitened
from overheard.programs.response import Linearised
from overheard.programs.whitened import Whitened, whiten

PEOPLE, SIMULATED, FITTED = 12, 40, 30


def a_round(seed: int, coordinates: int, order: int) -> Linearised:
    """A message of two candidates a record, the noise mostly along the order's columns."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(PEOPLE, coordinates)).astype(np.float32)
    noisy = rng.normal(size=(order, coordinates)).astype(np.float32)
    ones = np.ones(coordinates)
    left = rng.normal(size=(SIMULATED, order)) @ noisy + rng.normal(size=(SIMULATED, coordinates))
    chosen = rng.integers(2, size=(SIMULATED, PEOPLE))
    heard = rng.normal(size=coordinates)
    points = np.array([[0.0], [1.0]])
    none = np.zeros((0, PEOPLE)), np.zeros(0)
    return Linearised(columns, noisy, ones, 0.1 * ones, left, heard, chosen, points, *none)


def products(one: Whitened) -> np.ndarray:
    """Of all columns and all messages with each other, as far as the columns reach."""
    every = np.vstack([one.rows, one.heard, one.simulated])
    return np.asarray(every @ one.rows.T)


@pytest.mark.parametrize("coordinates", [8, 60])
def test_more_order_columns_than_coordinates_say_the_same(coordinates: int) -> None:
    one = a_round(0, coordinates, 4)
    # the same covariance by many columns: inverted as a whole, not by Woodbury's identity
    many = replace(one, order=np.repeat(one.order / 5, 25, axis=0).astype(np.float32))
    few = whiten(one, FITTED)
    np.testing.assert_allclose(products(whiten(many, FITTED)), products(few), rtol=1e-3, atol=1e-3)
    assert few.rows.shape[1] <= min(coordinates, PEOPLE)
    np.testing.assert_allclose(whiten(many, FITTED).energies, few.energies, rtol=1e-3)


def test_known_sizes_are_equations() -> None:
    """Whichever way the covariance is inverted."""
    counts, sizes = np.full((1, PEOPLE), 2.0), np.array([10.0])
    for coordinates in (8, 60):
        plain = a_round(0, coordinates, 4)
        told = whiten(replace(plain, counts=counts, sizes=sizes), FITTED)
        more = products(told) - products(whiten(plain, FITTED))
        np.testing.assert_allclose(more[:PEOPLE], 4.0, atol=1e-3)
        np.testing.assert_allclose(more[PEOPLE:], 20.0, atol=1e-2)


def test_rounds_add_up() -> None:
    first, second = (whiten(a_round(seed, 60, 4), FITTED) for seed in (0, 1))
    together = products(first) + products(second)
    np.testing.assert_allclose(products(first + second), together, rtol=1e-6, atol=1e-6)


def test_no_more_directions_than_sweeps_can_afford(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whiten(a_round(0, 60, 4), FITTED)
    monkeypatch.setattr(whitened, "_SWEEP", 25.0 * PEOPLE)
    kept = whiten(a_round(0, 60, 4), FITTED)
    assert whole.rows.shape[1] == PEOPLE
    assert kept.rows.shape[1] == 5
    # the strongest
    np.testing.assert_allclose((kept.rows**2).sum(0), np.sort((whole.rows**2).sum(0))[-5:])
