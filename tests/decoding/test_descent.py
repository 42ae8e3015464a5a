"""Changes of one record or two that lower a sum of squares."""

from __future__ import annotations

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
