"""One posterior for every measurement: exact where it can be, calibrated where it cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measurements import calibration_error, enumerated, simulate
from scipy import linalg

from overheard.decoding import posterior as module
from overheard.decoding.max_entropy import Posterior, max_entropy
from overheard.decoding.measurement import Measurement, from_rows
from overheard.decoding.ties import decode_tied, group_means, same_rows, tie_diagnostics

pytestmark = pytest.mark.slow


def swept(measurement, prior, points=None, options=None):
    """Expectation propagation alone, for problems that would be enumerated."""
    return module.sweeps_of(measurement, prior, points, options or module.EPOptions())


@pytest.mark.parametrize(("m", "k", "rows"), [(40, 2, 60), (15, 4, 60), (1, 3, 5)])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_exact_when_equations_reach_unknowns(m, k, rows, noise):
    problem = simulate(1, m, k, rows, noise)
    posterior = decode_tied(from_rows(*problem[:2], noise), np.arange(m))
    np.testing.assert_array_equal(posterior.guess, problem.secret)
    assert posterior.method == "linear_solve"
    assert not posterior.flag


@pytest.mark.parametrize(("m", "k", "rows"), [(150, 2, 110), (200, 2, 150), (60, 3, 100)])
def test_every_record_below_full_rank(m, k, rows):
    """Fewer precise equations than unknowns: annealing and conditioning determine every record."""
    problem = simulate(2, m, k, rows, 1e-3)
    posterior = module.decode(from_rows(*problem[:2], 1e-3))
    assert posterior.method == "expectation_propagation"
    np.testing.assert_array_equal(posterior.guess, problem.secret)
    assert posterior.chi2_per_equation < 2


def test_three_columns_at_once_by_a_fifth_of_the_equations():
    """Eight combinations a record that share main effects: 190 equations for 1,050 unknowns."""
    rng, people, rows = np.random.default_rng(2), 150, 190
    bits = np.array([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)], dtype=float)
    shares = np.prod(np.where(bits == 1, [0.5, 0.2, 0.2], [0.5, 0.8, 0.8]), axis=1)
    main = rng.normal(size=(people, 3, rows))
    features = np.einsum("kc,ncr->nkr", bits, main) + 0.3 * rng.normal(size=(people, 8, rows))
    secret = rng.choice(8, people, p=shares)
    total = features[np.arange(people), secret].sum(axis=0) + 1e-3 * rng.normal(size=rows)
    posterior = module.decode(from_rows(features, total, 1e-3), shares)
    np.testing.assert_array_equal(posterior.guess, secret)


def test_maximum_entropy_answers_where_nothing_fits_or_the_budget_is_too_small():
    problem = simulate(3, 60, 2, 40, 1e-2)
    posterior = module.decode(from_rows(problem.features, problem.total + 40.0, 1e-2))
    assert posterior.flag == module.POOR_FIT
    short = simulate(4, 60, 2, 30, 0.1)
    measurement = from_rows(*short[:2], 0.1)
    cheap = module.decode(measurement, options=module.EPOptions(budget=1.0))
    assert cheap.method == "max_entropy"
    np.testing.assert_allclose(cheap.probabilities, max_entropy(measurement).probabilities)


def test_sweeps_that_never_rest_give_way_to_maximum_entropy(monkeypatch):
    problem = simulate(1, 40, 2, 4, 0.5)

    def broken(*_):
        raise linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(module, "cavities", broken)
    assert module.decode(from_rows(*problem[:2], 0.5)).method == "max_entropy"


def test_the_prior_where_nothing_was_measured():
    for measurement in (
        from_rows(np.ones((3, 2, 3)), np.full(3, 3.0), 0.1),
        Measurement(np.zeros((3, 2, 0)), np.zeros(0)),
    ):
        posterior = module.decode(measurement, [0.9, 0.1])
        assert posterior.method == "prior"
        np.testing.assert_allclose(posterior.probabilities, [[0.9, 0.1]] * 3)


@pytest.mark.parametrize(("m", "k"), [(1, 2), (2, 5), (9, 2), (6, 3)])
@pytest.mark.parametrize("noise", [0.01, 0.5, 5.0])
def test_enumeration_agrees_with_the_naive_list(m, k, noise):
    problem = simulate(1, m, k, 4, noise)
    prior = np.random.default_rng(2).dirichlet(np.ones(k), size=m)
    prior[0] = np.eye(k)[problem.secret[0]]  # excludes all but one
    exact = enumerated(*problem[:2], noise, prior)
    got = module.enumeration(from_rows(*problem[:2], noise, floor=1e-9), prior)
    np.testing.assert_allclose(got.probabilities, exact, atol=1e-6)
    assert got.converged


@pytest.mark.parametrize(("m", "k", "rows"), [(10, 2, 4), (6, 3, 4)])
@pytest.mark.parametrize("noise", [3.0, 1.0])
def test_sweeps_are_close_to_the_exact_posterior(m, k, rows, noise):
    rng = np.random.default_rng(0)
    ours, naive = [], []
    for seed in range(12):
        prior = rng.dirichlet(np.ones(k) * 2, size=m)
        problem = simulate(seed, m, k, rows, noise, prior)
        exact = enumerated(*problem[:2], noise, prior)
        measurement = from_rows(*problem[:2], noise)
        found = swept(measurement, prior)
        assert found.settled
        ours.append(np.abs(found.probabilities - exact).mean())
        naive.append(np.abs(max_entropy(measurement, prior).probabilities - exact).mean())
    assert np.mean(ours) < 0.03
    assert np.mean(ours) < np.mean(naive)


def test_candidates_at_points_of_few_dimensions():
    """Absent, or present with one of three weights: one unknown number a record."""
    points, prior = np.array([[0.0], [0.5], [1.0], [1.5]]), np.tile([0.4, 0.2, 0.2, 0.2], (5, 1))
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        features = points @ rng.normal(size=(5, 1, 12))
        chosen = rng.choice(4, size=5, p=prior[0])
        total = features[np.arange(5), chosen].sum(axis=0) + 0.3 * rng.normal(size=12)
        exact = enumerated(features, total, 0.3, prior)
        found = swept(from_rows(features, total, 0.3), prior, points, module.NOISY)
        gaps.append(np.abs(found.probabilities - exact).max())
    assert np.median(gaps) < 0.1


@pytest.mark.parametrize("rows", [10, 40, 90, 150])
@pytest.mark.parametrize("noise", [1e-2, 1.0, 6.0])
def test_calibrated_at_every_rank_and_noise(rows, noise):
    prior = np.array([0.6, 0.4])
    p, s = [], []
    for seed in range(8):
        problem = simulate(seed, 150, 2, rows, noise, prior)
        p.append(module.decode(from_rows(*problem[:2], noise), prior).probabilities)
        s.append(problem.secret)
    assert calibration_error(np.concatenate(p), np.concatenate(s)) <= 0.05


def test_understated_noise_is_noticed_and_the_answer_stays_calibrated():
    """Ten times more noise than stated: rows outside the features' span tell."""
    p, s = [], []
    for seed in range(8):
        problem = simulate(seed, 40, 2, 400, 5.0)
        measurement = from_rows(problem.features, problem.total, 0.5)
        assert measurement.chi2 == pytest.approx(100.0, rel=0.4)
        assert module.believable(measurement).chi2 == pytest.approx(1.0)
        p.append(module.decode(measurement).probabilities)
        s.append(problem.secret)
    assert calibration_error(np.concatenate(p), np.concatenate(s)) <= 0.05
    right = from_rows(*simulate(5, 40, 2, 400, 0.5)[:2], 0.5)
    assert module.believable(right) is right


