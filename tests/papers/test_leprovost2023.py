"""Figure 1 in small, on generated wages: runs without any file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from overheard.data.dataset import Dataset
from overheard.errors import FixData
from overheard.programs.records import Records
from papers.common.catalogue import experiment_named
from papers.common.rows import Reproduction, write_reproduction
from papers.leprovost2023 import run as paper

pytestmark = pytest.mark.slow

QUICK = paper.Protocol(train=2000, auxiliary=300, epochs=(0, 2, 5), per_training=8)  # type: ignore[attr-defined]
PLOTTED = ("epoch 2", "epoch 5")


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
    return Dataset(
        "wages", Records(table), "region", "earnings", "regression", (), "generated", "none"
    )


@pytest.fixture(scope="module")
def outcome() -> Reproduction:
    return Reproduction(paper.figure1(wages(), QUICK, 16), "generated")


def value(outcome: Reproduction, method: str, setting: str, measure: str = paper.ERROR) -> float:  # type: ignore[attr-defined]
    (row,) = [
        r for r in outcome.rows
        if (r.method, r.setting, r.measure) == (method, setting, measure)
    ]  # fmt: skip
    return row.measured


@pytest.mark.parametrize("setting", PLOTTED)
def test_the_papers_solutions_beat_guessing_and_ours_beats_them(
    outcome: Reproduction, setting: str
) -> None:
    paper_best = min(
        value(outcome, f"group_means_{name}", setting) for name in ("pinv", "tikhonov")
    )
    assert paper_best < value(outcome, "naive", setting)
    assert paper_best < value(outcome, "auxiliary_mean", setting)
    assert value(outcome, "bayes_groups", setting) < 0.8 * paper_best  # 16 batches; see papers/
    together = value(outcome, "bayes_groups, all these epochs together", "all epochs")
    assert together < value(outcome, "bayes_groups", setting)


def test_intervals_cover(outcome: Reproduction) -> None:
    shares = [value(outcome, "bayes_groups", s, paper.COVERAGE) for s in ("epoch 0", *PLOTTED)]
    assert np.mean(shares) >= 0.88  # 16 batches of four groups, three times


@pytest.mark.parametrize("setting", ["epoch 0", *PLOTTED])
def test_all_forty_labels(outcome: Reproduction, setting: str) -> None:
    assert value(outcome, paper.NO_TWINS, setting, paper.WORST) <= 1e-3
    assert value(outcome, paper.NO_TWINS, setting, paper.SURE) == 40
    ordinary = value(outcome, "linear_decode", setting, paper.SURE)
    assert ordinary <= value(outcome, "linear_decode", setting, paper.ALONE)


def test_the_same_numbers_again_and_a_picture(tmp_path: Path) -> None:
    small = paper.Protocol(train=200, auxiliary=120, epochs=(0, 1), per_training=2)  # type: ignore[attr-defined]
    first, second = (paper.figure1(wages(), small, 2) for _ in range(2))
    assert [r.measured for r in first] == [r.measured for r in second]
    experiment = experiment_named("leprovost2023-fig1")
    outcome = Reproduction(first, "generated", name=experiment.name)
    table, picture = write_reproduction(experiment, outcome, tmp_path)
    assert "bayes_groups" in table.read_text()
    assert picture.read_text().startswith("<?xml")


def test_without_the_data_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OVERHEARD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FixData, match="python -m papers fetch wages"):
        experiment_named("leprovost2023-fig1").run(True, 10, lambda what, done, total: None)
