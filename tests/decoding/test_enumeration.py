from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.enumeration import answer_bits, enumeration
from overheard.decoding.measurement import from_rows
from overheard.errors import FixData


@pytest.mark.parametrize(("m", "k"), [(1, 2), (2, 5), (9, 2), (6, 3)])
@pytest.mark.parametrize("noise", [0.01, 0.5, 5.0])
def test_agrees_with_the_naive_list(simulate, enumerate_posterior, m, k, noise):
    problem = simulate(1, m, k, 4, noise)
    prior = np.random.default_rng(2).dirichlet(np.ones(k), size=m)
    prior[0] = np.eye(k)[problem.secret[0]]  # masks all but one
    exact = enumerate_posterior(*problem[:2], noise, prior)
    got = enumeration(from_rows(*problem[:2], noise, floor=1e-9), prior)
    np.testing.assert_allclose(got.probabilities, exact.marginals, atol=1e-6)
    assert got.converged


def test_a_total_from_elsewhere_is_not_believed(simulate):
    problem = simulate(3, 8, 2, 20, 0.01)
    got = enumeration(from_rows(problem.features, problem.total + 9.0, 0.01))
    assert not got.converged
    assert got.chi2_per_equation > 100


def test_twenty_binary_records(simulate):
    problem = simulate(4, 20, 2, 6, 1e-4)
    got = enumeration(from_rows(*problem[:2], 1e-4))
    np.testing.assert_array_equal(got.guess, problem.secret)  # 20 unknowns from 6 equations


def test_too_many_answers_are_refused(simulate):
    problem = simulate(5, 30, 2, 6, 0.1)
    with pytest.raises(FixData, match="decode"):
        enumeration(from_rows(*problem[:2], 0.1))
    assert answer_bits(np.full((2000, 2), 0.5)) == 2000
