"""Very many candidates a record, told in passes of few directions each."""

from __future__ import annotations

import numpy as np

from overheard.decoding.narrowing import narrowed


def combinations(seed: int, people: int, rows: int):
    """Four yes-or-no columns and one of three values, with interactions; shares; secrets."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[[0.0, 1.0]] * 4, [0.0, 1.0, 2.0]), axis=-1).reshape(-1, 5)
    shares = rng.dirichlet(np.full(len(grid), 0.5))
    main = rng.normal(size=(people, 5, rows))
    features = np.einsum("kc,ncr->nkr", grid, main)
    features += 0.3 * rng.normal(size=features.shape)
    secret = rng.choice(len(grid), people, p=shares)
    total = features[np.arange(people), secret].sum(axis=0)
    return (1e3 * features).astype(np.float32), 1e3 * total, np.tile(shares, (people, 1)), secret


def test_passes_narrow_down_to_the_right_combination():
    features, total, prior, secret = combinations(1, 30, 160)
    found = narrowed(features, total, prior)
    assert (found.probabilities.argmax(axis=1) == secret).mean() >= 0.95
    assert (found.rank, found.unknowns) == (160, 30 * 47)


def test_too_few_equations_are_not_believed_beyond_what_they_tell():
    sure, right = [], []
    for seed in range(4):
        features, total, prior, secret = combinations(seed, 40, 30)
        p = narrowed(features, total, prior).probabilities
        sure.append(p.max(axis=1).mean())
        right.append((p.argmax(axis=1) == secret).mean())
    assert abs(np.mean(sure) - np.mean(right)) < 0.1
    assert np.mean(right) < 0.8
