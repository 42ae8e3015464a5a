"""Posterior of discrete records from one noisy sum.

Model, in whitened rows (:mod:`overheard.decoding.measurement`):

    t = sum_i X_i z_i + e,     e ~ N(0, I_r),     z_i in {v_1 .. v_K} with prior pi_i.

The cheapest sufficient method answers (:func:`decode`):

1. **Enumeration**, if the prior allows at most 2^22 answers: the exact posterior.
2. **Expectation propagation.** Each discrete prior is replaced by a Gaussian site. A sweep computes
   every record's cavity, multiplies it with the discrete prior (the tilted distribution) and moves
   the site towards the tilted moments (Minka 2001; parallel updates with damping: Rasmussen and
   Williams 2006, section 3.6). With at least as many equations as unknowns the first cavity may
   already decide everything: one linear solve. Otherwise the sweeps are *annealed*: singular values
   of X are clipped at ``clip``, which grows every sweep, so that no record is decided before those
   correlated with it. Decided records that the total confirms are *conditioned on* and the rest is
   solved again, by enumeration once it is small enough. Where a settled answer leaves more than the
   noise, the noise was understated: its variance is raised to what is left.
3. **Maximum entropy** (:mod:`overheard.decoding.max_entropy`), if the sweeps do not settle.

Fails when records are indistinguishable (only their counts are determined: :mod:`ties` takes the
mean over them), or when the features do not describe the total (``flag``). An answer that decides
nearly every record is checked by flipping records (:func:`flip_check`): no record may be more
certain than the likelihood of the next best answer allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from overheard.decoding.gaussian import cavities, match, moment_sites, tilt
from overheard.decoding.max_entropy import (
    PRECISION,
    Posterior,
    check_prior,
    count_unknowns,
    fits,
    max_entropy,
)
from overheard.decoding.measurement import FLOOR, LEAST_DOF, Measurement

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Choice = NDArray[np.int64]

POOR_FIT = "poor fit: no values explain the updates; recipe, model or records may be others"
UNSOLVED = "not solved: the search for the probabilities did not come to rest"
NOT_UNIQUE = "not unique: other values explain the updates as well"


@dataclass(frozen=True)
class EPOptions:
    """Settings of enumeration, of expectation propagation and of the flip check.

    most_bits: log2 of the number of answers that are enumerated (32 MB a matrix, below a second).
    damping: share of the way that a site moves in a sweep.
    max_sweeps: of one annealing.
    tolerance: mean change of the records' probabilities at which sweeps have settled.
    clip: first cap on the singular values, in noise standard deviations.
    growth: of the cap, a sweep (four times at once where nothing moves).
    decided: doubt below which a record is conditioned on.
    enough: share of decided records from which the cap need not rise further.
    min_precision: of a site.
    max_noise: variance, in units of the stated one, to which noise may be raised.
    budget: floating-point operations that expectation propagation may take. Beyond this, and where
        no noise up to max_noise lets it settle, maximum entropy answers.
    likely, nearly_all: an answer is checked by flips where this share of its records is decided
        with this probability.
    pairs: changes of which all pairs are looked at; above, the most suspect ones.
    likelier: probability of another answer, against the given one, from which it is not unique.
    """

    most_bits: float = 22.0
    damping: float = 0.4
    max_sweeps: int = 200
    tolerance: float = 1e-3
    clip: float = 2.0
    growth: float = 1.12
    decided: float = 1e-4
    enough: float = 0.9
    min_precision: float = 1e-2
    max_noise: float = 1.0
    budget: float = 6e13
    likely: float = 0.99
    nearly_all: float = 0.98
    pairs: int = 2000
    likelier: float = 0.9


DEFAULT = EPOptions()


NOISY = EPOptions(damping=0.25, max_sweeps=80, clip=PRECISION, decided=0.0, max_noise=1e4)
"""For noise that is large and known up to a factor (mini-batches in an unknown order): nothing can
be confirmed, so the sweeps are not annealed and nothing is conditioned on."""


class Sweeps(NamedTuple):
    """One annealing. residual: |t - E[X z]|^2; absorbed: the equations' worth of variance that
    undecided records account for, so that residual + absorbed is about the number of equations."""

    probabilities: Array
    residual: float
    absorbed: float
    sweeps: int
    settled: bool


def decode(
    measurement: Measurement,
    prior: Any = None,
    points: Array | None = None,
    options: EPOptions = DEFAULT,
) -> Posterior:
    """Probabilities of each record's candidates (m, K); ``method`` says what answered.

    prior: None (uniform), (K,) shared or (m, K) per record; zeros exclude candidates. points
    (K, c): where the candidates lie, if every record's features span only c dimensions.
    Deterministic. Raises FixData on a prior of the wrong shape or sum.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    unknowns = count_unknowns(p0)
    if not measurement.rank or not unknowns:
        chi2 = measurement.chi2_per_equation(p0)
        return Posterior(p0, chi2, measurement.rank, unknowns, 0, True, "prior")
    trusted = believable(measurement).capped(PRECISION)
    result = _solved(trusted, p0, points, options)
    if result.method == "expectation_propagation":
        result = flip_check(trusted, result, p0, options)
    if not fits(result.chi2_per_equation * result.rank, result.rank):
        return replace(result, flag=result.flag or POOR_FIT)
    return result if result.converged else replace(result, flag=result.flag or UNSOLVED)


