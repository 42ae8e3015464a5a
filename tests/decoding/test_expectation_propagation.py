from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding import expectation_propagation as module
from overheard.decoding.expectation_propagation import expectation_propagation
from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import Measurement, from_rows


@pytest.mark.parametrize(("m", "k", "rows"), [(10, 2, 4), (6, 3, 4)])
@pytest.mark.parametrize("noise", [3.0, 1.0])
def test_marginals_are_close_to_enumeration(simulate, enumerate_posterior, m, k, rows, noise):
    rng = np.random.default_rng(0)
    ours, naive = [], []
    for seed in range(12):
        prior = rng.dirichlet(np.ones(k) * 2, size=m)
        problem = simulate(seed, m, k, rows, noise, prior)
        exact = enumerate_posterior(*problem[:2], noise, prior).marginals
        measurement = from_rows(*problem[:2], noise)
        posterior = expectation_propagation(measurement, prior)
        assert posterior.converged
        ours.append(np.abs(posterior.probabilities - exact).mean())
        naive.append(np.abs(max_entropy(measurement, prior).probabilities - exact).mean())
    assert np.mean(ours) < 0.03
    assert np.mean(ours) < np.mean(naive)


def test_one_record_is_exact(simulate, enumerate_posterior):
    problem = simulate(3, 1, 4, 2, 1.0)
    prior = np.full((1, 4), 0.25)
    exact = enumerate_posterior(*problem[:2], 1.0, prior).marginals
    got = expectation_propagation(from_rows(*problem[:2], 1.0, floor=1e-9)).probabilities
    np.testing.assert_allclose(got, exact, atol=1e-4)
    assert prior.shape == got.shape


@pytest.mark.parametrize("noise", [0.3, 2.0, 10.0])
def test_calibrated_under_noise_and_more_accurate_than_max_entropy(
    simulate, calibration_error, noise
):
    prior = np.array([0.7, 0.3])
    p, q, s = [], [], []
    for seed in range(15):
        problem = simulate(seed, 150, 2, 60, noise, prior)
        measurement = from_rows(*problem[:2], noise)
        p.append(expectation_propagation(measurement, prior).probabilities)
        q.append(max_entropy(measurement, prior).probabilities)
        s.append(problem.secret)
    p, q, s = np.concatenate(p), np.concatenate(q), np.concatenate(s)
    assert calibration_error(p, s) <= 0.05
    assert np.mean(p.argmax(axis=1) == s) >= np.mean(q.argmax(axis=1) == s) - 0.003


def test_peeling_decodes_everything_below_full_rank(simulate):
    """Three equations for four unknowns, precise: max entropy is unsure, peeling proves it all."""
    problem = simulate(5, 200, 2, 150, 1e-3)
    measurement = from_rows(*problem[:2], 1e-3)
    posterior = expectation_propagation(measurement)
    np.testing.assert_array_equal(posterior.guess, problem.secret)
    assert posterior.chi2_per_equation < 2


def test_categorical_below_full_rank(simulate):
    problem = simulate(6, 60, 3, 100, 1e-3)
    posterior = expectation_propagation(from_rows(*problem[:2], 1e-3))
    assert posterior.converged
    assert np.mean(posterior.guess == problem.secret) == 1.0


def test_three_columns_at_once_by_a_fifth_of_the_equations():
    """Eight combinations a record that share main effects: 190 equations for 1,050 unknowns."""
    rng, people, rows = np.random.default_rng(2), 150, 190
    bits = np.array([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)], dtype=float)
    shares = np.prod(np.where(bits == 1, [0.5, 0.2, 0.2], [0.5, 0.8, 0.8]), axis=1)
    main = rng.normal(size=(people, 3, rows))
    features = np.einsum("kc,ncr->nkr", bits, main) + 0.3 * rng.normal(size=(people, 8, rows))
    secret = rng.choice(8, people, p=shares)
    total = features[np.arange(people), secret].sum(axis=0) + 1e-3 * rng.normal(size=rows)
    posterior = expectation_propagation(from_rows(features, total, 1e-3), shares)
    np.testing.assert_array_equal(posterior.guess, secret)


def test_a_swapped_pair_is_opened_again(simulate):
    problem = simulate(7, 30, 2, 40, 1e-3)
    features = problem.features.copy()
    features[1] = features[0] + 0.01 * features[1]  # alike, yet not the same
    secret = problem.secret.copy()
    secret[:2] = 0, 1
    total = features[np.arange(30), secret].sum(axis=0)
    measurement = from_rows(features, total, 1e-3)
    swapped = secret.copy()
    swapped[:2] = 1, 0
    known = np.ones(30, dtype=bool)
    for still_open in (0, 6):  # only what open records cannot move is looked at
        known[30 - still_open :] = False
        got = module._proven(measurement, known, swapped)
        assert not got[:2].any()
        assert not got[~known].any()
        assert got.sum() >= 30 - still_open - 6


