"""The common part of the correlation between rounds, of answers whose factors are known."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.persistence import USUAL, common_part
from overheard.errors import FixData


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


def test_the_diagonal_is_the_share_that_others_have_too() -> None:
    """Of few rounds the own part matters: it must not leak into the common one, nor be lost."""
    loadings = np.array([[0.9], [0.8], [0.7], [0.6], [0.5]])
    found = common_part(answers(loadings, 200_000))
    np.testing.assert_allclose(np.diag(found), loadings[:, 0] ** 2, atol=0.06)


@pytest.mark.parametrize(("rounds", "records"), [(1, 5), (40, 2), (200, 30), (30, 1000)])
def test_it_is_the_covariance_of_something(rounds: int, records: int) -> None:
    found = common_part(answers(np.full((rounds, 1), 0.5), records).astype(np.float32))
    assert found.shape == (rounds, rounds)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    assert np.diag(found).max() < 1.2


def test_few_records_say_little() -> None:
    """Two records agree or disagree perfectly: that is no evidence of anything."""
    found = common_part(answers(np.full((10, 1), 0.9), 2))
    np.testing.assert_allclose(found, USUAL, atol=0.15)


def test_rounds_with_nothing_in_common_have_little() -> None:
    found = common_part(answers(np.zeros((30, 1)), 5000))
    assert np.abs(found).max() < 0.1


def test_units_and_means_do_not_matter() -> None:
    plain = answers(np.full((20, 1), 0.6), 300)
    units = np.arange(1.0, 21)[:, None]
    np.testing.assert_allclose(common_part(5 + units * plain), common_part(plain), atol=1e-9)


def test_answers_that_are_all_alike_leave_the_usual() -> None:
    assert np.isfinite(common_part(np.ones((4, 10)))).all()


def test_one_record_is_refused() -> None:
    with pytest.raises(FixData, match="at least two"):
        common_part(np.ones((4, 1)))
