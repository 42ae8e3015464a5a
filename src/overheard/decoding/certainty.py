"""Is an answer that calls itself certain the only one that explains the measurement?

Expectation propagation can settle on a wrong answer and be sure of it. The measurement itself then
knows better: with all other records as decided, the likelihood of each record's other candidates,
and of every pair of records changed together (two alike swapped is the usual mistake), follows
exactly. No record may be surer than that. If some other answer is the likelier one, the answer is
not unique and says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.limits import DECIDED, NEARLY_ALL
from overheard.decoding.max_entropy import Posterior, check_prior
from overheard.decoding.measurement import Measurement

Array = NDArray[np.float64]

NOT_UNIQUE = "not unique: other values explain the updates as well"
MOST_PAIRS = 3000
"""Changes of which all pairs are looked at; above, the most suspect ones."""

_LIKELIER = 0.9  # doubt from which another answer counts as the likelier one


def sober(measurement: Measurement, posterior: Posterior, prior: Any = None) -> Posterior:
    """The posterior, no record surer than the measurement allows, flagged if it is not unique.

    Only answers in which nearly every record is decided can be checked like this; others are
    returned as they are. Cost O(n^2 r) for n = m (K - 1) up to 3,000, O(n r) beyond.
    """
    p = posterior.probabilities
    if not measurement.rank or not len(p) or float((p.max(axis=1) > DECIDED).mean()) < NEARLY_ALL:
        return posterior
    p0 = check_prior(prior, measurement.records, measurement.candidates)
    answer = p.argmax(axis=1)
    record, other = np.nonzero((np.arange(p.shape[1]) != answer[:, None]) & (p0 > 0))
    if not len(record):
        return posterior
    open_records = p.max(axis=1) <= DECIDED
    expected = np.where(open_records[:, None], p, np.eye(p.shape[1])[answer])
    miss = measurement.total - np.tensordot(expected, measurement.features, 2)
    change = measurement.features[record, other] - measurement.features[record, answer[record]]
    with np.errstate(divide="ignore"):
        worth = 2 * (np.log(p0[record, other]) - np.log(p0[record, answer[record]]))
    gain = 2 * (change @ miss) - np.einsum("ij,ij->i", change, change) + worth
    gain = np.where(open_records[record], -np.inf, gain)
    best = _with_partner(record, change, gain)
    doubts = np.zeros_like(p)
    np.maximum.at(doubts, (record, other), _chance(best))
    doubt = doubts.sum(axis=1)
    stated = 1 - p.max(axis=1)
    raised = (doubt > stated) & ~open_records
    if not raised.any():
        return posterior
    doubt = np.minimum(doubt, 0.5)  # the answer stays, at best as likely as the other
    share = doubts / np.maximum(doubts.sum(axis=1, keepdims=True), 1e-300)
    changed = share * doubt[:, None]
    changed[np.arange(len(p)), answer] = 1 - doubt
    flag = NOT_UNIQUE if float(doubts[raised].max(initial=0.0)) >= _LIKELIER else posterior.flag
    return replace(
        posterior, probabilities=np.where(raised[:, None], changed, p), flag=posterior.flag or flag
    )


def _with_partner(record: NDArray[np.intp], change: Array, gain: Array) -> Array:
    """What each change gains (twice the log-likelihood), alone or with the best other change."""
    pick = np.arange(len(record))
    if len(pick) > MOST_PAIRS:
        pick = np.sort(np.argsort(-gain, kind="stable")[:MOST_PAIRS])
    pairs = -2 * (change[pick] @ change[pick].T)
    pairs += gain[pick][:, None] + gain[pick][None, :]
    pairs[record[pick][:, None] == record[pick][None, :]] = -np.inf
    best = gain.copy()
    best[pick] = np.maximum(gain[pick], pairs.max(axis=1))
    return np.asarray(best)


def _chance(gain: Array) -> Array:
    """Probability of the other answer against the one that was given."""
    return np.asarray(1 / (1 + np.exp(np.clip(-gain / 2, -700, 700))))
