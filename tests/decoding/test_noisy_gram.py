"""Who is in a sum, and how heavily, from inner products under noise of roughly known size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overheard.decoding.noisy_gram import Sums, noisy_gram
from overheard.errors import FixData

WEIGHTS = np.array([0.0, 1.0, 2.5])
PRIOR = np.array([0.5, 0.4, 0.1])


def summed(rng: np.random.Generator, n: int, rows: int, scale: float, noise: float = 1.0):
    """Features, true states and the sum's inner products."""
    features = rng.normal(0, scale, (n, rows))
    states = rng.choice(3, size=n, p=PRIOR)
    heard = WEIGHTS[states] @ features + rng.normal(0, noise, rows)
    return (
        features,
        states,
        Sums(features @ features.T, features @ heard, heard @ heard, rows),
        heard,
    )


def test_certain_where_equations_suffice(rng: np.random.Generator) -> None:
    _, states, sums, _ = summed(rng, 60, 200, 2.0)
    found = noisy_gram(sums, WEIGHTS, np.tile(PRIOR, (60, 1)))
    assert found.settled
    assert found.variance < 1.5
    assert np.array_equal(found.probabilities.argmax(axis=1), states)
    assert found.probabilities.max(axis=1).min() > 0.99


def test_close_to_the_exact_posterior(rng: np.random.Generator) -> None:
    """Six records, all 3^6 answers listed."""
    features, _, sums, heard = summed(rng, 6, 40, 0.3)
    answers = np.array(list(itertools.product(range(3), repeat=6)))
    left = heard - WEIGHTS[answers] @ features
    log = np.log(PRIOR)[answers].sum(axis=1) - 0.5 * (left**2).sum(axis=1)
    p = np.exp(log - log.max())
    p /= p.sum()
    exact = np.stack([(p[:, None] * (answers == s)).sum(axis=0) for s in range(3)], axis=1)
    found = noisy_gram(sums, WEIGHTS, np.tile(PRIOR, (6, 1)))
    assert found.variance == pytest.approx(1.0, abs=0.3)
    assert np.abs(found.probabilities - exact).max() < 0.1


def test_understated_noise_is_raised_and_probabilities_stay_calibrated(
    rng: np.random.Generator,
) -> None:
    said, true = [], []
    for _ in range(12):
        _, states, sums, _ = summed(rng, 80, 300, 0.15, noise=4.0)
        found = noisy_gram(sums, WEIGHTS, np.tile(PRIOR, (80, 1)))
        assert 8 < found.variance < 32
        said.append(1 - found.probabilities[:, 0])
        true.append(states > 0)
    said, true = np.concatenate(said), np.concatenate(true)
    bins = np.minimum((said * 5).astype(int), 4)
    gaps = [abs((said - true)[bins == b].sum()) for b in range(5)]
    assert np.sum(gaps) / len(true) < 0.05


def test_nothing_heard_leaves_the_prior(rng: np.random.Generator) -> None:
    features = rng.normal(0, 1e-6, (10, 20))
    heard = rng.normal(size=20)
    sums = Sums(features @ features.T, features @ heard, heard @ heard, 20)
    found = noisy_gram(sums, WEIGHTS, np.tile(PRIOR, (10, 1)))
    assert found.probabilities == pytest.approx(np.tile(PRIOR, (10, 1)), abs=1e-3)


def test_what_does_not_fit_is_refused() -> None:
    sums = Sums(np.eye(3), np.zeros(3), 1.0, 5)
    with pytest.raises(FixData, match="4 records"):
        noisy_gram(sums, WEIGHTS, np.tile(PRIOR, (4, 1)))
    with pytest.raises(FixData, match="of 2 weights"):
        noisy_gram(sums, WEIGHTS[:2], np.tile(PRIOR, (3, 1)))


def test_what_weights_leave_is_the_square_of_the_rest():
    rng = np.random.default_rng(0)
    rows, heard = rng.normal(size=(4, 9)), rng.normal(size=9)
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    sums = Sums(rows @ rows.T, rows @ heard, float(heard @ heard), 9)
    assert sums.left(weights) == pytest.approx(float(((heard - weights @ rows) ** 2).sum()))
