"""Which decoder should be believed here? decoders.md section 2's rungs, chosen without the truth.

0. **enumeration**, when there are at most 2^22 possible answers: the exact posterior.
1. **ridge**, when the equations reach the unknowns: taken if no record is ambiguous and the
   rounded answer explains the total.
2. **expectation propagation**: plain and at full precision where the equations reach the unknowns
   but noise blurs them all, so that nothing can be proved; otherwise capped and peeling, when its
   own checks pass: it settled, what it left unexplained is noise, and what it calls certain was
   proved against the total.
3. **maximum entropy**, otherwise: one convex problem, always solvable, never more confident than
   the measurement forces it to be.

The order of trial differs from the order of the rungs because the last one is the safe one. Before
any of them the stated noise is checked against the rows that hold nothing else
(:attr:`Measurement.misfit`), and raised if it was understated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.certainty import NOT_UNIQUE, sober
from overheard.decoding.enumeration import MOST_BITS, answer_bits, enumeration
from overheard.decoding.expectation_propagation import BUDGET, expectation_propagation
from overheard.decoding.limits import DECIDED, NEARLY_ALL, SPARE
from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns, max_entropy
from overheard.decoding.measurement import Measurement
from overheard.decoding.noisy import noisy_posterior
from overheard.decoding.ridge import fits, ridge

Array = NDArray[np.float64]

POOR_FIT = "poor fit: no values explain the updates; recipe, model or records may be others"
UNSOLVED = "not solved: the search for the probabilities did not come to rest"

_BLURRED = 300.0  # strongest singular value, in noise units, up to which noise is called large
_RAISED = 4.0  # noise variance that plain sweeps may need, in units of the stated one, to settle
_SECOND_LOOK = 1e10  # floating-point operations a sweep up to which a second start is tried
_SAME = 0.02  # mean distance of two answers that count as one


def decode(measurement: Measurement, prior: Any = None, *, budget: float = BUDGET) -> Posterior:
    """Probabilities of each record's candidates; ``method`` names the rung that was taken.

    prior: None (uniform), (K,) shared or (m, K) per record; zeros mask candidates. budget: the
    floating-point operations that expectation propagation may spend before maximum entropy is
    taken instead. Deterministic. Raises FixData on a prior of the wrong shape or sum.

    ``method`` is "enumeration", "ridge", "expectation_propagation", "max_entropy", or
    "prior" when no equation rises above the noise.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    trusted = believable(measurement)
    found = _climbed(trusted, p0, budget)
    if found.method == "expectation_propagation":
        found = sober(trusted, found, p0)
    if not fits(found.chi2_per_equation * found.rank, found.rank):
        return replace(found, flag=found.flag or POOR_FIT)
    if not found.converged:
        return replace(found, flag=found.flag or UNSOLVED)
    return found


def _climbed(measurement: Measurement, p0: Array, budget: float) -> Posterior:
    """The first rung that holds."""
    unknowns = count_unknowns(p0)
    if not measurement.rank or not unknowns:
        chi2 = measurement.chi2_per_equation(p0)
        return Posterior(p0, chi2, measurement.rank, unknowns, 0, True, "prior")
    if answer_bits(p0) <= MOST_BITS:
        listed = enumeration(measurement, p0)
        if listed.converged:
            return listed
    if measurement.rank >= unknowns:
        exact = ridge(measurement, p0)
        if exact.converged:
            return exact
    rank = measurement.rank
    if rank >= unknowns and _strongest(measurement) <= _BLURRED:
        plain, raised = noisy_posterior(measurement, p0)
        if raised <= _RAISED and plain.method == "expectation_propagation":
            return plain
    correlated = expectation_propagation(measurement, p0, budget=budget)
    if correlated.converged and fits(correlated.chi2_per_equation * rank, rank):
        return _one_of_two(measurement, p0, correlated)
    safe = max_entropy(measurement, p0)
    return replace(safe, iterations=safe.iterations + correlated.iterations)


def _one_of_two(measurement: Measurement, prior: Array, first: Posterior) -> Posterior:
    """The answer, if sweeps from the prior reach it too; otherwise both averaged, and flagged.

    Answers that decide nearly every record are checked against the total instead (`sober`).
    """
    per_sweep = 2.0 * measurement.features.size * measurement.rank
    decided = float((first.confidence > DECIDED).mean())
    if decided >= NEARLY_ALL or per_sweep > _SECOND_LOOK:
        return first
    second, raised = noisy_posterior(measurement, prior)
    if raised > _RAISED or second.method != first.method:
        return first
    apart = float(np.abs(first.probabilities - second.probabilities).max(axis=1).mean())
    if apart <= _SAME:
        return first
    mean = (first.probabilities + second.probabilities) / 2
    return replace(first, probabilities=mean, flag=NOT_UNIQUE)


def believable(measurement: Measurement) -> Measurement:
    """The measurement with its noise raised to what the spare rows show, if that is clearly more.

    "Clearly": five standard errors of the mean square, at least 20 spare rows. Never lowered: rows
    in which nothing varies may be quieter than the rest.
    """
    spare = measurement.spare_rows
    if spare < SPARE:
        return measurement
    misfit = measurement.misfit
    if misfit <= 1.0 + 5.0 * float(np.sqrt(2.0 / spare)):
        return measurement
    return measurement.inflated(float(np.sqrt(misfit)))


def _strongest(measurement: Measurement) -> float:
    squares = np.einsum("ikr,ikr->r", measurement.features, measurement.features)
    return float(np.sqrt(squares.max(initial=0.0)))
