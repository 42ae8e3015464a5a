"""What may each record be, of a list, given the sum of all? Sampled, one record at a time.

A Gibbs step costs one product with the residual. The evidence is let in slowly, so that no record
is decided before the others are nearly so (simulated annealing).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SWEEPS = 80
"""While the evidence is let in, and again as many that are averaged: three times as many change
accuracy and confidence by less than a point."""


def sampled(
    features: Array, prior: Array, messages: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Posterior probabilities (q, m, A) of the candidates of each record, a chain for each of the
    messages (q, r), and what each leaves in units of the noise (q,).

    features: (m, A, r), in units of the noise; prior: (m, A).
    """
    records, many, rank = features.shape
    features, chains = features.astype(np.float32), len(messages)
    lengths = np.einsum("iar,iar->ia", features, features) / 2
    before = np.log(np.maximum(prior, 1e-300))
    state = np.asarray([choose(prior.T, rng) for _ in messages])
    left = messages.astype(np.float32).T.copy()
    for i in range(records):
        left -= features[i, state[:, i]].T
    found, energy = np.zeros((chains, records, many)), np.zeros(chains)
    for sweep in range(2 * SWEEPS):
        # a client's own noise may be larger: no less than what its chain leaves
        noise = np.maximum(np.einsum("rq,rq->q", left, left) / max(rank, 1), 1.0)
        # from a fiftieth, where a record is hardly seen above the prior
        weight = min(1.0, 0.02 ** (1 - sweep / (0.7 * SWEEPS))) / noise
        for i in rng.permutation(records):
            left += features[i, state[:, i]].T
            logits = before[i][:, None] + weight * (features[i] @ left - lengths[i][:, None])
            p = np.exp(logits - logits.max(axis=0))
            p /= p.sum(axis=0)
            if sweep >= SWEEPS:
                found[:, i] += p.T
            state[:, i] = choose(p, rng)
            left -= features[i, state[:, i]].T
        if sweep >= SWEEPS:
            energy += np.einsum("rq,rq->q", left, left)
    return found / SWEEPS, energy / (SWEEPS * max(rank, 1))


def choose(chances: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """One choice of each column (A, n), by its probabilities."""
    below = chances.cumsum(axis=0) > rng.random(chances.shape[1]) * chances.sum(axis=0)
    return np.asarray(below.argmax(axis=0))