def test_understated_noise_without_spare_rows_is_raised():
    """The settled answer leaves more than the noise: its variance is raised, the answer stands."""
    right, sure = [], []
    for seed in range(10):
        problem = simulate(seed, 30, 2, 200, 3.0)
        whole = from_rows(problem.features, problem.total, 1.0)
        found = module.decode(replace(whole, residual_dof=0, residual_ss=0.0), options=module.NOISY)
        assert found.method == "expectation_propagation"
        right.append((found.guess == problem.secret).mean())
        sure.append(found.confidence.mean())
    assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.05)


@pytest.mark.parametrize("wrong", [1, 3, 6])
def test_confirmation_opens_records_until_the_others_are_right(wrong):
    problem = simulate(13, 30, 3, 80, 1e-3)
    answer = problem.secret.copy()
    answer[:wrong] = (answer[:wrong] + 1) % 3
    got = module.confirmed(from_rows(*problem[:2], 1e-3), np.ones(30, dtype=bool), answer)
    assert got.any()
    np.testing.assert_array_equal(answer[got], problem.secret[got])
    elsewhere = from_rows(problem.features, problem.total + 3.0, 1e-3)
    assert not module.confirmed(elsewhere, np.ones(30, dtype=bool), problem.secret).any()


def test_excluded_candidates_stay_excluded():
    problem = simulate(10, 40, 3, 10, 0.5)
    prior = np.full((40, 3), 1 / 3)
    prior[0] = np.eye(3)[problem.secret[0]]
    prior[1, (problem.secret[1] + 1) % 3] = 0.0
    prior[1] /= prior[1].sum()
    posterior = module.decode(from_rows(*problem[:2], 0.5), prior)
    np.testing.assert_array_equal(posterior.probabilities[0], prior[0])
    assert posterior.probabilities[1, (problem.secret[1] + 1) % 3] == 0.0
    known = module.decode(from_rows(*problem[:2], 0.5), np.eye(3)[problem.secret])
    np.testing.assert_array_equal(known.guess, problem.secret)
    half = np.full((40, 3), 1 / 3)
    half[:35] = np.eye(3)[problem.secret[:35]]
    assert module.decode(from_rows(*problem[:2], 0.5), half).unknowns == 10