@pytest.mark.parametrize("wrong", [1, 3, 6])
def test_records_are_opened_again_until_the_others_are_right(simulate, wrong):
    problem = simulate(13, 30, 3, 80, 1e-3)
    answer = problem.secret.copy()
    answer[:wrong] = (answer[:wrong] + 1) % 3
    measurement = from_rows(*problem[:2], 1e-3)
    got = module._proven(measurement, np.ones(30, dtype=bool), answer)
    assert got.any()
    np.testing.assert_array_equal(answer[got], problem.secret[got])


def test_what_no_few_records_explain_is_not_set_aside(simulate):
    problem = simulate(8, 30, 2, 40, 1e-3)
    measurement = from_rows(problem.features, problem.total + 3.0, 1e-3)
    assert not module._proven(measurement, np.ones(30, dtype=bool), problem.secret).any()


def test_a_total_from_elsewhere_is_not_believed(simulate):
    problem = simulate(9, 60, 2, 40, 1e-2)
    posterior = expectation_propagation(from_rows(problem.features, problem.total + 40.0, 1e-2))
    assert not posterior.converged
    np.testing.assert_allclose(posterior.probabilities.sum(axis=1), 1.0)


def test_certain_and_masked_candidates_are_respected(simulate):
    problem = simulate(10, 20, 3, 10, 0.5)
    prior = np.full((20, 3), 1 / 3)
    prior[0] = np.eye(3)[problem.secret[0]]
    prior[1, (problem.secret[1] + 1) % 3] = 0.0
    prior[1] /= prior[1].sum()
    posterior = expectation_propagation(from_rows(*problem[:2], 0.5), prior)
    np.testing.assert_array_equal(posterior.probabilities[0], prior[0])
    assert posterior.probabilities[1, (problem.secret[1] + 1) % 3] == 0.0
    all_known = expectation_propagation(from_rows(*problem[:2], 0.5), np.eye(3)[problem.secret])
    np.testing.assert_array_equal(all_known.guess, problem.secret)


def test_duplicates_stay_undecided(simulate):
    problem = simulate(11, 40, 2, 60, 1e-3)
    features = problem.features.copy()
    features[1] = features[0]
    secret = problem.secret.copy()
    secret[:2] = 0, 1
    total = features[np.arange(40), secret].sum(axis=0)
    posterior = expectation_propagation(from_rows(features, total, 1e-3))
    np.testing.assert_allclose(posterior.probabilities[:2], 0.5, atol=0.05)
    np.testing.assert_array_equal(posterior.guess[2:], secret[2:])


def test_no_budget_no_belief(simulate):
    problem = simulate(12, 40, 2, 20, 0.1)
    assert not expectation_propagation(from_rows(*problem[:2], 0.1), budget=1.0).converged


def test_nothing_measured_returns_the_prior():
    posterior = expectation_propagation(Measurement(np.zeros((3, 2, 0)), np.zeros(0)), [0.3, 0.7])
    np.testing.assert_allclose(posterior.probabilities, [[0.3, 0.7]] * 3)
    assert posterior.chi2_per_equation == 0.0


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**31),
    m=st.integers(2, 10),
    k=st.integers(2, 3),
    rows=st.integers(1, 8),
)
def test_invariances(seed, m, k, rows):
    """Order of records, a shift per record, a rotation of the rows."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(m, k, rows))
    secret = rng.integers(0, k, m)
    total = features[np.arange(m), secret].sum(axis=0) + rng.normal(size=rows)
    prior = rng.dirichlet(np.ones(k) * 3, size=m)
    base = expectation_propagation(from_rows(features, total, 1.0), prior).probabilities
    order = rng.permutation(m)
    got = expectation_propagation(from_rows(features[order], total, 1.0), prior[order])
    np.testing.assert_allclose(got.probabilities, base[order], atol=1e-5)
    shift = rng.normal(size=(m, 1, rows))
    got = expectation_propagation(
        from_rows(features + shift, total + shift.sum(axis=(0, 1)), 1.0), prior
    )
    np.testing.assert_allclose(got.probabilities, base, atol=1e-5)
    q, _ = np.linalg.qr(rng.normal(size=(rows, rows)))
    got = expectation_propagation(from_rows(features @ q, total @ q, 1.0), prior)
    np.testing.assert_allclose(got.probabilities, base, atol=1e-5)
