"""xu2021's Observations 6 and 7, against estimators that do their best."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.batch_noise import LocalRecipe
from overheard.decoding.surrogate import decode_least_squares
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.programs.training import local_training, shards
from overheard.randomness import stream

COLUMNS, PEOPLE, BATCH = 4, 60, 10


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
        # 4 d lr^2 sigma^2 / (555 n) (1 - 4^-steps), for one step
        bounds.append(4 * COLUMNS * rate**2 * variance * 0.75 / (555 * rounds))
        design = np.column_stack([sent, -np.ones(rounds)])
        fit = np.linalg.lstsq(design, sent - back, rcond=None)[0]
        affine = np.linalg.solve(fit[:-1].T, fit[-1])
        errors["affine"].append(np.sum((affine - optimum) ** 2))
        ours = decode_least_squares(sent, back, LocalRecipe(rate, 1, BATCH, PEOPLE))
        errors["structured"].append(np.sum((ours.estimate - optimum) ** 2))
    assert np.mean(bounds) > 0
    for found in errors.values():
        assert np.mean(found) >= np.mean(bounds)


@pytest.mark.parametrize("seed", range(10))
def test_observation_7_labels_are_no_better_known_than_by_the_local_model(seed):
    """Reflect the labels at the fit: the same messages, and no guess beats the fit on both."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3))
    y = x @ rng.normal(size=3) + rng.normal(size=40)
    fit = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    mirror = 2 * fit - y
    for theta in rng.normal(size=(5, 3)):
        heard, other = (x.T @ (x @ theta - labels) for labels in (y, mirror))
        assert heard == pytest.approx(other, abs=1e-10)
    residual = np.sum((fit - y) ** 2)
    for guess in (fit, y, mirror, fit + rng.normal(size=40)):
        both = np.mean([np.sum((guess - labels) ** 2) for labels in (y, mirror)])
        assert both >= residual - 1e-9
