"""Few records: list every answer and weigh it. The exact posterior, no approximation.

Used for small problems, and for what remains when expectation propagation has set the certain
records aside. The records are split in two halves so that the squared residual of every answer
comes from one matrix product: K^m answers cost K^m (r + 1) multiplications and no loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns
from overheard.decoding.measurement import Measurement
from overheard.decoding.ridge import fits
from overheard.errors import FixData

Array = NDArray[np.float64]

MOST_BITS = 22.0
"""Log2 of the largest number of answers that are listed (32 MB per matrix, below a second)."""


def answer_bits(prior: Array) -> float:
    """Log2 of how many answers the prior allows."""
    return float(np.log2((prior > 0).sum(axis=1)).sum())


def enumeration(measurement: Measurement, prior: Any = None) -> Posterior:
    """The exact posterior marginals, for at most 2^22 allowed answers (FixData above).

    ``chi2_per_equation`` is that of the best answer, and ``converged`` says whether it explains
    the total: if not, the total belongs to other records or the noise is understated, and the
    probabilities mean little.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    if answer_bits(p0) > MOST_BITS + 1e-9:
        raise FixData(
            f"2^{answer_bits(p0):.1f} possible answers; at most 2^{MOST_BITS:.0f} are listed: "
            "use decode instead"
        )
    measurement = measurement.capped(PRECISION)
    log_prior = np.log(np.where(p0 > 0, p0, 1.0))
    # Halve by number of answers, not of records: masked candidates cost nothing.
    sizes = np.log((p0 > 0).sum(axis=1))
    half = int(np.searchsorted(np.cumsum(sizes), sizes.sum() / 2, side="left")) + 1
    first, second = np.arange(min(half, len(p0))), np.arange(min(half, len(p0)), len(p0))
    left, left_sum, left_log = _list(measurement.features, p0 > 0, log_prior, first)
    right, right_sum, right_log = _list(measurement.features, p0 > 0, log_prior, second)
    missing = measurement.total - left_sum
    log_weight = missing @ right_sum.T
    log_weight -= 0.5 * np.einsum("ij,ij->i", missing, missing)[:, None]
    log_weight -= 0.5 * np.einsum("ij,ij->i", right_sum, right_sum)
    log_weight += left_log[:, None] + right_log
    best = divmod(int(log_weight.argmax()), log_weight.shape[1])
    weight = np.exp(log_weight - log_weight[best])
    probabilities = np.zeros_like(p0)
    for records, listed, mass in (
        (first, left, weight.sum(axis=1)),
        (second, right, weight.sum(axis=0)),
    ):
        for column, record in enumerate(records):
            probabilities[record] = np.bincount(
                listed[:, column], weights=mass, minlength=measurement.candidates
            )
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    miss = missing[best[0]] - right_sum[best[1]]
    chi2, rank = float(miss @ miss), measurement.rank
    return Posterior(
        probabilities,
        chi2 / rank if rank else 0.0,
        rank,
        count_unknowns(p0),
        1,
        fits(chi2, rank),
        "enumeration",
    )


def _list(
    features: Array, allowed: NDArray[np.bool_], log_prior: Array, records: NDArray[np.intp]
) -> tuple[NDArray[np.intp], Array, Array]:
    """All answers of some records (answers, records), their sums and their log prior."""
    listed = np.zeros((1, 0), dtype=np.intp)
    sums, logs = np.zeros((1, features.shape[2])), np.zeros(1)
    for record in records:
        values = np.flatnonzero(allowed[record])
        column = np.tile(values, len(listed))[:, None]
        listed = np.concatenate([np.repeat(listed, len(values), axis=0), column], axis=1)
        sums = np.repeat(sums, len(values), axis=0) + features[record, column[:, 0]]
        logs = np.repeat(logs, len(values)) + log_prior[record, column[:, 0]]
    return listed, sums, logs
