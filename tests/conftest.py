"""What every test shares: repeatable random streams and a property-test profile."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before anything imports numpy: more threads than cores only wait for each other.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Before anything imports matplotlib: a chart in a test must not look for a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from overheard.data.dataset import Dataset
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.learning.records import Records
from overheard.transcript.store import Recording

# No deadline, because the workers of pytest-xdist share the cores and a slow machine is not a
# bug. The same examples every time, because a red run must be repeatable by whoever reads it.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# To hunt for new examples: pytest --hypothesis-profile=search
settings.register_profile(
    "search", settings.get_profile("repeatable"), derandomize=False, max_examples=2000
)
settings.load_profile("repeatable")


@pytest.fixture
def rng() -> np.random.Generator:
    """A fresh stream per test, so that no test depends on another's draws."""
    return np.random.default_rng(20210501)


@pytest.fixture
def federate(tmp_path: Path) -> Callable[..., Recording]:
    """Record a small federation of generated people: ``federate(rows, model, **training)``.

    Its attribute ``s`` (0 or 1) moves both a public column and the label, so there is something
    to learn; ``change`` may alter the records before training.
    """
    made = itertools.count()

    def record(
        model: dict[str, Any] | None = None,
        change: Callable[[Dataset], Dataset] = lambda dataset: dataset,
        clients: int = 4,
        people: int = 120,
        columns: int = 3,
        seed: int = 0,
        **training: Any,
    ) -> Recording:
        model = {"name": "linear"} if model is None else model
        recipe = {"rounds": 30, "learning_rate": 0.1, "participation": 0.5, **training}
        config = parse_config(
            {"seed": seed, "data": {"source": "file"}, "model": model, "training": recipe}
        )
        classify = model["name"] == "logistic"
        dataset = change(generated_people(clients, people, columns, seed, classify))
        path = simulate(plan(config, dataset), tmp_path / f"run-{next(made)}")
        return Recording.open(path)

    return record


def generated_people(
    clients: int, people: int, columns: int, seed: int, classify: bool = False
) -> Dataset:
    """People of several clients whose attribute leaves traces in the rest."""
    rng = np.random.default_rng(seed)
    rows = clients * people
    s = (rng.random(rows) < 0.4).astype(np.float64)
    x = rng.normal(size=(rows, columns))
    x[:, 0] += 0.8 * s
    y = x @ rng.normal(size=columns) + 1.5 * s + rng.normal(0, 0.7, rows)
    table = {f"x{j}": x[:, j] for j in range(columns)}
    label = (y > np.median(y)).astype(np.float64) if classify else y
    return Dataset(
        name="people",
        records=Records({**table, "s": s, "y": label, "at": np.arange(rows) % clients}),
        client="at",
        target="y",
        task="classification" if classify else "regression",
        sensitive=("s",),
        origin="generated",
        licence="none",
    )
