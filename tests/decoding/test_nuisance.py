"""Measuring records against deviations, beside twins that write everything out."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import sparse

from overheard.decoding.nuisance import Sums, whitened

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
