"""What simulated clients with known secrets say of a decoder and of its answer; how far evidence
is believed, and answers changed one record at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from overheard.decoding.calibration import (
    OVERCONFIDENT,
    Calibration,
    beliefs,
    calibrate,
    fits_as_well,
    tempered,
)
from overheard.decoding.posterior import descended

Array = NDArray[np.float64]
PEOPLE = 200
PRIOR = np.tile([0.6, 0.4], (PEOPLE, 1))


def tried(certainty: float, right: float) -> tuple[Array, NDArray[np.int64]]:
    """The answer of a decoder that is right so often and always this sure, and the secret."""
    secret = (np.arange(PEOPLE) % 5 < 2).astype(np.int64)
    chosen = np.where(np.arange(PEOPLE) < right * PEOPLE, secret, 1 - secret)
    return np.where(np.eye(2, dtype=bool)[chosen], certainty, 1 - certainty), secret


def on_clients(*each: tuple[float, float]) -> Calibration:
    """Such decoders on four simulated clients, one after the other."""
    made = [tried(*each[number % len(each)]) for number in range(4)]
    return calibrate([answer for answer, _ in made], [secret for _, secret in made], PRIOR)


def test_half_of_the_secrets_are_drawn_from_the_prior_and_half_from_between() -> None:
    answer = np.tile([0.0, 1.0], (PEOPLE, 1))
    drawn_from = beliefs(answer, PRIOR)
    assert len(drawn_from) == 4
    assert np.array_equal(drawn_from[0], PRIOR)
    assert np.allclose(drawn_from[1], (PRIOR + answer) / 2)


def test_a_decoder_that_is_as_sure_as_right_is_left_alone() -> None:
    found, answer = on_clients((0.9, 0.9), (0.9, 0.88)), tried(0.9, 0.5)[0]
    assert not found.overconfident
    assert np.abs(found.applied(answer) - answer).max() < 0.04


def test_one_client_on_which_the_decoder_goes_wrong_tempers_and_flags() -> None:
    found = on_clients((0.99, 0.99), (0.99, 0.7), (0.99, 0.99))
    assert found.overconfident
    assert found.temperature < 0.7
    assert found.accuracy == pytest.approx((3 * 0.99 + 0.7) / 4, abs=0.03)


def test_few_records_do_not_flag_by_chance() -> None:
    secret = (np.arange(10) < 5).astype(np.int64)
    one_wrong = np.where(np.eye(2, dtype=bool)[secret], 0.99, 0.01)
    one_wrong[0] = 1 - one_wrong[0]
    assert not calibrate([one_wrong], [secret], PRIOR[:10]).overconfident


def test_a_residual_is_held_against_those_of_simulated_clients() -> None:
    assert fits_as_well(12.0, [1.0, 9.0], good=4.0)  # the recipe is right there, and leaves as much
    assert not fits_as_well(100.0, [1.0, 9.0], good=4.0)
    assert fits_as_well(3.9, [0.2], good=4.0)
    assert not fits_as_well(12.0, [0.2], good=4.0)


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


FEW, VALUES = 12, 3


@pytest.mark.parametrize("wrong", [[], [2], [3, 7], [1, 4, 8]])
@pytest.mark.parametrize("absent", [False, True])
def test_mistakes_are_mended(wrong: list[int], absent: bool) -> None:
    """Where the first candidate is "absent", the answer has as many members afterwards."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(FEW, VALUES, 80))
    columns[:, 0] = 0
    truth = np.arange(FEW) % VALUES
    choice = truth.copy()
    choice[wrong] = np.roll(truth[wrong], 1) if absent else (truth[wrong] + 1) % VALUES
    present = np.array([not absent, True, True])
    rows = np.arange(FEW)
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
