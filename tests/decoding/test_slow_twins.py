"""Small kernels against slow twins that nobody could get wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from overheard.decoding.local_optimum import trend
from overheard.decoding.max_entropy import Posterior, count_unknowns, fits
from overheard.decoding.measurement import from_rows
from overheard.decoding.posterior import NOT_UNIQUE, EPOptions, answer_bits, flip_check
from overheard.decoding.ties import group_means, same_rows, tie_diagnostics

SEEDS = st.integers(0, 10_000)


def problem(seed, m, k, rows, noise):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(m, k, rows))
    secret = rng.integers(0, k, m)
    total = features[np.arange(m), secret].sum(axis=0) + noise * rng.normal(size=rows)
    return features, total, secret


def log_likelihood(features, total, noise, answer):
    left = total - features[np.arange(len(answer)), answer].sum(axis=0)
    return -0.5 * float(left @ left) / noise**2


@given(SEEDS, st.integers(2, 3), st.floats(0.1, 3.0))
def test_the_flip_check_tries_every_change_of_one_or_two_records(seed, k, noise):
    """The twin changes one record, or two, in every way, and takes the likeliest for each."""
    m = 5
    features, total, _ = problem(seed, m, k, 4, noise)
    rng = np.random.default_rng(seed + 1)
    prior = rng.dirichlet(np.full(k, 3.0), size=m)
    answer = rng.integers(0, k, m)
    measured = from_rows(features, total, noise, floor=1e-9)
    stated = np.where(np.eye(k, dtype=bool)[answer], 1 - 1e-9, 1e-9 / (k - 1))
    given_answer = Posterior(stated, 0.0, measured.rank, m * (k - 1), 1, True, "x")
    found = flip_check(measured, given_answer, prior)

    def worth(other):
        chosen = np.log(prior[np.arange(m), other]).sum()
        return log_likelihood(features, total, noise, other) + chosen

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


def test_the_flip_check_with_more_changes_than_pairs_it_looks_at():
    """The most suspect ones are paired; the others are judged alone."""
    features, total, secret = problem(3, 40, 2, 60, 0.05)
    measured = from_rows(features, total, 0.05)
    wrong = secret.copy()
    wrong[7] = 1 - wrong[7]
    stated = np.where(np.eye(2, dtype=bool)[wrong], 1 - 1e-9, 1e-9)
    given_answer = Posterior(stated, 0.0, measured.rank, 40, 1, True, "x")
    whole = flip_check(measured, given_answer, np.full((40, 2), 0.5))
    few = flip_check(measured, given_answer, np.full((40, 2), 0.5), EPOptions(pairs=10))
    assert whole.flag == few.flag == NOT_UNIQUE
    np.testing.assert_allclose(few.probabilities[7], whole.probabilities[7])


def test_the_flip_check_has_nothing_to_change_where_the_prior_decides():
    features, total, secret = problem(3, 4, 2, 6, 0.5)
    decided = np.eye(2)[secret]
    posterior = Posterior(decided, 0.0, 4, 0, 1, True, "x")
    assert flip_check(from_rows(features, total, 0.5), posterior, decided) is posterior


@given(st.integers(2, 30), st.integers(0, 6))
def test_the_trend_spans_the_polynomials(rounds, degree):
    found = trend(rounds, degree)
    count = min(degree, rounds - 1) + 1
    assert found.shape == (rounds, count)
    np.testing.assert_allclose(found.T @ found, np.eye(count), atol=1e-10)
    time = np.linspace(-1, 1, rounds)
    for power in range(count):
        left = time**power - found @ (found.T @ time**power)
        assert np.abs(left).max() < 1e-8


CELLS = st.sampled_from([-0.0, 0.0, 1.0, 2.0])


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12))
def test_equal_rows_have_equal_numbers(rows):
    found = same_rows(np.array(rows))
    for i, j in itertools.combinations(range(len(rows)), 2):
        assert (found[i] == found[j]) == (rows[i] == rows[j])
    assert set(found) == set(range(len(set(rows))))


@given(SEEDS, st.integers(1, 10))
def test_groups_are_given_their_mean(seed, m):
    rng = np.random.default_rng(seed)
    groups = same_rows(rng.integers(0, 3, (m, 1)))
    p = rng.dirichlet([1, 1, 1], size=m)
    found = group_means(p, groups)
    for i in range(m):
        np.testing.assert_allclose(found[i], p[groups == groups[i]].mean(axis=0))
    told = tie_diagnostics(groups, found)
    tied = [i for i in range(m) if (groups == groups[i]).sum() > 1]
    assert told["tied_records"] == len(tied)
    assert told["undecidable"] == sum(found[i].max() < 1 - 1e-4 for i in tied)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6))
def test_answers_and_unknowns_are_counted(allowed):
    prior = np.array([[1.0, *row] for row in allowed])
    prior /= prior.sum(axis=1, keepdims=True)
    every = 1
    for row in prior:
        every *= int((row > 0).sum())
    assert 2 ** answer_bits(prior) == pytest.approx(every)
    assert count_unknowns(prior) == sum(int((row > 0).sum()) - 1 for row in prior)


@pytest.mark.parametrize("equations", [1, 10, 300])
def test_fit_is_the_chi_square_tail(equations):
    edge = stats.chi2.isf(1e-6, equations)
    assert fits(edge * 0.999, equations, slack=1.0)
    assert not fits(edge * 1.001, equations, slack=1.0)
    assert fits(edge * 1.5 * 0.999, equations)
    assert not fits(edge * 1.5 * 1.001, equations)
    assert fits(1e9, 0)
