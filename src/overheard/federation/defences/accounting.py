"""What a federation's noise is worth as differential privacy, by dp-accounting.

Everything is per record: how much may one record of one client, there or not, change what an
eavesdropper of that client hears over all its rounds? Each client is counted as if it took part in
every round, because who takes part is seen. How many records it holds is no secret: a record that
is not there leaves a place that adds nothing. A record whose values are changed is one taken away
and another one put there, which costs more, and is stated beside it: that is the epsilon of who
guesses an attribute.

The arithmetic of the noise is taken to be that of real numbers, not of floating point.

What the recipe publishes is not counted: means and scales that were computed from the records are
exact sums over them, and the promise holds only where they were chosen without looking at the data.
Audits say so (`evaluation.notes`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import exp, inf
from typing import Any

from overheard.errors import FixConfig, needs
from overheard.federation.defences.contract import Claim
from overheard.programs.recipe import Recipe
from overheard.programs.training import sampling_rate

DELTA = 1e-5


def delta_for(records: int, chosen: float | None = None) -> float:
    """The delta of a federation of so many records: the chosen one, or the usual one.

    At 1 / records or above, a promise is kept by publishing a record at random; it is refused.
    """
    if chosen is None:
        return DELTA if DELTA * records < 1 else 0.1 / records
    if not chosen * records < 1:
        raise FixConfig(
            f"delta = {chosen:g} with {records:,} records: who publishes one of them at random "
            f"keeps such a promise; give a delta below 1 / records ({1 / records:.3g}), or none"
        )
    return chosen


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta)-differential privacy of one record, and by which mechanism: ``epsilon`` of
    whether it is there, ``changed`` of what its values are."""

    epsilon: float
    delta: float
    words: str
    changed: float = inf

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; no bound at all is None."""
        return {key: None if value == inf else value for key, value in asdict(self).items()}


def sampled_gaussian(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of ``steps`` Gaussian mechanisms with this noise multiplier, each of which sees a
    record with probability ``rate`` (adding or removing one record)."""
    if noise <= 0:
        return inf
    with quiet():
        return float(_counted(noise, rate, steps).get_epsilon(delta))


def sampled_gaussian_changed(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of the same mechanisms when a record's values are changed.

    Of two bounds the smaller: the record is always seen, and its two gradients lie up to twice the
    clip norm apart; or the record is taken away and another one put there, which is (2 epsilon,
    (1 + e^epsilon) delta').
    """
    whole = sampled_gaussian(noise / 2, 1.0, steps, delta)
    if rate == 1 or noise <= 0:
        return whole
    smaller = delta / 2
    for _ in range(50):
        epsilon = sampled_gaussian(noise, rate, steps, smaller)
        if 2 * epsilon >= whole:
            return whole
        enough = delta * exp(-epsilon) / (1 + exp(-epsilon))
        if smaller <= enough:
            return 2 * epsilon
        smaller = 0.99 * enough
        if smaller == 0.0:
            return whole
    return whole


@lru_cache(maxsize=64)
def _counted(noise: float, rate: float, steps: int) -> Any:
    """The accountant (Renyi's, as in Opacus) after so many steps, which answers for any delta."""
    with needs("dp"):
        import dp_accounting
        from dp_accounting import rdp
    step = dp_accounting.GaussianDpEvent(noise)
    if rate < 1:
        step = dp_accounting.PoissonSampledDpEvent(rate, step)
    return rdp.RdpAccountant().compose(step, steps)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the accountant's warnings of orders that it leaves out: epsilon is the smallest over
    the others, which is still a bound."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def budget(
    claims: tuple[Claim, ...], recipe: Recipe | None, records: int, rounds: int, everybody: int = 0
) -> Budget | None:
    """What the defences of a federation promise a record of a client with so many records.

    ``everybody``: the records of all clients together, 0 if there are no others; delta is below one
    over that, and the same for every defence and client, so that epsilons can be compared.

    ``recipe`` None: clients train no network, and every release is one step that sees all records.
    DP-SGD counts the local steps of all rounds. A clipped update with noise on it counts the
    rounds: whatever one record changes, the update moves by at most twice the clip norm. Where both
    are there, each is a promise of its own, and the smaller epsilon holds. None: nothing is
    promised.
    """
    noisy = [(c.step_noise, c.delta) for c in claims if c.step_noise is not None]
    delta = min(delta_for(everybody or records, chosen) for _, chosen in noisy or [(0.0, None)])
    found: list[Budget] = []
    for multiplier, _ in noisy:
        rate, steps, how = 1.0, rounds, "noisy sums"
        if recipe is not None:
            rate, how = sampling_rate(recipe, records), "DP-SGD"
            steps = recipe.local_steps(records) * rounds
        epsilon = sampled_gaussian(multiplier, rate, steps, delta)
        words = f"{how}: {steps} steps, sampling rate {rate:.3g}, noise {multiplier:g}"
        changed = sampled_gaussian_changed(multiplier, rate, steps, delta)
        found.append(Budget(epsilon, delta, words, changed))
    norms = [c.clip_norm for c in claims if c.clip_norm is not None]
    noise = sum(c.noise_sd**2 for c in claims) ** 0.5
    if norms and noise > 0:
        multiplier = noise / (2 * min(norms))
        epsilon = sampled_gaussian(multiplier, 1.0, rounds, delta)
        words = f"noise on clipped updates: {rounds} rounds, noise multiplier {multiplier:.3g}"
        found.append(Budget(epsilon, delta, words, epsilon))
    return min(found, key=lambda b: b.epsilon, default=None)
