"""Noise in directions of its own, and chains that sample what is left."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
from scipy import sparse

from overheard.decoding.chains import sampled
from overheard.decoding.noise import Sums, covariance, whitened

pytestmark = pytest.mark.slow

N, WIDTH, UNKNOWNS = 90, 40, 7


def drawn(seed: int):
    rng = np.random.default_rng(seed)
    rows, message = rng.normal(size=(N, WIDTH)), rng.normal(size=WIDTH)
    made = [rng.normal(size=(k, N)) / 8 for k in (UNKNOWNS, 1, 60, 200, 3)]
    differences, *others = (sparse.csr_matrix(m) for m in made)
    return rows, message, Sums(differences, *others)


def blocks(rows, message, share=0.0):
    for part in np.array_split(np.arange(WIDTH), 3):
        yield rows[:, part], message[part], np.full(len(part), share)


def check(found, rows, message, sums, inverse):
    """Inner products are those under the inverse of the noise's covariance."""
    features, messages = found
    differences = sums.differences @ rows
    left = message - (sums.expected @ rows)[0]
    simulated = (sums.clients - np.ones((3, 1)) @ sums.expected.toarray()) @ rows
    assert np.allclose(features @ features.T, differences @ inverse @ differences.T)
    assert np.allclose(features @ messages[0], differences @ inverse @ left)
    assert np.allclose(messages[1:] @ features.T, simulated @ inverse @ differences.T)


def test_the_noise_in_a_direction_is_what_other_deviations_have_there():
    rows, message, sums = drawn(1)
    suppressed, heldout = sums.suppressed @ rows, sums.heldout @ rows
    _, directions = np.linalg.eigh(suppressed.T @ suppressed)
    noise = ((heldout @ directions) ** 2).sum(axis=0)
    inverse = (directions / noise) @ directions.T
    check(whitened(blocks(rows, message), sums), rows, message, sums, inverse)


def test_rounding_is_noise_where_no_deviation_is():
    rows, message, sums = drawn(2)
    none = {"suppressed": sparse.csr_matrix((0, N)), "heldout": sparse.csr_matrix((200, N))}
    nothing = dataclasses.replace(sums, **none)
    features, _ = whitened(blocks(rows, message, share=4.0), nothing)
    differences = sums.differences @ rows
    assert np.allclose(features @ features.T, differences @ differences.T / 4)


def test_records_alike_are_one_unknown():
    rows, message, sums = drawn(3)
    twice = sparse.vstack([sums.differences, sums.differences]).tocsr()
    alike = dataclasses.replace(sums, differences=twice)
    features, _ = whitened(blocks(rows, message), alike)
    assert features.shape == (2 * UNKNOWNS, WIDTH)
    assert np.allclose(features[:UNKNOWNS], features[UNKNOWNS:])


def records_drawn(seed, records, candidates, rank, size):
    rng = np.random.default_rng(seed)
    features = size * rng.normal(size=(records, candidates, rank))
    features[:, 0] = 0
    return features, rng.dirichlet(np.full(candidates, 3.0), records), rng


def message(features, state, rng, noise=1.0):
    here = np.arange(len(state))
    return features[here, state].sum(axis=0) + noise * rng.normal(size=features.shape[2])


def test_probabilities_are_those_of_enumeration():
    features, prior, rng = records_drawn(0, 4, 3, 60, 0.25)
    heard = message(features, np.array([0, 1, 2, 1]), rng)
    exact = np.zeros((4, 3))
    for state in product(range(3), repeat=4):
        left = heard - features[range(4), state].sum(axis=0)
        weight = prior[range(4), state].prod() * np.exp(-(left @ left) / 2)
        exact[range(4), state] += weight
    exact /= exact.sum(axis=1, keepdims=True)
    found, left = sampled(features, prior, np.repeat(heard[None], 20, 0), rng)
    assert 0.1 < exact.max(axis=1).mean() < 0.9
    assert np.abs(found.mean(axis=0) - exact).max() < 0.06
    assert abs(left.mean() - 1) < 0.3


def test_a_client_that_is_noisier_than_stated_is_believed_less():
    features, prior, rng = records_drawn(1, 40, 2, 100, 0.4)
    states = [(rng.random(40) < prior[:, 1]).astype(int) for _ in range(12)]
    for noise in (1.0, 3.0):
        heard = np.array([message(features, state, rng, noise) for state in states])
        found, left = sampled(features, prior, heard, rng)
        right = (found.argmax(axis=2) == states).mean()
        assert abs(found.max(axis=2).mean() - right) < 0.08
        assert abs(np.sqrt(left.mean()) - noise) < 0.2 * noise


def test_whitened_noise_has_unit_covariance(rng: np.random.Generator) -> None:
    """By the inverse root of the shrunk covariance, written out."""
    missed, sd = rng.normal(size=(6, 9)) / 2, rng.uniform(0.5, 2.0, 9)
    rows, standard = rng.normal(size=(4, 9)), missed / sd
    written = 0.3 * np.eye(9) + 0.7 * standard.T @ standard
    expected = (rows / sd) @ np.linalg.inv(written) @ (rows / sd).T
    white = covariance(missed, sd, 0.3).white(rows)
    np.testing.assert_allclose(white @ white.T / 0.3, expected)
