"""Rung 3: posterior probabilities that know how the total ties the records together.

Each record's discrete prior is replaced by a Gaussian site, adjusted until the Gaussian posterior
agrees in mean and covariance with "this record discrete, all others Gaussian" (decoders.md section
2, rung 3). Plain expectation propagation can run into confident nonsense when the measurement is
precise in some directions and blind in others. Four safeguards, none of which sees the truth:

1. **Capped precision.** Singular values are lowered to 30 (then 45, 68, ...): more noise in the
   precise directions, which is always safe. Sites start from maximum entropy at the same cap. If
   that leads to no proof (below) the climb is repeated from 60 and from 15; without any proof the
   accepted climbs are averaged, because each errs in its own way.
2. **Checks.** A stage is accepted only if it settled and left a chi-square per equation below 1.5;
   otherwise it is run once more with heavier damping, and then the last accepted stage stands.
3. **Peeling.** Records that are certain (probability above 1 - 1e-4) are set aside as known and
   the rest is reduced again (:meth:`Measurement.given`). Directions that the known records
   dominated are then seen at full precision although the cap is unchanged. That is what lifts the
   result from "most records" to, often, every record.
4. **Proof.** Directions that only the known records moved must show noise and nothing else. If
   they do not, some known value is wrong; the best one or two changes at a time are searched
   exactly (two alike records swapped is the usual mistake), and if no few changes explain the
   total then nothing is set aside.

What is left at the end is listed exhaustively if it is small enough (:mod:`enumeration`). When
every record could be set aside, the answer explains the whole total at full precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.enumeration import MOST_BITS, answer_bits, enumeration
from overheard.decoding.max_entropy import Posterior, check_prior, count_unknowns, max_entropy
from overheard.decoding.measurement import FLOOR, Measurement
from overheard.decoding.ridge import cavities, fits, likely, moment_sites, tilt

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

BUDGET = 6e13
"""Floating-point operations after which no further stage is begun. Stages go on only while they
succeed: three columns of 1,164 people at once, 8,148 unknowns, are all right after a minute; where
the first sweeps do not settle it ends after a few hundred of them."""

_CAPS = (30.0, 60.0, 15.0)  # first caps on the singular values, tried until one leads to a proof
_RAISE = 1.5  # growth of the cap when nothing can be set aside
_WEAK = 0.3  # directions below this many noise units are left out of the sweeps (0.02 bits each)
_DAMPING = (0.5, 0.2)  # first, and where that does not settle
_SWEEPS = (60, 150)  # at most, with either damping
_SETTLED, _STEADY = 1e-2, 0.1  # largest change of a probability: stop, and still acceptable
_GOOD_FIT = 1.5  # chi-square per equation that a stage may leave (more if equations are few)
_KNOWN = 1e-4  # doubt below which a record is set aside
_WORTHWHILE = 0.02  # fraction of the open records that must be certain before they are set aside
_SITE_FLOOR = 1e-2  # smallest eigenvalue of a site's precision: moments may ask for less than none
_MAX_REPAIRS, _MAX_SUSPECTS = 8, 1500  # of a proof: rounds, and changes looked at in one


@dataclass(frozen=True)
class _Stage:
    """One run of sweeps at one cap."""

    probabilities: Array
    chi2: float
    equations: int
    sweeps: int
    accepted: bool


@dataclass(frozen=True)
class _Climb:
    """Stages from one first cap on. Proven: every record known, listed, or not measured at all."""

    probabilities: Array
    chi2_per_equation: float
    sweeps: int
    accepted: bool
    proven: bool


def expectation_propagation(
    measurement: Measurement, prior: Any = None, *, budget: float = BUDGET
) -> Posterior:
    """Posterior marginals by damped, capped, peeling expectation propagation (see the module).

    ``converged`` is False when no first stage passed its checks, or when it would cost more than
    ``budget`` floating-point operations: the probabilities are then those of maximum entropy at
    the first cap and should not be used. ``chi2_per_equation`` is what the accepted stages left,
    each at the precision it worked at. Cost per sweep O(m K r^2 + r^3), 20 to 60 sweeps on all
    records and cheaper ones on what remains.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    caps = [_CAPS[0], *(cap for cap in _CAPS[1:] if _strongest(measurement) > _CAPS[0])]
    climbs: list[_Climb] = []
    for cap in caps:  # each gets its share, or the first would spend all on a hopeless case
        climbs.append(_climb(measurement, p0, cap, budget / len(caps)))
        if climbs[-1].proven:
            break
    # A proof decides. Without one, each accepted climb may be wrong in its own way: average.
    believed = [x for x in climbs if x.proven] or [x for x in climbs if x.accepted] or climbs[:1]
    return Posterior(
        np.mean([x.probabilities for x in believed], axis=0),
        max(x.chi2_per_equation for x in believed),
        measurement.rank,
        count_unknowns(p0),
        sum(x.sweeps for x in climbs),
        believed[0].accepted,
        "expectation_propagation",
    )


