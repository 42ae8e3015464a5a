"""Rung 3: posterior probabilities that know how the total ties the records together.

Each record's discrete prior is replaced by a Gaussian site, adjusted until the Gaussian posterior
agrees in mean and covariance with "this record discrete, all others Gaussian" (decoders.md section
2, rung 3). Plain expectation propagation can run into confident nonsense when the measurement is
precise in some directions and blind in others. Three safeguards, none of which sees the truth:

1. **Annealing.** Singular values are lowered to 2, and this cap rises a little with every sweep:
   more noise in the precise directions, which is always safe. Sites go on from where they are, so
   that no record is decided before the others that it hangs together with are nearly so. If they
   end in nonsense, which leaves far more than the noise, the last belief that left no more than
   it should is kept.
2. **Peeling.** Once nearly all records are certain (probability above 1 - 1e-4), or nothing moves
   any more at full precision, the certain ones are set aside as known and the rest is reduced
   again (:meth:`Measurement.given`). Directions that the known records dominated are then seen at
   full precision. That is what lifts the result from "most records" to, often, every record.
3. **Proof.** Directions that only the known records moved must show noise and nothing else. If
   they do not, some known value is wrong: records whose other values go best with what is left
   are opened again, a few at a time, until the others leave noise only.

Of records that are alike in everything only counts are told, and sweeps that move them together
swing: they stay Gaussian. What is left at the end is listed exhaustively if it is small enough
(:mod:`enumeration`). When every record could be set aside, the answer explains the whole total at
full precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.certainty import NOT_UNIQUE
from overheard.decoding.enumeration import MOST_BITS, answer_bits, enumeration
from overheard.decoding.max_entropy import PRECISION, Posterior, check_prior, count_unknowns
from overheard.decoding.measurement import FLOOR, Measurement
from overheard.decoding.ridge import cavities, fits, moment_sites, tilt

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

BUDGET = 6e13
"""Floating-point operations after which no further sweep is begun: a few minutes."""

_NEARLY = 0.9  # equations per unknown from which a linear solve may do: no annealing at first
FIRST_CAP = 2.0  # on the singular values: one record is then hardly seen above the noise
RAISE = 1.12  # growth of the cap a sweep; four times at once where nothing moves
_WEAK = 0.3  # directions below this many noise units are left out of the sweeps (0.02 bits each)
DAMPING = 0.4  # half a step already swings where two records are nearly alike
_SWEEPS = 200  # at most: 35 from the first cap to 100, the others for what comes to rest slowly
_SETTLED = 1e-3  # mean change of the records' probabilities at which sweeps stop
_ENOUGH = 0.9  # share of the open records that must be certain before the cap has to rise no more
_NONSENSE = 5.0  # chi-square per equation from which sweeps do not come back
_KNOWN = 1e-4  # doubt below which a record is set aside
_SURE = 1e-6  # least probability in a site's moments: below, float64 loses the other candidates'
SITE_FLOOR = 1e-2  # smallest eigenvalue of a site's precision: moments may ask for less than none
_SUSPECTS = 1500  # changes of which a proof looks at all pairs: a second


@dataclass(frozen=True)
class _Stage:
    """One annealing of the sweeps."""

    probabilities: Array
    chi2: float
    equations: int
    sweeps: int
    accepted: bool


def expectation_propagation(
    measurement: Measurement, prior: Any = None, *, budget: float = BUDGET
) -> Posterior:
    """Posterior marginals by annealed, peeling expectation propagation (see the module).

    ``converged`` is False when the first annealing did not come to rest or fit, or when it would
    cost more than ``budget`` floating-point operations: the probabilities should then not be used.
    ``chi2_per_equation`` is what the accepted stages left, each at the precision it worked at.
    Cost per sweep O(m K r^2 + r^3), some tens of sweeps on all records and cheaper ones on what
    remains.
    """
    prior = check_prior(prior, measurement.records, measurement.candidates)
    probabilities = prior.copy()
    # Records that the prior already decides are known from the start.
    decided = prior.max(axis=1) == 1.0
    open_records = np.flatnonzero(~decided)
    left = _set_aside(measurement, decided, prior.argmax(axis=1))
    sweeps, accepted, chi2, equations, flag = 0, False, 0.0, 0, ""
    while left is not None and left.rank:
        if accepted and answer_bits(prior[open_records]) <= MOST_BITS:
            exact = enumeration(left, prior[open_records])
            if exact.converged:
                probabilities[open_records] = exact.probabilities
                chi2, equations = exact.chi2_per_equation * left.rank, left.rank
                flag = ""
            break
        solvable = left.rank >= _NEARLY * count_unknowns(prior[open_records])
        for cap in (PRECISION, FIRST_CAP)[not solvable :]:
            stage, cost = _annealed(left, prior[open_records], budget, cap)
            budget, sweeps = budget - cost, sweeps + stage.sweeps
            if stage.accepted:
                break
        if not accepted or stage.accepted:
            probabilities[open_records] = stage.probabilities
        if not stage.accepted:
            break
        accepted, chi2, equations = True, stage.chi2, stage.equations
        answer = stage.probabilities.argmax(axis=1)
        sure = 1.0 - stage.probabilities.max(axis=1) < _KNOWN
        known = _proven(left, sure, answer)
        flag = NOT_UNIQUE if (sure & ~known).any() else ""
        if not known.any():
            break
        open_records, left = open_records[~known], _set_aside(left, known, answer)
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
    return Posterior(
        probabilities,
        mean_square,
        measurement.rank,
        count_unknowns(prior),
        sweeps,
        accepted or left is None or not left.rank,
        "expectation_propagation",
        flag,
    )


def _annealed(
    measurement: Measurement, prior: Array, budget: float, cap: float
) -> tuple[_Stage, float]:
    """Parallel updates of all sites under a cap that rises, until they rest; and what they cost."""
    top = min(_strongest(measurement), PRECISION)
    cap = min(cap, top)
    tied = _alike(measurement, prior)
    precision, shift = moment_sites(prior)
    p, cost = prior, 0.0
    kept = _Stage(prior, np.inf, 0, 0, False)
    for count in range(1, _SWEEPS + 1):
        capped = measurement.capped(cap)
        strong = np.sqrt(np.einsum("ikr,ikr->r", capped.features, capped.features)) > _WEAK
        features = np.ascontiguousarray(capped.features[:, 1:, strong])
        total = capped.total[strong]
        cost += 2.0 * features.size * total.size + float(total.size) ** 3
        if cost > budget:
            break
        try:
            cavity = cavities(features, total, precision, shift)
        except linalg.LinAlgError:  # a site lost positive definiteness
            break
        new = tilt(prior, *cavity)
        new[tied] = _shares(cavity[0][tied] + precision[tied], cavity[1][tied] + shift[tied])
        change, p = float(np.abs(new - p).max(axis=1).mean()), new
        miss = total - p[:, 1:].ravel() @ features.reshape(p[:, 1:].size, total.size)
        chi2 = float(miss @ miss)
        enough = float((1.0 - p.max(axis=1) < _KNOWN).mean()) >= _ENOUGH
        settled = change <= _SETTLED and (cap >= top or enough)
        # under noise as assumed, what is left and what open records took up are one an equation
        taken = np.linalg.solve(cavity[0] + precision, cavity[0])
        shown = chi2 + float(np.einsum("nkk->", taken))
        if shown <= total.size + np.sqrt(2.0 * total.size) or (settled and fits(chi2, total.size)):
            kept = _Stage(p, chi2, total.size, count, True)
        if settled or chi2 > _NONSENSE * total.size:
            break
        cap = min(cap * (RAISE**4 if change <= _SETTLED else RAISE), top)
        site, site_shift = match(p, *cavity)
        site[tied], site_shift[tied] = precision[tied], shift[tied]
        precision = (1.0 - DAMPING) * precision + DAMPING * site
        shift = (1.0 - DAMPING) * shift + DAMPING * site_shift
    return replace(kept, sweeps=count), cost


def _alike(measurement: Measurement, prior: Array) -> NDArray[np.bool_]:
    """Which records equal another one in everything (m,), by one number for each."""
    rows = measurement.features.reshape(measurement.records, -1)
    key = rows @ np.cos(np.arange(rows.shape[1]))
    key = np.round(key / max(float(np.abs(key).max()), 1e-300), 9)
    table = np.column_stack([key, prior])
    _, group, sizes = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(sizes[group.ravel()] > 1)


def _shares(precision: Array, shift: Array) -> Array:
    """The means of Gaussians over indicators, as probabilities."""
    mean = np.linalg.solve(precision, shift[:, :, None])[:, :, 0]
    p = np.maximum(np.column_stack([1.0 - mean.sum(axis=1), mean]), 0.0)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def match(probabilities: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """Sites that give the Gaussian posterior the moments of the tilted distribution.

    Where the cavity is surer than the discrete moments allow, the exact site has a negative
    precision. It is raised to a small positive one, and the mean is kept.
    """
    p = np.maximum(probabilities, _SURE)
    p = p / p.sum(axis=1, keepdims=True)
    site = moment_sites(p)[0] - precision
    if site.shape[1] == 1:
        site = np.maximum(site, SITE_FLOOR)
    else:
        values, vectors = np.linalg.eigh(site)
        low = values[:, 0] < SITE_FLOOR
        if low.any():
            raised = vectors[low] * np.maximum(values[low], SITE_FLOOR)[:, None, :]
            site[low] = raised @ np.swapaxes(vectors[low], 1, 2)
    mean = p[:, 1:, None]
    return site, ((precision + site) @ mean)[:, :, 0] - shift


def _proven(
    measurement: Measurement, known: NDArray[np.bool_], answer: Indices
) -> NDArray[np.bool_]:
    """Those of the known records that the total does not contradict; none if it takes too many.

    While directions that only they move show more than noise, those are opened again whose other
    candidates go best with what is left. What opened records move is no longer looked at, so that
    the next ones stand out.
    """
    record, other = np.nonzero(np.arange(measurement.candidates) != answer[:, None])
    change = measurement.features[record, other] - measurement.features[record, answer[record]]
    known, first = known.copy(), True
    while known.any():
        opened = measurement.features[~known, 1:].reshape(-1, measurement.rank)
        _, singular, right = linalg.svd(opened, full_matrices=False, check_finite=False)
        blind = right[singular > FLOOR]
        miss = measurement.total - measurement.features[known, answer[known]].sum(axis=0)
        miss -= (miss @ blind.T) @ blind
        if not first and 2 * len(blind) > measurement.rank:  # fewer equations prove nothing
            break
        if fits(float(miss @ miss), measurement.rank - len(blind)):
            return known
        free = np.flatnonzero(known[record])
        seen = change[free] - (change[free] @ blind.T) @ blind
        along, size = seen @ miss, np.maximum(np.einsum("ij,ij->i", seen, seen), FLOOR**2)
        best = np.argsort(-np.abs(along) / np.sqrt(size), kind="stable")[:_SUSPECTS]
        who, along, size, seen = record[free[best]], along[best], size[best], seen[best]
        # two alike with each other's values leave what neither by itself explains
        both = np.maximum(size[:, None] + size + 2 * seen @ seen.T, FLOOR**2)
        both[who[:, None] == who] = np.inf
        pair = np.argmax((along[:, None] + along) ** 2 / both)
        suspects = list(dict.fromkeys(who.tolist()))[: 1 + len(known) // 100]
        known[[*suspects, *who[list(divmod(int(pair), len(who)))]]], first = False, False
    return np.zeros_like(known)


def _set_aside(
    measurement: Measurement, known: NDArray[np.bool_], answer: Indices
) -> Measurement | None:
    """What remains of the measurement; None when nothing does."""
    if known.all():
        return None
    return measurement.given(known, answer) if known.any() else replace(measurement)


def _strongest(measurement: Measurement) -> float:
    """Largest singular value, below which a higher cap changes nothing."""
    squares = np.einsum("ikr,ikr->r", measurement.features, measurement.features)
    return float(np.sqrt(squares.max(initial=0.0)))
