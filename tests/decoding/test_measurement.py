from __future__ import annotations

import numpy as np
import pytest
from measurements import crooked, score, simulate

from overheard.decoding.measurement import from_differences, from_gram, from_rows, stack
from overheard.errors import FixData


def _naive_score(problem, answer, covariance):
    residual = problem.total - problem.features[np.arange(len(answer)), answer].sum(axis=0)
    return float(residual @ np.linalg.solve(covariance, residual))


@pytest.mark.parametrize(("m", "k", "rows"), [(5, 2, 3), (4, 3, 20), (1, 2, 1), (6, 4, 18)])
@pytest.mark.parametrize("kind", ["number", "per row", "covariance"])
def test_reduction_keeps_the_likelihood_of_every_answer(m, k, rows, kind):
    problem = simulate(3, m, k, rows, 0.1)
    rng = np.random.default_rng(4)
    sd = rng.uniform(0.05, 0.3, rows)
    mix = rng.normal(size=(rows, rows))
    noise, covariance = {
        "number": (0.1, np.eye(rows) * 0.01),
        "per row": (sd, np.diag(sd**2)),
        "covariance": (mix @ mix.T + np.eye(rows), mix @ mix.T + np.eye(rows)),
    }[kind]
    reduced = from_rows(problem.features, problem.total, noise, floor=1e-9)
    for _ in range(20):
        answer = rng.integers(0, k, m)
        expected = _naive_score(problem, answer, covariance)
        assert score(reduced, answer) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert reduced.rank == min(rows, m * (k - 1)) == rows - reduced.residual_dof
    assert reduced.unknowns == m * (k - 1)


def test_reduced_chi_square_tells_whether_the_stated_noise_is_right():
    problem = simulate(2, 20, 2, 2000, 0.05)
    assert from_rows(problem.features, problem.total, 0.05).chi2 == pytest.approx(1.0, abs=0.1)
    assert from_rows(problem.features, problem.total, 0.01).chi2 == pytest.approx(25.0, rel=0.1)
    assert np.isnan(from_rows(problem.features[:, :, :3], problem.total[:3], 0.05).chi2)


def test_zero_noise_means_exact_up_to_float64():
    problem = simulate(6, 8, 3, 30, 0.0)
    reduced = from_rows(problem.features, problem.total, 0.0)
    assert reduced.rank == 16
    assert np.isfinite(reduced.features).all()
    assert score(reduced, problem.secret) < 100 < score(reduced, (problem.secret + 1) % 3)


@pytest.mark.parametrize("k", [2, 3])
def test_gram_form_agrees_with_rows_when_well_conditioned(k):
    problem = simulate(7, 12, k, 40, 0.1)
    d = (problem.features[:, 1:] - problem.features[:, :1]).reshape(-1, 40)
    b = problem.total - problem.features[:, 0].sum(axis=0)
    rows = from_rows(problem.features, problem.total, 0.1)
    gram = from_gram(d @ d.T / 0.1**2, (d @ b).reshape(12, k - 1) / 0.1**2)
    assert gram.rank == rows.rank
    answers = np.random.default_rng(0).integers(0, k, (10, 12))
    gaps = [score(rows, a) - score(gram, a) for a in answers]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-6)  # spare rows are all that differs


def test_a_direction_below_the_noise_is_left_out_of_a_gram_matrix():
    d = np.diag([3.0, 2.0, 1.0, 1e-3])
    cross = (d @ np.ones(4))[:, None]
    assert from_gram(d @ d.T, cross, floor=2e-3).rank == 3
    assert from_gram(d @ d.T, cross, floor=2e-6).rank == 4


def test_of_an_ill_conditioned_gram_matrix_only_what_is_no_rounding_is_kept():
    rng = np.random.default_rng(8)
    d = crooked(rng, 40, 60, np.logspace(0, -9, 40))
    b = d.T @ rng.integers(0, 2, 40)
    rows = from_differences(d[:, None], b, 1e-12)
    gram = from_gram(d @ d.T, (d @ b)[:, None], floor=2e-14)
    assert rows.rank == 40
    assert gram.rank < 30


def test_stacked_rounds_equal_one_long_round():
    problem = simulate(9, 10, 2, 30, 0.1)
    whole = from_rows(problem.features, problem.total, 0.1, floor=1e-9)
    cuts = [slice(0, 4), slice(4, 9), slice(9, 30)]
    parts = [from_rows(problem.features[:, :, c], problem.total[c], 0.1, floor=1e-9) for c in cuts]
    joint = stack(parts)
    assert joint.rank == whole.rank
    assert joint.residual_dof == whole.residual_dof
    for answer in np.random.default_rng(0).integers(0, 2, (10, 10)):
        assert score(joint, answer) == pytest.approx(score(whole, answer), rel=1e-9)


def test_inflated_and_capped_only_add_noise():
    problem = simulate(10, 10, 2, 6, 1e-4)
    tight = from_rows(problem.features, problem.total, 1e-4)
    loose = tight.inflated(10.0)
    np.testing.assert_allclose(loose.features * 10.0, tight.features)
    capped = tight.capped(50.0)
    singular = np.linalg.norm(capped.features[:, 1], axis=0)
    assert singular.max() == pytest.approx(50.0)
    assert score(capped, problem.secret) <= score(tight, problem.secret) + 1e-9
    assert tight.capped(1e12) is tight


@pytest.mark.parametrize(
    ("features", "total", "noise", "words"),
    [
        (np.full((2, 2, 3), np.nan), np.zeros(3), 1.0, "NaN"),
        (np.zeros((2, 2, 3)), np.array([0, np.inf, 0]), 1.0, "infinite"),
        (np.zeros((2, 2, 3)), np.zeros(4), 1.0, "one number per row"),
        (np.zeros((2, 3)), np.zeros(3), 1.0, "records, candidates, rows"),
        (np.zeros((0, 2, 3)), np.zeros(3), 1.0, "records, candidates, rows"),
        (np.zeros((2, 2, 3)), np.zeros(3), -1.0, "negative"),
        (np.zeros((2, 2, 3)), np.zeros(3), np.ones(2), "one per row"),
        (np.zeros((2, 2, 3)), np.zeros(3), np.ones((2, 2)), "covariance"),
        (np.zeros((2, 2, 3)), np.zeros(3), -np.eye(3), "positive definite"),
        (np.zeros((2, 2, 3)), "abc", 1.0, "not an array"),
    ],
)
def test_bad_rows_are_refused_by_name(features, total, noise, words):
    with pytest.raises(FixData, match=words):
        from_rows(features, total, noise)


@pytest.mark.parametrize(
    ("gram", "cross", "words"),
    [
        (-np.eye(3), np.zeros((3, 1)), "negative eigenvalues"),
        (np.full((3, 3), np.nan), np.zeros((3, 1)), "Gram matrix: 9 of 9"),
        (np.eye(3), np.full((3, 1), np.inf), "products: 3 of 3"),
    ],
)
def test_bad_inner_products_are_refused_by_name(gram, cross, words):
    with pytest.raises(FixData, match=words):
        from_gram(gram, cross)
