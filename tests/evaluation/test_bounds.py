"""driouich2022's Proposition 3, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.evaluation.baselines import algorithm3_accuracy_bound, algorithm3_bound
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Records, Scaled


def test_proposition_3_by_hand():
    """max(|1 - 2 rho|, 1 - 4 MSE / theta_s^2), never below zero."""
    assert algorithm3_accuracy_bound(0.02, 1.0, 0.5) == pytest.approx(0.92)
    assert algorithm3_accuracy_bound(0.08, 2.0, 0.5) == pytest.approx(0.92)
    assert algorithm3_accuracy_bound(1.0, 1.0, 0.1) == pytest.approx(0.8)
    assert algorithm3_accuracy_bound(1.0, 0.0, 0.5) == 0.0


def linear_client(**training: object) -> tuple[Recipe, Records]:
    rng = np.random.default_rng(2)
    columns = {"x": rng.normal(size=50), "s": (rng.random(50) < 0.4).astype(np.float64)}
    columns["y"] = 2 * columns["x"] + 3 * columns["s"] + 0.1 * rng.normal(size=50)
    recipe = Recipe(
        model=Dense(inputs=2, bias=False),
        loss="squared_error",
        encoding=Encoding(blocks=(Scaled(column="x"), Scaled(column="s"))),
        target=Target(column="y"),
        learning_rate=0.1,
        **training,
    )
    return recipe, Records(columns)


def test_proposition_3_of_a_client_by_hand():
    """One full-batch step on two values; nothing is promised of anything else."""
    recipe, records = linear_client()
    x = np.column_stack([records["x"], records["s"]])
    fit, left = np.linalg.lstsq(x, records["y"], rcond=None)[:2]
    bound = algorithm3_bound(recipe, records, "s", (0.0, 1.0))
    assert bound == pytest.approx(1 - 4 * left[0] / 50 / fit[1] ** 2)
    assert algorithm3_bound(recipe, records, "s", (0.0, 1.0, 2.0)) is None
    assert algorithm3_bound(recipe, records, "z", (0.0, 1.0)) is None
    for other in ({"epochs": 2}, {"batch_size": 10}):
        assert algorithm3_bound(linear_client(**other)[0], records, "s", (0.0, 1.0)) is None
