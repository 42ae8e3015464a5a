"""Filtering a secret out of deviations, beside twins that write everything out."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from overheard.decoding.nuisance import Sums, filtered

N, WIDTH, UNKNOWNS = 60, 40, 7


def drawn(seed: int, heldout: int = 200):
    rng = np.random.default_rng(seed)
    rows, message = rng.normal(size=(N, WIDTH)), rng.normal(size=WIDTH)
    made = [rng.normal(size=(k, N)) / 8 for k in (UNKNOWNS, 1, 30, heldout, 3)]
    return rows, message, Sums(*(sparse.csr_matrix(m) for m in made))


def blocks(rows, message, share=0.0):
    for part in np.array_split(np.arange(WIDTH), 3):
        yield rows[:, part], message[part], np.full(len(part), share)


def test_the_filter_is_generalised_least_squares():
    rows, message, sums = drawn(0, heldout=0)
    found = filtered(blocks(rows, message), sums, 0.4)
    differences, suppressed = sums.differences @ rows, sums.suppressed @ rows
    inverse = np.linalg.inv(np.eye(WIDTH) + 0.4 * suppressed.T @ suppressed)
    left = message - (sums.expected @ rows)[0]
    simulated = (sums.clients - np.ones((3, 1)) @ sums.expected.toarray()) @ rows
    assert found.noise is None
    assert np.allclose(found.products, differences @ inverse @ differences.T)
    assert np.allclose(found.projections[0], differences @ inverse @ left)
    assert np.allclose(found.projections[1:], simulated @ inverse @ differences.T)


def test_its_noise_is_what_it_lets_through_of_other_deviations():
    """Of many deviations nothing is shrunk: the covariance is that of the filtered sum."""
    rows, message, sums = drawn(1, heldout=20_000)
    found = filtered(blocks(rows, message), sums, 0.4)
    differences, suppressed = sums.differences @ rows, sums.suppressed @ rows
    inverse = np.linalg.inv(np.eye(WIDTH) + 0.4 * suppressed.T @ suppressed)
    through = differences @ inverse @ (sums.heldout @ rows).T
    back = np.linalg.pinv(found.products)  # of whitened differences, to those as they were
    turned = back @ (differences @ inverse @ differences.T)
    assert np.allclose(turned.T @ found.noise @ turned, through @ through.T, rtol=0.05, atol=1)


def test_rounding_is_noise_where_no_deviation_is():
    rows, message, sums = drawn(2, heldout=200)
    nothing = Sums(
        sums.differences,
        sums.expected,
        sparse.csr_matrix((0, N)),
        sparse.csr_matrix((200, N)),
        sums.clients,
    )
    found = filtered(blocks(rows, message, share=1.0), nothing, 0.4)
    assert np.allclose(found.noise, np.eye(UNKNOWNS))


def test_records_alike_are_one_unknown():
    rows, message, sums = drawn(3)
    twice = sparse.vstack([sums.differences, sums.differences]).tocsr()
    alike = Sums(twice, sums.expected, sums.suppressed, sums.heldout, sums.clients)
    found = filtered(blocks(rows, message), alike, 0.4)
    assert found.products.shape == (2 * UNKNOWNS, UNKNOWNS)
    assert np.allclose(found.products[:UNKNOWNS], found.products[UNKNOWNS:])
