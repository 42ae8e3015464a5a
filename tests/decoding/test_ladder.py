from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.ladder import believable, decode
from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import from_differences, from_rows
from overheard.errors import FixData


def test_takes_the_linear_solve_when_it_is_exact(simulate):
    problem = simulate(1, 50, 2, 80, 1e-3)
    posterior = decode(from_rows(*problem[:2], 1e-3))
    assert posterior.method == "ridge"
    np.testing.assert_array_equal(posterior.guess, problem.secret)


@pytest.mark.parametrize(("records", "rows"), [(150, 110), (300, 270), (300, 291)])
@pytest.mark.parametrize("noise", [1e-3, 1e-5])
def test_takes_expectation_propagation_below_full_rank(simulate, records, rows, noise):
    """Also where only a few equations are missing, and of some records the value is known."""
    problem = simulate(2, records, 2, rows, noise)
    prior = np.full((records, 2), 0.5)
    prior[:5] = np.eye(2)[problem.secret[:5]]
    posterior = decode(from_rows(*problem[:2], noise), prior)
    assert posterior.method == "expectation_propagation"
    assert not posterior.flag
    np.testing.assert_array_equal(posterior.guess, problem.secret)


def test_indistinguishable_records_are_never_decided(simulate):
    problem = simulate(4, 100, 2, 95, 1e-6)
    problem.features[1] = problem.features[0]
    problem.secret[:2] = 0, 1
    total = problem.features[np.arange(100), problem.secret].sum(axis=0)
    posterior = decode(from_rows(problem.features, total, 1e-6))
    np.testing.assert_allclose(posterior.probabilities[:2], 0.5, atol=0.1)


def test_nearly_exact_messages_are_decided_too(rng):
    """Messages in double precision: rows from a thousand to 1e12 times the noise, whose squares
    are farther apart than doubles tell."""
    turns = [np.linalg.qr(rng.normal(size=(30, 30)))[0] for _ in range(2)]
    rows = turns[0] * np.logspace(12, 3, 30) @ turns[1]
    secret = rng.integers(0, 2, 30)
    posterior = decode(from_differences(rows, secret @ rows, 1.0))
    np.testing.assert_array_equal(posterior.guess, secret)


def test_falls_back_to_maximum_entropy_when_nothing_fits(simulate):
    problem = simulate(3, 60, 2, 40, 1e-2)
    posterior = decode(from_rows(problem.features, problem.total + 40.0, 1e-2))
    assert posterior.method == "max_entropy"
    assert posterior.chi2_per_equation > 2
    short = simulate(4, 60, 2, 30, 0.1)
    measurement = from_rows(*short[:2], 0.1)
    cheap = decode(measurement, budget=1.0)
    assert cheap.method == "max_entropy"
    np.testing.assert_allclose(cheap.probabilities, max_entropy(measurement).probabilities)


def test_returns_the_prior_when_nothing_was_measured():
    posterior = decode(from_rows(np.ones((5, 2, 3)), np.full(3, 5.0), 0.1), [0.9, 0.1])
    assert posterior.method == "prior"
    np.testing.assert_allclose(posterior.probabilities, [[0.9, 0.1]] * 5)


@pytest.mark.parametrize("noise", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("k", [2, 3])
def test_agrees_with_enumeration(simulate, enumerate_posterior, noise, k):
    m = {2: 10, 3: 7}[k]
    gaps, right, best = [], [], []
    for seed in range(10):
        problem = simulate(seed, m, k, 6, noise)
        exact = enumerate_posterior(*problem[:2], noise, np.full((m, k), 1 / k))
        posterior = decode(from_rows(*problem[:2], noise))
        gaps.append(np.abs(posterior.probabilities - exact.marginals).mean())
        right.append(np.mean(posterior.guess == problem.secret))
        best.append(np.mean(exact.marginals.argmax(axis=1) == problem.secret))
    assert np.mean(gaps) < 0.06
    assert np.mean(right) >= np.mean(best) - 0.06


@pytest.mark.parametrize("rows", [10, 40, 90, 150])
@pytest.mark.parametrize("noise", [1e-2, 1.0, 6.0])
def test_calibrated_whatever_the_rung(simulate, calibration_error, rows, noise):
    prior = np.array([0.6, 0.4])
    p, s = [], []
    for seed in range(8):
        problem = simulate(seed, 150, 2, rows, noise, prior)
        p.append(decode(from_rows(*problem[:2], noise), prior).probabilities)
        s.append(problem.secret)
    assert calibration_error(np.concatenate(p), np.concatenate(s)) <= 0.05


def test_understated_noise_is_noticed_and_the_answer_stays_calibrated(simulate, calibration_error):
    """Ten times more noise than stated: the spare rows tell, without the truth."""
    p, s = [], []
    for seed in range(8):
        problem = simulate(seed, 40, 2, 400, 5.0)
        copies = from_rows(problem.features, problem.total, 0.5)
        assert copies.misfit == pytest.approx(100.0, rel=0.4)
        assert believable(copies).misfit == pytest.approx(1.0)
        posterior = decode(copies)
        p.append(posterior.probabilities)
        s.append(problem.secret)
    assert calibration_error(np.concatenate(p), np.concatenate(s)) <= 0.05


def test_right_noise_is_left_alone(simulate):
    problem = simulate(5, 40, 2, 400, 0.5)
    measurement = from_rows(*problem[:2], 0.5)
    assert believable(measurement) is measurement


def test_absent_is_a_candidate(simulate):
    """A pool of candidates of which half took part: membership and attribute at once."""
    rng = np.random.default_rng(6)
    features = np.concatenate([np.zeros((60, 1, 150)), rng.normal(size=(60, 2, 150))], axis=1)
    secret = rng.choice(3, size=60, p=[0.5, 0.25, 0.25])
    total = features[np.arange(60), secret].sum(axis=0) + 1e-3 * rng.normal(size=150)
    posterior = decode(from_rows(features, total, 1e-3), [0.5, 0.25, 0.25])
    np.testing.assert_array_equal(posterior.guess, secret)


def test_same_input_same_bits(simulate):
    problem = simulate(7, 80, 2, 50, 0.1)
    first = decode(from_rows(*problem[:2], 0.1)).probabilities
    np.testing.assert_array_equal(first, decode(from_rows(*problem[:2], 0.1)).probabilities)


def test_bad_prior_is_refused(simulate):
    with pytest.raises(FixData, match="sum"):
        decode(from_rows(*simulate(0, 3, 2, 4, 0.1)[:2], 0.1), [0.5, 0.4])
