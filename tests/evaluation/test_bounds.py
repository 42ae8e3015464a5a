"""xu2021's bounds, against estimators that do their best."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.batch_noise import LocalRecipe
from overheard.decoding.surrogate import decode_least_squares
from overheard.evaluation.bounds import (
    algorithm3_accuracy_bound,
    algorithm3_bound,
)
from overheard.learning.recipe import Dense, Recipe, Target
from overheard.learning.records import Encoding, Records, Scaled
from overheard.learning.training import local_training, shards
from overheard.randomness import stream

COLUMNS, PEOPLE, BATCH = 4, 60, 10


def smallest_error_with_mini_batches(
    parameters: int,
    learning_rate: float,
    gradient_variance: float,
    steps: int,
    messages: int,
) -> float:
    """xu2021 Observation 6: no estimator of a least-squares client's optimum does better.

    A lower bound on E||theta* - estimate||^2 from ``messages`` rounds of ``steps`` mini-batch
    steps each: 4 d lr^2 sigma^2 / (555 n) (1 - 4^-steps), where E||g - grad||^2 <= sigma^2 =
    ``gradient_variance``. Holds for lr <= m / (4 lambda_max(X'X)).
    """
    shrunk = 1.0 - 0.25**steps
    return 4 * parameters * learning_rate**2 * gradient_variance * shrunk / (555 * messages)


def transcript(seed: int, rounds: int, rate: float):
    """A least-squares client answers random models; its mini-batches are drawn afresh."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(PEOPLE, COLUMNS))
    y = x @ rng.normal(size=COLUMNS) + rng.normal(size=PEOPLE)
    recipe = Recipe(
        model=Dense(inputs=COLUMNS, bias=False),
        loss="squared_error",
        encoding=Encoding(blocks=tuple(Scaled(column=f"x{j}") for j in range(COLUMNS))),
        target=Target(column="y"),
        learning_rate=rate,
        batch_size=BATCH,
        steps=1,
    )
    data = shards([x], [y])
    sent = rng.normal(size=(rounds, COLUMNS))
    back = np.stack(
        [local_training(recipe, t, data, stream(seed, "answer", i))[0] for i, t in enumerate(sent)]
    )
    optimum = np.linalg.lstsq(x, y, rcond=None)[0]
    per_record = 2 * x * (x @ optimum - y)[:, None]
    # the variance of a batch's mean gradient at the optimum, where it is smallest
    variance = per_record.var(axis=0, ddof=1).sum() / BATCH * (1 - BATCH / PEOPLE)
    return sent, back, optimum, variance


def test_no_estimator_beats_observation_6():
    """Neither ordinary least squares nor ours; and the bound is not vacuous (above zero)."""
    rate, rounds = 0.02, 60
    errors = {"affine": [], "structured": []}
    bounds = []
    for seed in range(20):
        sent, back, optimum, variance = transcript(seed, rounds, rate)
        bounds.append(smallest_error_with_mini_batches(COLUMNS, rate, variance, 1, rounds))
        design = np.column_stack([sent, -np.ones(rounds)])
        fit = np.linalg.lstsq(design, sent - back, rcond=None)[0]
        affine = np.linalg.solve(fit[:-1].T, fit[-1])
        errors["affine"].append(np.sum((affine - optimum) ** 2))
        ours = decode_least_squares(sent, back, LocalRecipe(rate, 1, BATCH, PEOPLE))
        errors["structured"].append(np.sum((ours.estimate - optimum) ** 2))
    assert np.mean(bounds) > 0
    for found in errors.values():
        assert np.mean(found) >= np.mean(bounds)


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
