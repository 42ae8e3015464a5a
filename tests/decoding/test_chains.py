"""Sampled posteriors beside those that are listed exhaustively."""

from __future__ import annotations

from itertools import product

import numpy as np

from overheard.decoding.chains import sampled


def drawn(seed, records, candidates, rank, size):
    rng = np.random.default_rng(seed)
    features = size * rng.normal(size=(records, candidates, rank))
    features[:, 0] = 0
    return features, rng.dirichlet(np.full(candidates, 3.0), records), rng


def message(features, state, rng, noise=1.0):
    here = np.arange(len(state))
    return features[here, state].sum(axis=0) + noise * rng.normal(size=features.shape[2])


def test_probabilities_are_those_of_enumeration():
    features, prior, rng = drawn(0, 4, 3, 60, 0.25)
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
    features, prior, rng = drawn(1, 40, 2, 100, 0.4)
    states = [(rng.random(40) < prior[:, 1]).astype(int) for _ in range(12)]
    for noise in (1.0, 3.0):
        heard = np.array([message(features, state, rng, noise) for state in states])
        found, left = sampled(features, prior, heard, rng)
        right = (found.argmax(axis=2) == states).mean()
        assert abs(found.max(axis=2).mean() - right) < 0.08
        assert abs(np.sqrt(left.mean()) - noise) < 0.2 * noise