def believable(measurement: Measurement) -> Measurement:
    """The measurement with its noise raised to what the residual rows show, if that is clearly
    more.

    "Clearly": five standard errors of the mean square, at least 20 residual rows. Never lowered:
    rows in which nothing varies may be quieter than the rest.
    """
    dof = measurement.residual_dof
    if dof < LEAST_DOF or measurement.chi2 <= 1.0 + 5.0 * float(np.sqrt(2.0 / dof)):
        return measurement
    return measurement.inflated(float(np.sqrt(measurement.chi2)))


def _solved(
    measurement: Measurement, prior: Array, points: Array | None, options: EPOptions
) -> Posterior:
    """The first method that answers."""
    if answer_bits(prior) <= options.most_bits:
        listed = enumeration(measurement, prior)
        if listed.converged:
            return listed
    whole, sweeps, variance = measurement, 0, 1.0
    affordable = _operations(measurement) * options.max_sweeps / 4 <= options.budget
    while affordable and variance <= options.max_noise:
        result = _conditioned(measurement, prior, points, options)
        sweeps += result.iterations
        if result.converged and not fits(result.chi2_per_equation * result.rank, result.rank):
            break  # the whole total contradicts what its parts confirmed
        if result.converged:
            return replace(result, iterations=sweeps)
        more = max(result.chi2_per_equation, 2.0)
        measurement, variance = measurement.inflated(float(np.sqrt(more))), variance * more
    safe = max_entropy(whole, prior)
    return replace(safe, iterations=safe.iterations + sweeps)


def _operations(measurement: Measurement) -> float:
    """Floating-point operations of one sweep."""
    return 2.0 * measurement.features.size * measurement.rank + float(measurement.rank) ** 3


def _conditioned(
    measurement: Measurement, prior: Array, points: Array | None, options: EPOptions
) -> Posterior:
    """Expectation propagation, again for what is open once decided records are conditioned on."""
    p, free, rest = prior.copy(), np.arange(len(prior)), measurement
    best = p.copy()  # conditioned records as they were decided
    sweeps, settled, budget, flag = 0, False, options.budget, ""
    while rest.rank and budget > 0:
        if settled and answer_bits(prior[free]) <= options.most_bits:
            listed = enumeration(rest, prior[free])
            if listed.converged:
                p[free] = best[free] = listed.probabilities
                flag = ""
                break
        last = sweeps_of(rest, prior[free], points, options)
        sweeps += last.sweeps
        budget -= last.sweeps * _operations(rest)
        if not last.settled or not fits(last.residual, rest.rank):
            break
        settled, p[free], best[free] = True, last.probabilities, last.probabilities
        decided = 1 - last.probabilities.max(axis=1) < options.decided
        answer = last.probabilities.argmax(axis=1)
        known = confirmed(rest, decided, answer) if decided.any() else decided
        flag = NOT_UNIQUE if (decided & ~known).any() else ""
        best[free[known]] = np.eye(measurement.candidates)[answer[known]]
        free = free[~known]
        if not known.any() or not len(free):
            break
        rest = rest.given(known, answer)
    if settled:
        if not rest.rank:
            p[free] = best[free] = prior[free]  # nothing measured is left about these
        mean_square = measurement.chi2_per_equation(best)
    else:
        p, mean_square = last.probabilities, (last.residual + last.absorbed) / measurement.rank
    method, unknowns = "expectation_propagation", count_unknowns(prior)
    return Posterior(p, mean_square, measurement.rank, unknowns, sweeps, settled, method, flag)


