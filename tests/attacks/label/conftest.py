"""Small federations that ask about labels, and views of their clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import simulated

from overheard.data.dataset import Dataset
from overheard.programs.records import Records
from overheard.transcript.store import Recording

GROUPS = ("high school", "bachelor", "master", "PhD")


def employees(clients: int, people: int, outside: int, seed: int = 0) -> Dataset:
    """Wages that depend on education, age and sex; ``outside`` rows more than the firms keep."""
    rng = np.random.default_rng(seed)
    rows = clients * people + outside
    group = rng.choice(4, rows, p=[0.35, 0.3, 0.2, 0.15])
    age, female = rng.uniform(22, 65, rows), rng.integers(0, 2, rows).astype(float)
    skill = rng.normal(size=rows)
    wage = 1.5 + 0.5 * group + 0.2 * (age - 40) / 10 - 0.3 * female + 0.3 * skill
    wage = wage + rng.gamma(2.0, 0.25, rows) * (1 + 0.3 * group)
    table = {
        "diploma": np.array(GROUPS)[group],
        "age": age,
        "female": female,
        "skill": skill,
        "wage": wage,
        "firm": np.array([f"firm {c}" for c in np.arange(rows) % clients]),
    }
    return Dataset("wages", Records(table), "firm", "wage", "regression", (), "generated")


@pytest.fixture
def hire(tmp_path: Path) -> Callable[..., Recording]:
    """Record a federation of firms whose labels are asked about."""
    made = itertools.count()

    def record(
        clients: int = 4,
        people: int = 40,
        outside: int = 400,
        hidden: tuple[int, ...] = (48,),
        group: str = "diploma",
        change: Callable[[Dataset], Dataset] = lambda dataset: dataset,
        seed: int = 0,
        **training: Any,
    ) -> Recording:
        # the config's auxiliary draw is random over all rows: sizes differ a little between firms
        audit: dict[str, Any] = {"attributes": [], "label": True, "group": group}
        usual = {"algorithm": "fedsgd", "rounds": 1, "learning_rate": 0.05}
        config = {
            "seed": seed,
            "data": {"source": "file"},
            "model": {"name": "mlp", "hidden": list(hidden)} if hidden else {"name": "linear"},
            "training": usual | training,
            "audit": audit | {"auxiliary": outside},
        }
        dataset = change(employees(clients, people, outside, seed))
        return simulated(tmp_path / f"run-{next(made)}", config, dataset)

    return record
