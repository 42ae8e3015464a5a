"""Figure 1 in small, on generated wages: runs without any file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.papers.leprovost2023 import run as paper
from overheard.data.dataset import Dataset
from overheard.programs.records import Records

pytestmark = pytest.mark.slow

QUICK = paper.Protocol(train=2000, auxiliary=300, epochs=(0, 2, 5), per_training=8)
EPOCHS = ("0", "2", "5")


def wages(rows: int = 6000, seed: int = 0) -> Dataset:
    """As many inputs as the real table has, and a rare group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(4, rows, p=[0.5, 0.3, 0.14, 0.06])
    age = rng.integers(22, 65, rows).astype(float)
    female = rng.integers(0, 2, rows).astype(float)
    wage = 1.2 + 0.5 * group + 0.25 * (age - 40) / 12 - 0.3 * female
    table = {
        "region": np.array(["north", "south"])[rng.integers(0, 2, rows)],
        "education_group": np.array(["high school", "bachelor", "master", "PhD"])[group],
        "age": age,
        "age_squared": age**2,
        "female": female,
        "earnings": np.maximum(wage + rng.gamma(2.0, 0.7, rows) - 0.5, 0.3),
    }
    return Dataset("wages", Records(table), "region", "earnings", "regression", (), "generated")


@pytest.fixture(scope="module")
def found() -> dict[str, list[Any]]:
    """Every method in two trainings of eight batches."""
    data = wages()
    return {m: [paper.figure1(data, QUICK, m, n) for n in range(2)] for m in paper.METHODS}


def mean(trainings: list[Any], measure: str, epoch: str) -> float:
    return float(np.mean([one[measure][epoch] for one in trainings]))


def test_the_papers_solutions_beat_guessing_and_ours_beats_them(found):
    def error(method: str, epoch: str) -> float:
        return mean(found[method], "error of group means", epoch)

    for epoch in EPOCHS[1:]:
        best = min(error(f"group_means_{name}", epoch) for name in ("pinv", "tikhonov"))
        assert best < error("naive", epoch)
        assert best < error("auxiliary_mean", epoch)
        assert error("bayes_groups", epoch) < 0.8 * best
        assert error(paper.TOGETHER, EPOCHS[-1]) < error("bayes_groups", epoch)


def test_intervals_cover(found):
    shares = [mean(found["bayes_groups"], "95% intervals that cover", e) for e in EPOCHS]
    assert np.mean(shares) >= 0.88  # 16 batches of four groups, three times


@pytest.mark.parametrize("epoch", EPOCHS)
def test_all_forty_labels(found, epoch):
    wide, ordinary = found[paper.DECODE_WIDE], found[paper.DECODE]
    assert max(one["relative error, worst label"][epoch] for one in wide) <= 1e-3
    assert mean(wide, "labels identified of 40", epoch) == 40
    identified = mean(ordinary, "labels identified of 40", epoch)
    assert identified <= mean(ordinary, "records of 40 without a twin", epoch)