def _climb(measurement: Measurement, prior: Array, cap: float, budget: float) -> _Climb:
    """Stages, setting records aside and raising the cap, until nothing is left or one fails."""
    probabilities = prior.copy()
    # Records that the prior already decides are known from the start.
    decided = prior.max(axis=1) == 1.0
    open_records = np.flatnonzero(~decided)
    left = _set_aside(measurement, decided, prior.argmax(axis=1))
    spent, sweeps, accepted, listed = 0.0, 0, False, False
    chi2, equations = 0.0, 0
    while left is not None and left.rank and spent < budget:
        if accepted and answer_bits(prior[open_records]) <= MOST_BITS:
            exact = enumeration(left, prior[open_records])
            listed = exact.converged
            if listed:
                probabilities[open_records] = exact.probabilities
                chi2, equations = exact.chi2_per_equation * left.rank, left.rank
            break
        stage, cost = _stage(left, prior[open_records], cap, budget - spent)
        spent, sweeps = spent + cost, sweeps + stage.sweeps
        if not accepted or stage.accepted:
            probabilities[open_records] = stage.probabilities
        if not stage.accepted:
            break
        accepted = True
        chi2, equations = stage.chi2, stage.equations
        known = 1.0 - stage.probabilities.max(axis=1) < _KNOWN
        if known.sum() >= max(1.0, _WORTHWHILE * known.size):
            proof = _prove(left, known, stage.probabilities.argmax(axis=1))
            if proof is not None:
                answer, rest = proof
                probabilities[open_records[known]] = _settle(stage.probabilities, answer)[known]
                open_records, left = open_records[~known], rest
                continue
        if cap >= _strongest(left):
            break
        cap *= _RAISE
    proven = listed or left is None or not left.rank
    if left is None:
        answer = np.asarray(probabilities.argmax(axis=1), dtype=np.intp)
        mean_square = measurement.chi2_per_equation(np.eye(measurement.candidates)[answer])
    else:
        if not left.rank:  # nothing measured is left about the open records
            probabilities[open_records] = prior[open_records]
            chi2, equations = 0.0, 0
        chi2 += left.spare_chi2 - measurement.spare_chi2
        equations += left.spare_rows - measurement.spare_rows
        mean_square = chi2 / equations if equations else 0.0
    return _Climb(probabilities, mean_square, sweeps, accepted or proven, proven)


def _stage(
    measurement: Measurement, prior: Array, cap: float, budget: float
) -> tuple[_Stage, float]:
    """Sweeps at one cap, gently at first and then with more damping; and what they cost."""
    capped = measurement.capped(cap)
    strong = np.sqrt(np.einsum("ikr,ikr->r", capped.features, capped.features)) > _WEAK
    features = np.ascontiguousarray(capped.features[:, 1:, strong])
    total = capped.total[strong]
    per_sweep = 2.0 * features.size * total.size + float(total.size) ** 3
    start = max_entropy(capped, prior).probabilities
    none = stage = _Stage(start, 0.0, 0, 0, False)
    cost = 20.0 * per_sweep  # the start, roughly
    for damping, most in zip(_DAMPING, _SWEEPS, strict=True):
        if cost + most * per_sweep > max(budget, 0.0):
            break
        stage = _sweeps(features, total, prior, start, damping, most, stage.sweeps)
        cost += stage.sweeps * per_sweep
        if stage.accepted:
            return stage, cost
    return replace(none, sweeps=stage.sweeps), cost


def _sweeps(
    features: Array,
    total: Array,
    prior: Array,
    start: Array,
    damping: float,
    most: int,
    already: int,
) -> _Stage:
    """Parallel updates of all sites until the probabilities settle."""
    precision, shift = moment_sites(np.maximum(start, _KNOWN) * (prior > 0))
    p, change, count = start, np.inf, 0
    while count < most and change > _SETTLED:
        try:
            cavity = cavities(features, total, precision, shift)
        except linalg.LinAlgError:  # a site lost positive definiteness: confident nonsense
            return _Stage(start, np.inf, total.size, already + count, False)
        new = tilt(prior, *cavity)
        change = float(np.abs(new - p).max()) if count else np.inf
        p, count = new, count + 1
        target_precision, target_shift = match(p, *cavity)
        precision = (1.0 - damping) * precision + damping * target_precision
        shift = (1.0 - damping) * shift + damping * target_shift
    residual = total - p[:, 1:].ravel() @ features.reshape(p[:, 1:].size, total.size)
    chi2 = float(residual @ residual)
    good_fit = chi2 <= _GOOD_FIT * total.size or likely(chi2, total.size)
    accepted = change <= _STEADY and good_fit
    return _Stage(p, chi2, total.size, already + count, accepted)


