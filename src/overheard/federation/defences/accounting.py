"""What a federation's noise is worth as differential privacy, by dp-accounting.

Everything is per record: how much may one record of one client, there or not, change what an
eavesdropper of that client hears over all its rounds? Each client is counted as if it took part in
every round, because who takes part is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Claim, DefenceConfig
from overheard.federation.defences.dp_sgd import DpSgdConfig
from overheard.learning.private import sampling_rate
from overheard.learning.recipe import Recipe

DELTA = 1e-5


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta)-differential privacy of one record, and by which mechanism."""

    epsilon: float
    delta: float
    words: str

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; no bound at all is None."""
        epsilon = None if self.epsilon == inf else self.epsilon
        return {"epsilon": epsilon, "delta": self.delta, "words": self.words}


def sampled_gaussian(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of ``steps`` Gaussian mechanisms with this noise multiplier, each of which sees a
    record with probability ``rate`` (adding or removing one record)."""
    if noise <= 0:
        return inf
    accountant, event = _dp_accounting()
    step = event.GaussianDpEvent(noise)
    if rate < 1:
        step = event.PoissonSampledDpEvent(rate, step)
    counter = accountant.RdpAccountant()
    counter.compose(step, steps)
    return float(counter.get_epsilon(delta))


def budget(
    defences: tuple[DefenceConfig, ...],
    claims: tuple[Claim, ...],
    recipe: Recipe,
    records: int,
    rounds: int,
) -> Budget | None:
    """What the defences of a federation promise a record of a client with so many records.

    DP-SGD counts the local steps of all rounds. A clipped update with noise on it counts the
    rounds: whatever one record changes, the update moves by at most twice the clip norm. Where both
    are there, each is a promise of its own, and the smaller epsilon holds. None: nothing is
    promised.
    """
    found: list[Budget] = []
    for defence in defences:
        if isinstance(defence, DpSgdConfig):
            rate, steps = sampling_rate(recipe, records), recipe.local_steps(records) * rounds
            epsilon = sampled_gaussian(defence.noise, rate, steps, defence.delta)
            words = f"DP-SGD: {steps} steps, sampling rate {rate:.3g}, noise {defence.noise:g}"
            found.append(Budget(epsilon, defence.delta, words))
    norms = [c.clip_norm for c in claims if c.clip_norm is not None]
    noise = sum(c.noise_sd**2 for c in claims) ** 0.5
    if norms and noise > 0:
        multiplier = noise / (2 * min(norms))
        epsilon = sampled_gaussian(multiplier, 1.0, rounds, DELTA)
        words = f"noise on clipped updates: {rounds} rounds, noise multiplier {multiplier:.3g}"
        found.append(Budget(epsilon, DELTA, words))
    return min(found, key=lambda b: b.epsilon, default=None)


def _dp_accounting() -> tuple[Any, Any]:
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError as error:
        raise FixConfig(
            "the privacy accountant is not installed: pip install 'overheard[dp]'"
        ) from error
    return rdp, dp_accounting
