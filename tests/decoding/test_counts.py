"""Counts of ties against brute force, and conjugate gradients against the dense solve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overheard.decoding.counts import (
    _inverse,
    _round,
    _tilt_counts,
    decode_tied,
    same_rows,
    solve_counts,
    solve_dependent,
)
from overheard.decoding.matrix_free import (
    OuterProducts,
    Part,
    _nearest,
    _probabilities,
    decode_matrix_free,
)
from overheard.decoding.measurement import from_rows
from overheard.decoding.posterior import decode
from overheard.errors import FixData


def test_same_rows():
    table = np.array([[0.0, 1.0], [2.0, 1.0], [-0.0, 1.0], [2.0, 1.0], [2.0, 3.0]])
    groups = same_rows(table)
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert len(set(groups.tolist())) == 3
    assert np.array_equal(same_rows(np.zeros((3, 0))), [0, 0, 0])


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


@pytest.mark.parametrize(("candidates", "size"), [(2, 4), (3, 3)])
def test_counts_of_records_alike_by_listing_every_record(rng, candidates, size):
    """All K^size answers of the records, each with its prior: the multisets are sums over these."""
    prior, shift = rng.dirichlet(np.ones(candidates)), rng.normal(size=candidates - 1)
    root = rng.normal(size=(candidates - 1, candidates - 1))
    precision = root @ root.T
    chances: dict[tuple[int, ...], float] = {}
    for answer in itertools.product(range(candidates), repeat=size):
        counts = tuple(answer.count(k) for k in range(candidates))
        free = np.array(counts[1:], dtype=float)
        weight = np.prod(prior[list(answer)]) * np.exp(free @ shift - free @ precision @ free / 2)
        chances[counts] = chances.get(counts, 0.0) + weight
    total = sum(chances.values())
    shares = sum(np.array(c) * w for c, w in chances.items()) / total / size
    found, best = _tilt_counts(prior, size, precision, shift)
    assert found == pytest.approx(shares)
    assert best == pytest.approx(max(chances.values()) / total)


def test_a_count_is_rounded_only_where_all_values_are_sure():
    """Two records alike, three values: one count is near a whole number, the other is not."""
    prior, sizes = np.full((1, 3), 1 / 3), np.array([2])
    mean, none = np.array([[1.02, 0.45]]), np.zeros((1, 2, 2))
    sharp = np.diag([1e-6, 1e-6])[None]
    shares, _ = _round(prior, sizes, mean, sharp, none, np.zeros((1, 2)))
    np.testing.assert_allclose(shares, [[0.5, 0.5, 0.0]])
    blurred = np.diag([1e-6, 1.0])[None]
    shares, doubt = _round(prior, sizes, mean, blurred, none, np.zeros((1, 2)))
    np.testing.assert_allclose(shares[0, 1:], mean[0] / 2)
    assert doubt > 0.5


def test_the_inverse_is_whole_and_symmetric(rng):
    rows = rng.normal(size=(6, 9))
    precision = np.stack([np.diag([2.0, 3.0])] * 3)
    found, variance = _inverse(rows @ rows.T, precision, 0.5)
    whole = rows @ rows.T / 0.5 + np.diag([2.0, 3.0] * 3)
    assert variance == 0.5
    np.testing.assert_allclose(found, np.linalg.inv(whole), rtol=1e-9)


def test_records_alike_are_rounded_together():
    """A pair alike with 1.1 of two: one of them; a record alone takes its likeliest value."""
    groups = np.array([0, 0, 1])
    found = _nearest(np.array([[0.6], [0.5], [0.9]]), groups)
    np.testing.assert_allclose(found[:, 0], [0.5, 0.5, 1.0])
    found = _nearest(np.array([[0.4, 0.35], [0.3, 0.3]]), np.array([0, 1]))
    np.testing.assert_allclose(found, [[1, 0], [0, 0]])


def test_without_ties_it_is_decode(rng):
    features, truth = rng.normal(size=(30, 2, 40)), rng.integers(0, 2, 30)
    total = features[np.arange(30), truth].sum(axis=0)
    measurement = from_rows(features, total, 1e-3)
    tied = decode_tied(measurement, np.arange(30))
    assert np.array_equal(tied.probabilities, decode(measurement).probabilities)


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
    found = solve_dependent(measurement, groups)
    assert found is not None
    shares = np.zeros((groups.max() + 1, 4))
    np.add.at(shares, (groups, truth), 1 / np.bincount(groups)[groups])
    assert np.allclose(found.probabilities, shares[groups], atol=1e-6)
    wrong = from_rows(features, total + 0.1 * rng.normal(size=40), 1e-6)
    assert solve_dependent(wrong, groups) is None
    assert solve_dependent(from_rows(features[:, :, :9], total[:9], 1e-6), groups) is None


def test_noise_that_was_understated_is_noticed(rng):
    rows, truth = rng.normal(size=(20, 400)), rng.integers(0, 2, 20)
    total = truth @ rows + rng.normal(0, 8.0, 400)
    prior = np.full((20, 2), 0.5)
    found = solve_counts(rows @ rows.T, rows @ total, total @ total, 400, np.ones(20), prior)
    assert 6 < found.noise < 10
    assert not found.exact
    with pytest.raises(FixData, match="do not fit Gram"):
        solve_counts(rows @ rows.T, rows @ total, 1.0, 400, np.ones(3), prior[:3])


def outer(rng, m, fan_out, fan_in, candidates):
    errors = [rng.normal(size=(m, fan_out)) for _ in range(candidates - 1)]
    inputs = rng.normal(size=(m, fan_in))
    few = rng.normal(size=(m, 1))
    operator = OuterProducts(
        [
            (Part(e, inputs, np.arange(fan_in)), Part(e + 1, few, np.array([2])))
            for e in errors
        ],
        (fan_out, fan_in),
    )  # fmt: skip
    dense = np.stack([np.einsum("io,ij->ioj", e, inputs) for e in errors], axis=1)
    for k, e in enumerate(errors):
        dense[:, k, :, 2] += (e + 1) * few
    return operator, dense


@pytest.mark.parametrize("candidates", [2, 3])
def test_operator_is_the_matrix(rng, candidates):
    operator, dense = outer(rng, 9, 4, 6, candidates)
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
    found = decode_matrix_free(operator, residual, 0.01)
    assert found.converged
    assert np.array_equal(found.guess, truth)
    assert found.chi2_per_equation == pytest.approx(1.0, abs=0.2)


def test_what_conjugate_gradients_leave_open_by_hand():
    """prior(k) exp(-|z - corner k|^2 / (2 error)) for one record; the mean of two that are tied."""
    z, error = np.array([[0.3, 0.1], [0.8, 0.1], [0.2, 0.7]]), np.array([0.2, 0.1, 0.0])
    prior = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [1 / 3] * 3])
    answer = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    rows = []
    for i in (0, 1):
        far = [((z[i] - corner) ** 2).sum() for corner in ([0, 0], [1, 0], [0, 1])]
        p = prior[i] * np.exp(-np.array(far) / (2 * error[i]))
        rows.append(p / p.sum())
    found = _probabilities(z, answer, prior, np.arange(3), error)
    assert found == pytest.approx(np.array([*rows, [0.0, 0.0, 1.0]]))
    tied = _probabilities(z, answer, prior, np.array([0, 0, 1]), error)
    assert tied[:2] == pytest.approx(np.array([np.mean(rows, axis=0)] * 2))


def test_conjugate_gradients_do_not_prove_nonsense(rng):
    operator, _ = outer(rng, 200, 20, 40, 2)
    found = decode_matrix_free(operator, rng.normal(0, 300.0, (20, 40)), 0.01)
    assert not found.converged
    assert found.chi2_per_equation > 100
    assert found.confidence.min() < 0.99
