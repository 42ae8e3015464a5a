"""Slow, obviously right twins of the decoders, and the measurements that they are tried on."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.measurement import Measurement

Array = NDArray[np.float64]


class Problem(NamedTuple):
    """A simulated measurement with its secret."""

    features: Array
    total: Array
    secret: NDArray[np.intp]
    noise: float


def enumerated(features: Array, total: Array, noise: float, prior: Array) -> Array:
    """Exact marginals (m, K) of the posterior by listing all K^m answers."""
    m, k, _ = features.shape
    answers = np.array(list(itertools.product(range(k), repeat=m)))
    sums = features[np.arange(m), answers].sum(axis=1)
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior[np.arange(m), answers]).sum(axis=1)
    score = log_prior - 0.5 * (((total - sums) / noise) ** 2).sum(axis=1)
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    marginals = np.zeros((m, k))
    for i in range(m):
        marginals[i] = np.bincount(answers[:, i], weights=weight, minlength=k)
    return marginals


def simulate(
    seed: int, m: int, k: int, rows: int, noise: float, prior: Array | None = None
) -> Problem:
    """Gaussian rows, a secret drawn from the prior, and the sum that it leaves."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(m, k, rows))
    p = np.full((m, k), 1.0 / k) if prior is None else np.broadcast_to(prior, (m, k))
    secret = np.array([rng.choice(k, p=row) for row in p])
    total = features[np.arange(m), secret].sum(axis=0) + noise * rng.normal(size=rows)
    return Problem(features, total, secret, noise)


def score(measurement: Measurement, answer: NDArray[np.int64]) -> float:
    """The whitened squared residual of an answer, spare rows included."""
    picked = measurement.features[np.arange(measurement.records), answer].sum(axis=0)
    return float(((measurement.total - picked) ** 2).sum()) + measurement.residual_ss


def crooked(rng: np.random.Generator, rows: int, columns: int, singular: Array) -> Array:
    """A matrix with these singular values."""
    left = np.linalg.qr(rng.normal(size=(rows, rows)))[0]
    right = np.linalg.qr(rng.normal(size=(columns, rows)))[0]
    return np.asarray((left * singular) @ right.T)


def calibration_error(probabilities: Array, secret: NDArray[np.intp], bins: int = 10) -> float:
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
