"""Every attack; what is slow by design takes fewer steps: contracts are about what it may see."""

from __future__ import annotations

from typing import Any

from overheard import attacks
from overheard.attacks.papers.driouich2022 import ModelBasedLocal
from overheard.attacks.papers.lyu2021 import CosMatching, Gumbel, L2Lbfgs
from overheard.attacks.papers.xu2021 import LearnedMap

SHORT_MAP = LearnedMap(hidden=50, steps=60, search_steps=60)
QUICK = {
    "learned_map": SHORT_MAP,
    "model_based_local": ModelBasedLocal(SHORT_MAP),
    "l2_lbfgs": L2Lbfgs(last=(0,), iterations=20),
    "cos_matching": CosMatching(phases=("pre1",), temperatures=(1.0,), steps=20),
    "gumbel": Gumbel(last=(0,), steps=20),
}


def attack_named(name: str) -> Any:
    """An attack with quick settings where it has some."""
    return QUICK.get(name) or attacks.attack_named(name)