def sweeps_of(
    measurement: Measurement, prior: Array, points: Array | None, options: EPOptions
) -> Sweeps:
    """Parallel updates of all sites from the prior, until they rest at full precision."""
    if points is None:
        features = np.ascontiguousarray(measurement.features[:, 1:])
    else:
        features = np.ascontiguousarray(np.linalg.pinv(points) @ measurement.features)
    strength = np.sqrt(np.einsum("mcr,mcr->r", features, features))
    top = float(strength.max())
    clip = min(options.clip, top)
    precision, shift = moment_sites(prior, points)
    p, accepted = prior, None
    for count in range(1, options.max_sweeps + 1):
        weight = np.minimum(1.0, clip / np.maximum(strength, clip))
        rows, total = features * weight, measurement.total * weight
        try:
            cavity = cavities(rows, total, precision, shift)
        except linalg.LinAlgError:
            return Sweeps(p, np.inf, 0.0, count, False)
        new = tilt(prior, *cavity, points)
        change, p = float(np.abs(new - p).max(axis=1).mean()), new
        mean = p[:, 1:] if points is None else p @ points
        miss = total - np.tensordot(mean, rows, 2)
        residual, equations = float(miss @ miss), len(total)
        absorbed = float(np.einsum("mcc->", np.linalg.solve(cavity[0] + precision, cavity[0])))
        doubt = 1 - p.max(axis=1)
        rested = change < options.tolerance and (
            clip >= top or float((doubt < options.decided).mean()) >= options.enough
        )
        if rested and fits(residual, equations):
            return Sweeps(p, residual, absorbed, count, True)
        if clip < top and residual + absorbed <= equations + np.sqrt(2.0 * equations):
            accepted = Sweeps(p, residual, absorbed, count, True)
        if rested:
            break
        site, site_shift = match(p, *cavity, points, options.min_precision)
        precision = (1 - options.damping) * precision + options.damping * site
        shift = (1 - options.damping) * shift + options.damping * site_shift
        clip = min(clip * options.growth ** (4 if change < options.tolerance else 1), top)
    if accepted is None:
        return Sweeps(p, residual, absorbed, count, False)
    return accepted._replace(sweeps=count)


