"""How far evidence is believed, and answers changed one record at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overheard.decoding.calibration import OVERCONFIDENT, calibrate, tempered
from overheard.decoding.posterior import descended


def drawn(seed: int, records: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A prior, calibrated probabilities and the secrets drawn by them."""
    rng = np.random.default_rng(seed)
    prior = np.tile([0.5, 0.3, 0.2], (records, 1))
    p = prior * np.exp(rng.normal(size=prior.shape) * 2)
    p /= p.sum(axis=1, keepdims=True)
    return prior, p, (p.cumsum(axis=1) > rng.random((records, 1))).argmax(axis=1)


def test_evidence_is_what_a_power_makes_of_it() -> None:
    prior, p, _ = drawn(0, 50)
    for power in (0.0, 0.3, 0.9):
        found = prior * (p / prior) ** power
        assert np.allclose(tempered(p, prior, power), found / found.sum(axis=1, keepdims=True))


def test_what_is_surer_than_right_is_tempered() -> None:
    """Evidence counted twice is to be believed by half; what is calibrated as it is."""
    prior, p, secrets = drawn(1)
    twice = prior * (p / prior) ** 2
    twice /= twice.sum(axis=1, keepdims=True)
    found = calibrate([twice], [secrets], prior)
    assert abs(found.temperature - 0.5) < 0.11
    assert abs(found.confidence - found.accuracy) < 0.03
    assert calibrate([p], [secrets], prior).temperature > 0.85
    assert found.flag(found.applied(twice)) == ""
    assert found.flag(np.eye(3)[secrets]) == OVERCONFIDENT


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
        rows, observed = np.arange(5), rng.normal(size=12) * 3
        begin = rng.integers(VALUES, size=5)
        free = columns[:, 1:].reshape(-1, 12)

        def left(choice: np.ndarray, columns=columns, rows=rows, observed=observed) -> np.ndarray:
            return observed - columns[rows, choice].sum(axis=0)

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