def match(probabilities: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """Sites that give the Gaussian posterior the moments of the tilted distribution.

    Where the cavity is surer than the discrete moments allow, the exact site has a negative
    precision. It is raised to a small positive one, and the mean is kept.
    """
    moments, _ = moment_sites(probabilities)
    site = moments - precision
    if site.shape[1] == 1:
        site = np.maximum(site, _SITE_FLOOR)
    else:
        values, vectors = np.linalg.eigh(site)
        low = values[:, 0] < _SITE_FLOOR
        if low.any():
            raised = vectors[low] * np.maximum(values[low], _SITE_FLOOR)[:, None, :]
            site[low] = raised @ np.swapaxes(vectors[low], 1, 2)
    mean = probabilities[:, 1:, None]
    return site, ((precision + site) @ mean)[:, :, 0] - shift


def _prove(
    measurement: Measurement, known: NDArray[np.bool_], answer: Indices
) -> tuple[Indices, Measurement | None] | None:
    """The answer (repaired if need be) and what remains, or None if the total contradicts it."""
    for attempt in (answer, None):
        if attempt is None:
            attempt = _repair(measurement, known, answer)
            if attempt is None:
                return None
        rest = _set_aside(measurement, known, attempt)
        if rest is None:
            miss = measurement.total - _sum(measurement, known, attempt)
            chi2, equations = float(miss @ miss), measurement.rank
        else:
            chi2 = rest.spare_chi2 - measurement.spare_chi2
            equations = rest.spare_rows - measurement.spare_rows
        if fits(chi2, equations):
            return attempt, rest
    return None


def _repair(measurement: Measurement, known: NDArray[np.bool_], answer: Indices) -> Indices | None:
    """Change one or two known records at a time while that explains the total much better.

    Exact on the directions that only known records move. None if a few changes do not suffice.
    """
    rank = measurement.rank
    blind = np.zeros((0, rank))
    if not known.all():
        opened = measurement.features[~known, 1:].reshape(-1, rank)
        _, singular, right = linalg.svd(opened, full_matrices=False, check_finite=False)
        blind = right[singular > FLOOR]

    def visible(rows: Array) -> Array:
        return np.asarray(rows - (rows @ blind.T) @ blind, dtype=np.float64)

    k = measurement.candidates
    record, other = np.nonzero(known[:, None] & (np.arange(k) != answer[:, None]))
    miss = visible(measurement.total - _sum(measurement, known, answer))
    change = visible(
        measurement.features[record, other] - measurement.features[record, answer[record]]
    )
    size = np.einsum("ij,ij->i", change, change)
    if record.size > _MAX_SUSPECTS:
        score = np.abs(change @ miss) / np.sqrt(np.maximum(size, np.finfo(np.float64).tiny))
        pick = np.sort(np.argsort(-score, kind="stable")[:_MAX_SUSPECTS])
        record, other, change, size = record[pick], other[pick], change[pick], size[pick]
    inner = change @ change.T
    inner[record[:, None] == record[None, :]] = np.inf  # a record changes once
    repaired, usable = answer.copy(), np.ones(record.size, dtype=bool)
    equations = rank - len(blind)
    for _ in range(_MAX_REPAIRS):
        chi2 = float(miss @ miss)
        if fits(chi2, equations):
            return repaired
        gain = np.where(usable, size - 2.0 * (change @ miss), np.inf)
        pairs = gain[:, None] + gain[None, :] + 2.0 * inner
        first = int(gain.argmin())
        one, two = divmod(int(pairs.argmin()), record.size)
        both = float(pairs[one, two])
        chosen = [one, two] if both < float(gain[first]) - 1.0 else [first]
        if min(both, float(gain[first])) > -0.2 * chi2:
            return None
        for index in chosen:
            miss = miss - change[index]
            repaired[record[index]] = other[index]
            usable[record == record[index]] = False
    return repaired if fits(float(miss @ miss), equations) else None


def _settle(probabilities: Array, answer: Indices) -> Array:
    """Probabilities of set-aside records: kept, except where a repair changed the answer."""
    k = probabilities.shape[1]
    repaired = np.where(np.eye(k, dtype=bool)[answer], 1.0 - _KNOWN, _KNOWN / max(k - 1, 1))
    same = probabilities.argmax(axis=1) == answer
    return np.where(same[:, None], probabilities, repaired)


def _set_aside(
    measurement: Measurement, known: NDArray[np.bool_], answer: Indices
) -> Measurement | None:
    """What remains of the measurement; None when nothing does."""
    if known.all():
        return None
    return measurement.given(known, answer) if known.any() else replace(measurement)


def _sum(measurement: Measurement, known: NDArray[np.bool_], answer: Indices) -> Array:
    picked = measurement.features[known, answer[known]]
    return np.asarray(picked.sum(axis=0), dtype=np.float64)


def _strongest(measurement: Measurement) -> float:
    """Largest singular value, below which a higher cap changes nothing."""
    squares = np.einsum("ikr,ikr->r", measurement.features, measurement.features)
    return float(np.sqrt(squares.max(initial=0.0)))