def confirmed(measurement: Measurement, decided: Mask, answer: NDArray[np.intp]) -> Mask:
    """Those of the decided records that the total does not contradict; none if too many are open.

    Directions that only decided records move must show noise and nothing else. While they show
    more, the records are opened again whose other candidates explain most of it. What opened
    records move is no longer looked at, so that the next ones stand out.
    """
    known, rank = decided.copy(), measurement.rank
    record, other = np.nonzero(np.arange(measurement.candidates) != answer[:, None])
    change = measurement.features[record, other] - measurement.features[record, answer[record]]
    while known.any():
        free = measurement.features[~known, 1:].reshape(-1, rank)
        _, singular, right = linalg.svd(free, full_matrices=False, check_finite=False)
        moved = right[singular > FLOOR]
        miss = measurement.total - measurement.features[known, answer[known]].sum(axis=0)
        miss -= (miss @ moved.T) @ moved
        if fits(float(miss @ miss), rank - len(moved)):
            return known
        if known.sum() < decided.sum() and 2 * len(moved) > rank:
            break  # the few equations that are left confirm nothing
        seen = change - (change @ moved.T) @ moved
        size = np.maximum(np.einsum("ij,ij->i", seen, seen), FLOOR**2)
        along = np.where(known[record], np.abs(seen @ miss) / np.sqrt(size), -1.0)
        best = record[np.argsort(-along, kind="stable")]
        best = best[known[best]]
        known[list(dict.fromkeys(best.tolist()))[: 2 + len(known) // 100]] = False
    return np.zeros_like(known)


def flip_check(
    measurement: Measurement, posterior: Posterior, prior: Array, options: EPOptions = DEFAULT
) -> Posterior:
    """The posterior, no record more certain than the likelihood of the next best answer allows.

    With all other records as decided, the likelihood ratio of every other candidate of a record,
    and of two records changed together (a swap is the usual mistake), follows exactly. If another
    answer is the likelier one (its probability against the given one is at least ``likelier``), the
    answer is flagged as not unique. Asked only of answers in which nearly every record is decided.
    Cost O(n^2 r) for n = m (K - 1) up to 2,000, O(n r) beyond.
    """
    p = posterior.probabilities
    answer, rows = p.argmax(axis=1), np.arange(len(p))
    fixed = p.max(axis=1) > options.likely
    asked = (np.arange(p.shape[1]) != answer[:, None]) & (prior > 0) & fixed[:, None]
    record, other = np.nonzero(asked)
    if fixed.mean() < options.nearly_all or not len(record):
        return posterior
    expected = np.where(fixed[:, None], np.eye(p.shape[1])[answer], p)
    miss = measurement.total - np.tensordot(expected, measurement.features, 2)
    change = measurement.features[record, other] - measurement.features[record, answer[record]]
    gain = change @ miss - 0.5 * np.einsum("ij,ij->i", change, change)
    gain += np.log(prior[record, other]) - np.log(prior[record, answer[record]])
    pick = np.argsort(-gain, kind="stable")[: options.pairs]
    pairs = gain[pick][:, None] + gain[pick] - change[pick] @ change[pick].T
    pairs[record[pick][:, None] == record[pick]] = -np.inf
    gain[pick] = np.maximum(gain[pick], pairs.max(axis=1))
    doubts = np.zeros_like(p)
    doubts[record, other] = special.expit(gain)
    doubt = doubts.sum(axis=1)
    raised = fixed & (doubt > 1 - p.max(axis=1))
    if not raised.any():
        return posterior
    checked = doubts * (np.minimum(doubt, 0.5) / np.maximum(doubt, 1e-300))[:, None]
    checked[rows, answer] = 1 - np.minimum(doubt, 0.5)
    unique = float(doubts[raised].max()) < options.likelier
    believed = np.where(raised[:, None], checked, p)
    flag = posterior.flag or ("" if unique else NOT_UNIQUE)
    return replace(posterior, probabilities=believed, flag=flag)


def descended(
    choice: Choice, gram: Array, cross: Array, present: Mask, least: float = 1e-3
) -> Choice:
    """The answer (n,) after the best change of one record, or of two together, again and again
    until none lowers the sum of squares by ``least`` (in units of the noise's variance).

    What was observed is a straight line of the records but for noise, so that no replay is needed
    to say what a change does: the inner products of the columns do.

    gram, cross: inner products of the whitened columns (n (K - 1)) with each other and with what
    the answer leaves. present (K,): candidates that are there at all, whose number is kept.
    """
    n, values, rows = len(choice), len(present), np.arange(len(choice))
    whole = np.zeros((n, values, n, values), np.float32)
    whole[:, 1:, :, 1:] = gram.reshape(n, values - 1, n, values - 1)
    slope = np.column_stack([np.zeros(n), cross.reshape(n, values - 1)])
    for _ in range(n):
        record, other = np.nonzero(np.arange(values) != choice[:, None])
        now = choice[record]
        across = whole[record, other] - whole[record, now]  # (c, n, K)
        both = across[:, record, other] - across[:, record, now]
        alone = 2 * (slope[record, other] - slope[record, now]) - np.diagonal(both)
        more = present[other].astype(int) - present[now]
        pairs = alone[:, None] + alone[None, :] - 2 * both
        same = record[:, None] == record[None, :]
        pairs[same | (more[:, None] + more[None, :] != 0)] = -np.inf
        pairs[np.diag_indices(len(pairs))] = np.where(more == 0, alone, -np.inf)
        best = int(np.argmax(pairs))
        if pairs.flat[best] <= least:
            break
        for one in {best // len(pairs), best % len(pairs)}:
            i, a, b = record[one], now[one], other[one]
            slope -= whole[i, b] - whole[i, a]
            choice = np.where(rows == i, b, choice)
    return choice


def answer_bits(prior: Array) -> float:
    """Log2 of how many answers the prior allows."""
    return float(np.log2((prior > 0).sum(axis=1)).sum())


def enumeration(measurement: Measurement, prior: Any = None) -> Posterior:
    """The exact posterior marginals, for few enough answers (`answer_bits`).

    ``chi2_per_equation`` is that of the best answer, and ``converged`` says whether it explains
    the total: if not, the total belongs to other records or the noise is understated, and the
    probabilities mean little.
    """
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    log_prior = np.log(np.where(p0 > 0, p0, 1.0))
    # Halve by number of answers, not of records: masked candidates cost nothing.
    sizes = np.log((p0 > 0).sum(axis=1))
    half = int(np.searchsorted(np.cumsum(sizes), sizes.sum() / 2, side="left")) + 1
    first, second = np.split(np.arange(len(p0)), [half])
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
    for records, listed, axis in ((first, left, 1), (second, right, 0)):
        mass = weight.sum(axis=axis)
        for record, column in zip(records, listed.T, strict=True):
            probabilities[record] = np.bincount(column, mass, measurement.candidates)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    miss = missing[best[0]] - right_sum[best[1]]
    chi2, rank = float(miss @ miss), measurement.rank
    mean_square, unknowns, explained = chi2 / max(rank, 1), count_unknowns(p0), fits(chi2, rank)
    return Posterior(probabilities, mean_square, rank, unknowns, 1, explained, "enumeration")


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
