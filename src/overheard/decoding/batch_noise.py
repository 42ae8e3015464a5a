"""What mini-batch noise gives away about a client's records.

A client that trains on random batches answers with the gradient of the batch, not of all its
records. xu2021 Observations 5 and 6 treat that noise as protection. It is also a measurement:
its covariance is, up to a factor that follows from the training recipe, the covariance of the
per-record gradients, and for least squares and logistic loss that is nearly proportional to
the second moments of the features, hence to the curvature that reconstruction needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LocalRecipe:
    """How the client trains between two messages, as far as the adversary must know it.

    Attributes:
        learning_rate: of plain SGD, for the mean loss of a batch.
        steps: gradient steps between receiving and returning a model. A client that makes E
            passes over m records in batches of B takes E * ceil(m / B) of them.
        batch: records per batch; batches are drawn without replacement within a pass and the
            last batch of a pass is smaller. At least ``records`` means full batch.
        records: number m of the client's records.
    """

    learning_rate: float
    steps: int
    batch: int
    records: int

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0 and min(self.steps, self.batch, self.records) >= 1):
            raise FixConfig(
                f"learning rate {self.learning_rate}, steps {self.steps}, batch {self.batch}, "
                f"records {self.records} given; all must be positive"
            )

    @property
    def full_batch(self) -> bool:
        return self.batch >= self.records


def noise_factor(recipe: LocalRecipe) -> float:
    """The number f for which Cov(D) = f * Cov(per-record gradients), to first order in lr.

    D = lr * sum_i w_i g_i, where w_i sums 1/(size of the batch) over the batches that record i
    was in. Within a pass the records without a batch yet have w_i = 0, and those of the last,
    smaller batch have more than the others; passes are independent. Zero for full batches and
    for whole passes in equal batches, where only second-order noise is left.
    """
    if recipe.full_batch:
        return 0.0
    m, size = recipe.records, recipe.batch
    per_pass = -(-m // size)
    sizes = np.full(per_pass, size)
    sizes[-1] = m - (per_pass - 1) * size

    def spread(batches: int) -> float:
        weights = np.zeros(per_pass)
        weights[:batches] = 1.0 / sizes[:batches]
        mean = batches / m
        return float(m / (m - 1) * np.sum(sizes * (weights - mean) ** 2))

    whole, part = divmod(recipe.steps, per_pass)
    total = whole * spread(per_pass) + (spread(part) if part else 0.0)
    return recipe.learning_rate**2 * total


def trend(rounds: int, degree: int) -> Array:
    """(T, degree + 1) orthonormal polynomials of time: what a smooth training run looks like."""
    time = np.linspace(-1.0, 1.0, rounds)
    degree = min(degree, rounds - 1)
    return np.linalg.qr(np.polynomial.legendre.legvander(time, degree))[0]


def residual_covariance(sent: Array, update: Array, smooth: Array) -> Array:
    """(P, P) covariance of what neither time nor the model sent explains in the updates.

    Regresses the updates on the orthonormal columns ``smooth`` and on the models sent (their
    leading directions, at most a third of the rounds). Unbiased if the update map is affine
    around the trend; otherwise what it misses counts as noise.
    """
    rounds, size = sent.shape
    spread = sent - smooth @ (smooth.T @ sent)
    left = np.linalg.svd(spread, full_matrices=False)[0]
    left = left[:, : _explaining(rounds, size, smooth)]
    rest = update - smooth @ (smooth.T @ update)
    rest = rest - left @ (left.T @ rest)
    return np.asarray(rest.T @ rest / residual_freedom(rounds, size, smooth))


def residual_freedom(rounds: int, size: int, smooth: Array) -> int:
    """Degrees of freedom of `residual_covariance`; below ``size``, it is singular."""
    return max(rounds - int(smooth.shape[1]) - _explaining(rounds, size, smooth), 1)


def _explaining(rounds: int, size: int, smooth: Array) -> int:
    """How many directions of the models sent may explain updates."""
    return min(size, max((rounds - int(smooth.shape[1])) // 3, 1))
