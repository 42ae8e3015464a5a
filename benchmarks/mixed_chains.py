"""How far sampled probabilities of who holds a record are from exact ones, and from each other.

    python benchmarks/mixed_chains.py

Ten clients: against summing over all 1,024 sets of them. Fifty clients: two seeds beside each
other. By how much the target itself varies (v) and by the share of a client's variance that lasts
from round to round, on which it depends whether chains get stuck.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.mixed_chains import posterior
from overheard.decoding.mixed_model import (
    Evidence,
    Settings,
    covariances,
    grid_of,
    log_prior,
    log_prior_of_pairs,
)

Array = NDArray[np.float64]
MODEL = Settings(persistent=(0.6, 1.0, 1.3))
WORLDS = 12


def heard(
    rng: np.random.Generator, clients: int, rounds: int, variance: float, lasting: float
) -> Evidence:
    """Rounds of clients that lean the same way, up to four of which hold the record."""
    there = np.zeros((rounds, clients))
    for row in there:
        row[rng.choice(clients, round(0.3 * clients), replace=False)] = 1
    holds = np.isin(np.arange(clients), rng.choice(clients, rng.integers(0, 5), replace=False))
    effect = float(rng.uniform(1, 8))
    common = np.full((rounds, rounds), lasting)
    y = effect * (there @ holds) + there @ (np.sqrt(lasting) * rng.normal(size=clients))
    spread = (1 - lasting) * there.sum(axis=1) + variance * (there @ holds)
    y = y + np.sqrt(spread) * rng.normal(size=rounds)
    flat = np.ones(rounds)
    doubt = 0.16 * (common + (1 - lasting) * np.eye(rounds))
    return Evidence(y, effect * flat, variance * flat, doubt, there, common)


def summed(evidence: Evidence) -> Array:
    """Probabilities by summing over every set and every pair (s, k)."""
    there, pairs = evidence.participation, grid_of(MODEL)
    sets = np.array(list(product((0.0, 1.0), repeat=there.shape[1])))
    common, own = covariances(evidence, pairs)
    came = sets @ there.T
    shift, rounds = evidence.effect * came, np.arange(len(there))
    prior = log_prior(there.shape[1], MODEL)[sets.sum(axis=1).astype(int)]
    joint = []
    for pair, log_pair in enumerate(log_prior_of_pairs(pairs, MODEL)):
        whole = common[pair] + MODEL.gamma_sd**2 * shift[:, :, None] * shift[:, None]
        whole[:, rounds, rounds] += own[pair] + evidence.variance * came
        root = np.linalg.cholesky(whole)
        white = np.linalg.solve(root, (evidence.y - shift)[:, :, None])[:, :, 0]
        halves = np.log(root[:, rounds, rounds]).sum(axis=1)
        joint.append(log_pair + prior - halves - (white**2).sum(axis=1) / 2)
    weight = np.exp(np.array(joint) - np.max(joint)).sum(axis=0)
    return np.asarray(weight @ sets / weight.sum())


def main() -> None:
    print("v      lasting   ten clients, error        fifty clients, two seeds")
    for variance, lasting in product((0.5, 3.0, 10.0, 30.0), (0.3, 0.7)):
        wrong, apart = [], []
        for seed in range(WORLDS):
            rng = np.random.default_rng(seed)
            few = heard(rng, 10, int(rng.integers(5, 40)), variance, lasting)
            found = posterior(few, np.random.default_rng(1), MODEL).probabilities
            wrong.append(float(np.abs(found - summed(few)).max()))
            if seed < WORLDS // 3:
                many = heard(rng, 50, 60, variance, lasting)
                one, two = (posterior(many, np.random.default_rng(s), MODEL) for s in (1, 2))
                apart.append(float(np.abs(one.probabilities - two.probabilities).max()))
        means = [f"mean {np.mean(x):.3f}, most {max(x):.3f}" for x in (wrong, apart)]
        print(f"{variance:<7g}{lasting:<10g}{'   '.join(means)}", flush=True)


if __name__ == "__main__":
    main()