def test_indistinguishable_records_stay_undecided():
    problem = simulate(11, 40, 2, 60, 1e-3)
    features = problem.features.copy()
    features[1] = features[0]
    secret = problem.secret.copy()
    secret[:2] = 0, 1
    total = features[np.arange(40), secret].sum(axis=0)
    posterior = module.decode(from_rows(features, total, 1e-3))
    np.testing.assert_allclose(posterior.probabilities[:2], 0.5, atol=0.05)
    np.testing.assert_array_equal(posterior.guess[2:], secret[2:])


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**31), m=st.integers(2, 10), k=st.integers(2, 3), rows=st.integers(1, 8)
)
def test_invariances(seed, m, k, rows):
    """Order of records, a shift per record, a rotation of the rows."""
    rng = np.random.default_rng(seed)
    features, total, *_ = simulate(seed, m, k, rows, 1.0)
    prior = rng.dirichlet(np.ones(k) * 3, size=m)
    base = swept(from_rows(features, total, 1.0), prior).probabilities
    order = rng.permutation(m)
    got = swept(from_rows(features[order], total, 1.0), prior[order])
    np.testing.assert_allclose(got.probabilities, base[order], atol=1e-5)
    shift = rng.normal(size=(m, 1, rows))
    moved = from_rows(features + shift, total + shift.sum(axis=(0, 1)), 1.0)
    np.testing.assert_allclose(swept(moved, prior).probabilities, base, atol=1e-5)
    q, _ = np.linalg.qr(rng.normal(size=(rows, rows)))
    got = swept(from_rows(features @ q, total @ q, 1.0), prior)
    np.testing.assert_allclose(got.probabilities, base, atol=1e-5)


SEEDS = st.integers(0, 10_000)


@given(SEEDS, st.integers(2, 3), st.floats(0.1, 3.0))
def test_the_flip_check_tries_every_change_of_one_or_two_records(seed, k, noise):
    """The twin changes one record, or two, in every way, and takes the likeliest for each."""
    m = 5
    features, total, *_ = simulate(seed, m, k, 4, noise)
    rng = np.random.default_rng(seed + 1)
    prior = rng.dirichlet(np.full(k, 3.0), size=m)
    answer = rng.integers(0, k, m)
    measured = from_rows(features, total, noise, floor=1e-9)
    stated = np.where(np.eye(k, dtype=bool)[answer], 1 - 1e-9, 1e-9 / (k - 1))
    given_answer = Posterior(stated, 0.0, measured.rank, m * (k - 1), 1, True, "x")
    found = module.flip_check(measured, given_answer, prior)

    def worth(other):
        left = total - features[np.arange(m), other].sum(axis=0)
        return np.log(prior[np.arange(m), other]).sum() - 0.5 * (left @ left) / noise**2

    def changed(*pairs):
        other = answer.copy()
        for i, value in pairs:
            other[i] = value
        return worth(other) - worth(answer)

    singles = [(i, v) for i in range(m) for v in range(k) if v != answer[i]]
    for i in range(m):
        doubts = {}
        for v in range(k):
            if v == answer[i]:
                continue
            gains = [changed((i, v))]
            gains += [changed((i, v), pair) for pair in singles if pair[0] != i]
            doubts[v] = float(1 / (1 + np.exp(np.clip(-max(gains), -700, 700))))
        doubt = min(sum(doubts.values()), 0.5)
        wanted = max(doubt, 1e-9)
        assert 1 - found.probabilities[i, answer[i]] == pytest.approx(wanted, abs=1e-6)


@given(SEEDS, st.integers(1, 10))
def test_groups_are_given_their_mean(seed, m):
    rng = np.random.default_rng(seed)
    groups = same_rows(rng.integers(0, 3, (m, 1)))
    p = rng.dirichlet([1, 1, 1], size=m)
    found = group_means(p, groups)
    for i in range(m):
        np.testing.assert_allclose(found[i], p[groups == groups[i]].mean(axis=0))
    shown = tie_diagnostics(groups, found)
    tied = [i for i in range(m) if (groups == groups[i]).sum() > 1]
    assert shown["tied_records"] == len(tied)
    assert shown["undecidable"] == sum(found[i].max() < 1 - 1e-4 for i in tied)
