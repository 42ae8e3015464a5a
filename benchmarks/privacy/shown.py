"""How much epsilon does a game show? A lower bound, from what a test scored in both worlds.

(epsilon, delta)-differential privacy says of every test, at every threshold, that

    TPR <= e^epsilon FPR + delta    and    TNR <= e^epsilon FNR + delta

(Kairouz, Oh and Viswanath 2015). Turned around, scores of many independent games with and without
the record prove that epsilon is at least log((TPR - delta) / FPR). Both rates are replaced by exact
one-sided Clopper-Pearson bounds. Thresholds are chosen on games that are not counted afterwards,
and every threshold tried is paid for (Bonferroni), so that a mechanism that keeps its promise is
accused with a chance of at most 1 - ``confidence``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from overheard.errors import FixData
from overheard.federation.defences.accounting import quiet

Array = NDArray[np.float64]
TAILS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
"""Shares of the games of either world beyond a threshold that is tried."""
FOR_THRESHOLDS = 0.2
"""Share of the games that serve to choose the thresholds."""
LEAST = 100


@dataclass(frozen=True)
class Shown:
    """``epsilon``: no smaller one is compatible with the scores (0: nothing is shown). ``true`` and
    ``false``: the rates, as observed, at the threshold that shows it; ``guess``: what is guessed
    beyond that threshold, that the record is "present" or "absent"."""

    epsilon: float
    true: float
    false: float
    guess: str


def epsilon_shown(absent: Array, present: Array, delta: float, confidence: float = 0.9999) -> Shown:
    """The epsilon that scores of games without and with the record prove (larger: present)."""
    if min(len(absent), len(present)) < LEAST:
        raise FixData(
            f"{len(absent)} games without the record and {len(present)} with it are too few to "
            f"show anything; play at least {LEAST} of each"
        )
    chosen, without = _parted(absent)
    also, with_it = _parted(present)
    tails = np.array(TAILS)
    thresholds = np.unique(
        np.concatenate([np.quantile(chosen, 1 - tails), np.quantile(also, tails)])
    )
    chance = (1 - confidence) / (4 * len(thresholds))
    best = Shown(0.0, 0.0, 0.0, "present")
    for threshold in thresholds:
        for guess, right, wrong in (
            ("present", with_it > threshold, without > threshold),
            ("absent", without <= threshold, with_it <= threshold),
        ):
            least = at_least(int(right.sum()), len(right), chance)
            most = at_most(int(wrong.sum()), len(wrong), chance)
            if least > delta and (shown := log((least - delta) / most)) > best.epsilon:
                best = Shown(shown, float(right.mean()), float(wrong.mean()), guess)
    return best


def at_least(hits: int, games: int, chance: float) -> float:
    """Clopper-Pearson: a rate is below this with at most this chance."""
    return float(beta.ppf(chance, hits, games - hits + 1)) if hits else 0.0


def at_most(hits: int, games: int, chance: float) -> float:
    """Clopper-Pearson: a rate is above this with at most this chance."""
    return float(beta.ppf(1 - chance, hits + 1, games - hits)) if hits < games else 1.0


def _parted(scores: Array) -> tuple[Array, Array]:
    """Games for choosing thresholds, and games that count."""
    first = int(FOR_THRESHOLDS * len(scores))
    return scores[:first], scores[first:]


def tight_sampled_gaussian(noise: float, rate: float, steps: int, delta: float) -> float:
    """What `accounting.sampled_gaussian` counts, by numerical composition of privacy losses: close
    to the smallest epsilon that is true, and slow for many steps."""
    import dp_accounting
    from dp_accounting import pld

    step = dp_accounting.GaussianDpEvent(noise)
    if rate < 1:
        step = dp_accounting.PoissonSampledDpEvent(rate, step)
    with quiet():
        return float(pld.PLDAccountant().compose(step, steps).get_epsilon(delta))
