"""What simulated clients with known secrets say of a decoder, and of its answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from overheard.decoding.calibration import OVERCONFIDENT, Judged, judged

Array = NDArray[np.float64]
PEOPLE = 200
PRIOR = np.tile([0.6, 0.4], (PEOPLE, 1))
MESSAGES = "what was sent"


def tried(certainty: float, right: float) -> tuple[Array, NDArray[np.int64]]:
    """The answer of a decoder that is right so often and always this sure, and the secret."""
    secret = (np.arange(PEOPLE) % 5 < 2).astype(np.int64)
    chosen = np.where(np.arange(PEOPLE) < right * PEOPLE, secret, 1 - secret)
    return np.where(np.eye(2, dtype=bool)[chosen], certainty, 1 - certainty), secret


def on_clients(*each: tuple[float, float], misfit: float = 1.0) -> Judged:
    """Such decoders on one simulated client after the other."""
    made = itertools.cycle([tried(*one) for one in each])
    answers: list[Array] = []

    def play(probabilities: Array) -> tuple[str, NDArray[np.int64]]:
        answer, secret = next(made)
        answers.append(answer)
        return MESSAGES, secret

    return judged(play, lambda link: (answers.pop(0), misfit), PRIOR, PRIOR)


def test_half_of_the_secrets_are_drawn_from_the_prior_and_half_from_between() -> None:
    asked: list[NDArray[np.float64]] = []
    answer = np.tile([0.0, 1.0], (PEOPLE, 1))

    def play(probabilities: NDArray[np.float64]) -> tuple[str, NDArray[np.int64]]:
        asked.append(probabilities)
        return MESSAGES, np.zeros(PEOPLE, dtype=np.int64)

    judged(play, lambda link: (PRIOR, 1.0), answer, PRIOR)
    assert len(asked) == 4
    assert np.array_equal(asked[0], PRIOR)
    assert np.allclose(asked[1], (PRIOR + answer) / 2)


def test_a_decoder_that_is_as_sure_as_right_is_left_alone() -> None:
    found, answer = on_clients((0.9, 0.9), (0.9, 0.88)), tried(0.9, 0.5)[0]
    assert found.flag == ""
    assert np.abs(found.calibration.applied(answer) - answer).max() < 0.04


def test_one_client_on_which_the_decoder_goes_wrong_tempers_and_flags() -> None:
    found = on_clients((0.99, 0.99), (0.99, 0.7), (0.99, 0.99))
    assert found.flag == OVERCONFIDENT
    assert found.calibration.temperature < 0.7
    assert found.calibration.accuracy == pytest.approx((3 * 0.99 + 0.7) / 4, abs=0.03)


def test_few_records_do_not_flag_by_chance() -> None:
    secret = (np.arange(10) < 5).astype(np.int64)
    one_wrong = np.where(np.eye(2, dtype=bool)[secret], 0.99, 0.01)
    one_wrong[0] = 1 - one_wrong[0]
    found = judged(
        lambda p: (MESSAGES, secret), lambda link: (one_wrong, 1.0), PRIOR[:10], PRIOR[:10]
    )
    assert found.flag == ""


def test_a_misfit_is_held_against_those_of_simulated_clients() -> None:
    found = on_clients((0.9, 0.9), misfit=9.0)
    assert found.fits(12.0, good=4.0)  # the recipe is right there, and leaves as much
    assert not found.fits(100.0, good=4.0)
    easy = on_clients((0.9, 0.9), misfit=1.0 / 5)
    assert easy.fits(3.9, good=4.0)
    assert not easy.fits(12.0, good=4.0)
