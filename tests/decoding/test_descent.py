"""Changes of one record or two that lower a sum of squares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overheard.decoding.descent import descended

PEOPLE, VALUES = 12, 3


@pytest.mark.parametrize("wrong", [[], [2], [3, 7], [1, 4, 8]])
@pytest.mark.parametrize("absent", [False, True])
def test_mistakes_are_mended(wrong: list[int], absent: bool) -> None:
    """Where the first candidate is "absent", the answer has as many members afterwards."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(PEOPLE, VALUES, 80))
    columns[:, 0] = 0
    truth = np.arange(PEOPLE) % VALUES
    choice = truth.copy()
    choice[wrong] = np.roll(truth[wrong], 1) if absent else (truth[wrong] + 1) % VALUES
    present = np.array([not absent, True, True])
    rows = np.arange(PEOPLE)
    left = (columns[rows, truth] - columns[rows, choice]).sum(axis=0)
    free = columns[:, 1:].reshape(-1, 80)
    found = descended(choice, free @ free.T, free @ left, present)
    assert (found == truth).all()


def test_it_does_what_trying_every_change_does() -> None:
    """The best of all changes of one record and of two, by the sum of squares itself."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        columns = rng.normal(size=(5, VALUES, 12))
        columns[:, 0] = 0
        rows, heard = np.arange(5), rng.normal(size=12) * 3
        begin = rng.integers(VALUES, size=5)
        free = columns[:, 1:].reshape(-1, 12)

        def left(choice: np.ndarray, columns=columns, rows=rows, heard=heard) -> np.ndarray:
            return heard - columns[rows, choice].sum(axis=0)

        def squares(choice: np.ndarray, left=left) -> float:
            return float(left(choice) @ left(choice))

        found = descended(begin, free @ free.T, free @ left(begin), np.ones(VALUES, dtype=bool))
        now = begin
        while True:
            tried = []
            for i, j in itertools.combinations_with_replacement(range(5), 2):
                for a, b in itertools.product(range(VALUES), repeat=2):
                    other = now.copy()
                    other[i], other[j] = a, b
                    tried.append(other)
            best = min(tried, key=squares)
            if squares(now) - squares(best) <= 1e-3:
                break
            now = best
        assert squares(found) == pytest.approx(squares(now), abs=1e-2)
