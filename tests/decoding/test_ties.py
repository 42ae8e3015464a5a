"""Counts of ties against brute force, and conjugate gradients against the dense solve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overheard.decoding.matrix_free import OuterProducts, Part, decode_matrix_free
from overheard.decoding.measurement import from_rows
from overheard.decoding.ties import decode_tied, linear_solve, solve_gram


@pytest.mark.parametrize("candidates", [2, 3])
def test_counts_are_those_of_an_exhaustive_search(rng, candidates):
    groups = np.array([0, 0, 0, 1, 2, 2, 3])
    distinct = rng.normal(size=(4, candidates, 30))
    features = distinct[groups]
    truth = rng.integers(0, candidates, 7)
    total = features[np.arange(7), truth].sum(axis=0)
    posterior = decode_tied(from_rows(features, total, 1e-6), groups)
    best = min(
        itertools.product(range(candidates), repeat=7),
        key=lambda z: np.sum((features[np.arange(7), list(z)].sum(axis=0) - total) ** 2),
    )
    assert posterior.method == "counts"
    for group in range(4):
        inside = groups == group
        counts = np.bincount(np.array(best)[inside], minlength=candidates) / inside.sum()
        assert np.allclose(posterior.probabilities[inside], counts, atol=1e-4)


@pytest.mark.parametrize("groups", [range(9), [0, 0, 1, 2, 3, 4, 5, 6, 6]])
def test_dependent_candidates_are_those_of_an_exhaustive_search(rng, groups):
    """Pairs of value and class: multiples of one vector per value, and records alike."""
    groups = np.array(groups)
    errors = rng.uniform(0.2, 0.8, (9, 2))[groups]
    vectors = rng.normal(size=(9, 2, 1, 40))[groups]
    multiples = np.stack([errors, errors - 1], axis=2)[:, :, :, None]
    features = (multiples * vectors).reshape(len(groups), 4, 40)
    truth = rng.integers(0, 4, len(groups))
    total = features[np.arange(len(groups)), truth].sum(axis=0)
    measurement = from_rows(features, total, 1e-6)
    assert measurement.rank < measurement.unknowns
    found = linear_solve(measurement, groups)
    assert found is not None
    shares = np.zeros((groups.max() + 1, 4))
    np.add.at(shares, (groups, truth), 1 / np.bincount(groups)[groups])
    assert np.allclose(found.probabilities, shares[groups], atol=1e-6)
    wrong = from_rows(features, total + 3 * rng.normal(size=40), 1e-6)
    assert linear_solve(wrong, groups) is None
    assert linear_solve(from_rows(features[:, :, :9], total[:9], 1e-6), groups) is None


def test_open_records_are_solved_for_given_the_decided_ones(rng):
    """Fewer equations than unknowns, some records loud: no doubt is left, and all are right."""
    loud = np.where(rng.random(60) < 0.5, 30.0, 1.0)[:, None, None]
    features, truth = loud * rng.normal(size=(60, 2, 56)), rng.integers(0, 2, 60)
    total = features[np.arange(60), truth].sum(axis=0)
    found = linear_solve(from_rows(features, total, 1e-3), np.arange(60))
    assert found is not None
    assert found.iterations > 1
    assert found.rank == 56
    assert np.array_equal(found.guess, truth)
    alike = features / loud
    few = from_rows(alike[:, :, :40], alike[np.arange(60), truth, :40].sum(axis=0), 1e-3)
    assert linear_solve(few, np.arange(60)) is None


@pytest.mark.parametrize("candidates", [2, 3])
def test_a_factor_in_float32_decides_what_one_in_float64_does_or_nothing(rng, candidates):
    groups = np.array([*range(40), 39])
    features, truth = rng.normal(size=(40, candidates, 200))[groups], rng.integers(0, 2, 41)
    for alike, precision in ((1.0, 1e6), (1.0, 1e60), (1e-3, 1e6)):
        features[1] = alike * features[1] + (1 - alike) * features[0]
        rows = features[:, 1:] - features[:, :1]
        left = (features[np.arange(41), truth] - features[:, 0]).sum(axis=0)
        gram, cross = np.einsum("iar,jbr->iajb", rows, rows), rows @ left
        exact = solve_gram(precision * gram, precision * cross, groups)
        single = solve_gram(gram.astype(np.float32), cross, groups, unit=precision)
        assert exact is not None
        assert (single is None) == (alike < 1)
        for one, two in zip(exact, single or exact, strict=True):
            np.testing.assert_allclose(*(getattr(x, "probabilities", x) for x in (one, two)))


def test_counts_that_are_not_clear_of_the_noise_are_no_solution(rng):
    """Of noise as loud as a record, and of a total that would need minus three of four records."""
    groups, rows = np.repeat(np.arange(10), 4), rng.normal(size=(10, 1, 200))
    features = np.concatenate([np.zeros_like(rows), rows], axis=1)[groups]
    total = rows[:, 0].T @ rng.integers(0, 5, 10)
    assert linear_solve(from_rows(features, total, 0.1), groups) is not None
    louder = from_rows(features, total + rng.normal(0, 8.0, 200), 0.1)  # and understated
    assert linear_solve(louder, groups) is None
    assert decode_tied(louder, groups).confidence.mean() < 0.95
    assert linear_solve(from_rows(features, total - 8 * rows[3, 0], 0.1), groups) is None


def outer(rng, m, fan_out, fan_in, candidates, apart=False):
    """Sums of outer products of errors with inputs, the second in column 2 alone; and the same
    written out. ``apart``: the first of each candidate is in half of the columns only."""
    halves = np.array_split(np.arange(fan_in), 2) if apart else [np.arange(fan_in)]
    features, dense = [], np.zeros((m, candidates - 1, fan_out, fan_in))
    for k in range(candidates - 1):
        columns, errors = halves[k % len(halves)], rng.normal(size=(m, fan_out))
        inputs, few = rng.normal(size=(m, len(columns))), rng.normal(size=(m, 1))
        features.append((Part(errors, inputs, columns), Part(errors + 1, few, np.array([2]))))
        for part in features[-1]:
            dense[:, k][:, :, part.columns] += part.errors[:, :, None] * part.inputs[:, None]
    return OuterProducts(features, (fan_out, fan_in)), dense


@pytest.mark.parametrize(("candidates", "apart"), [(2, False), (3, False), (3, True)])
def test_operator_is_the_matrix(rng, candidates, apart):
    operator, dense = outer(rng, 9, 4, 6, candidates, apart)
    z, block = rng.normal(size=(9, candidates - 1)), rng.normal(size=(4, 6))
    assert np.allclose(operator.apply(z), np.einsum("ik,ikoj->oj", z, dense))
    assert np.allclose(operator.adjoint(block), np.einsum("ikoj,oj->ik", dense, block))
    own = np.einsum("iaoj,iboj->iab", dense, dense)
    assert np.allclose(operator.own_blocks(), own)
    assert np.allclose(operator.single().apply(z), operator.apply(z), atol=1e-4)


@pytest.mark.parametrize("candidates", [2, 3])
def test_conjugate_gradients_find_and_prove_the_answer(rng, candidates):
    operator, dense = outer(rng, 200, 20, 40, candidates)
    truth = rng.integers(0, candidates, 200)
    z = np.eye(candidates)[truth][:, 1:]
    residual = np.einsum("ik,ikoj->oj", z, dense) + rng.normal(0, 0.01, (20, 40))
    found = decode_matrix_free(operator, residual, 0.01, np.arange(200))
    assert found.converged
    assert np.array_equal(found.guess, truth)
    assert found.chi2_per_equation == pytest.approx(1.0, abs=0.2)


def test_conjugate_gradients_do_not_prove_nonsense(rng):
    operator, _ = outer(rng, 200, 20, 40, 2)
    found = decode_matrix_free(operator, rng.normal(0, 300.0, (20, 40)), 0.01, np.arange(200))
    assert not found.converged
    assert found.chi2_per_equation > 100
    assert found.confidence.min() < 0.99
