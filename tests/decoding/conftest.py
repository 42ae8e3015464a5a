"""Slow, obviously right twins of the decoders, shared by the tests of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Enumerated(NamedTuple):
    """Exact posterior by listing all K^m answers."""

    marginals: Array
    best: NDArray[np.intp]


class Problem(NamedTuple):
    """A simulated measurement with its secret."""

    features: Array
    total: Array
    secret: NDArray[np.intp]
    noise: float


def _enumerate(features: Array, total: Array, noise: float, prior: Array) -> Enumerated:
    m, k, _ = features.shape
    answers = np.array(list(itertools.product(range(k), repeat=m)))
    sums = np.zeros((len(answers), total.size))
    log_prior = np.zeros(len(answers))
    with np.errstate(divide="ignore"):
        for i in range(m):
            sums += features[i, answers[:, i]]
            log_prior += np.log(prior[i, answers[:, i]])
    score = log_prior - 0.5 * (((total - sums) / noise) ** 2).sum(axis=1)
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    marginals = np.zeros((m, k))
    for i in range(m):
        marginals[i] = np.bincount(answers[:, i], weights=weight, minlength=k)
    return Enumerated(marginals, answers[int(score.argmax())])


def _simulate(
    seed: int, m: int, k: int, rows: int, noise: float, prior: Array | None = None
) -> Problem:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(m, k, rows))
    p = np.full((m, k), 1.0 / k) if prior is None else np.broadcast_to(prior, (m, k))
    secret = np.array([rng.choice(k, p=row) for row in p])
    total = features[np.arange(m), secret].sum(axis=0) + noise * rng.normal(size=rows)
    return Problem(features, total, secret, noise)


def _calibration_error(probabilities: Array, secret: NDArray[np.intp], bins: int = 10) -> float:
    """Expected calibration error of the guess over equal-width bins of confidence."""
    guess, sure = probabilities.argmax(axis=1), probabilities.max(axis=1)
    right = guess == secret
    edges = np.clip((sure * bins).astype(int), 0, bins - 1)
    gaps = [
        abs(right[edges == b].mean() - sure[edges == b].mean()) * (edges == b).mean()
        for b in range(bins)
        if (edges == b).any()
    ]
    return float(sum(gaps))


@pytest.fixture(scope="session")
def enumerate_posterior() -> Callable[[Array, Array, float, Array], Enumerated]:
    return _enumerate


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Problem]:
    return _simulate


@pytest.fixture(scope="session")
def calibration_error() -> Callable[..., float]:
    return _calibration_error
