"""What a guesser gets without listening, and what theory promises an attack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.evaluation import baselines
from overheard.evaluation.baselines import Imputer, algorithm3_bound, imputed_group_means
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Records, Scaled

pytestmark = pytest.mark.slow

VALUES = (0.0, 1.0)


def recipe(**changes: Any) -> Recipe:
    usual: dict[str, Any] = {
        "model": Dense(inputs=2),
        "loss": "squared_error",
        "encoding": Encoding(blocks=(Scaled(column="x"), Scaled(column="s"))),
        "target": Target(column="y", shift=1.0, scale=2.0),
        "learning_rate": 0.1,
    }
    return Recipe(**(usual | changes))


def client(rng: Any, people: int, flip: float = 0.0) -> Records:
    """The secret shows in x, except for a share of the people."""
    s = (rng.random(people) < 0.4).astype(float)
    shown = np.where(rng.random(people) < flip, 1 - s, s)
    x = shown + 0.05 * rng.normal(size=people)
    return Records({"x": x, "s": s, "y": 3 * s + 0.1 * rng.normal(size=people)})


def test_imputation_learns_from_the_others_only(rng):
    """The others' x shows the secret, this client's shows its opposite: imputation is fooled."""
    truth = {"a": client(rng, 50, flip=1.0), "b": client(rng, 60), "c": client(rng, 60)}
    truth["a"] = Records({**truth["a"].columns, "y": 3 * (1 - truth["a"]["s"])})
    found = Imputer(0).values(recipe(), truth, "a", "s", VALUES)
    assert found is not None
    assert found.hits.mean() < 0.1


def test_a_model_is_fitted_once_for_each_client_and_its_kind_chosen_once(rng, monkeypatch):
    truth = {name: client(rng, 30, flip=0.2) for name in "abc"}
    asked = Imputer(0)
    chosen: list[int] = []
    better = baselines._better
    monkeypatch.setattr(baselines, "_better", lambda *of: chosen.append(1) or better(*of))
    first = {name: asked.values(recipe(), truth, name, "s", VALUES) for name in "abc"}
    assert len(chosen) == 1
    monkeypatch.setattr(baselines, "_kinds", lambda *_: pytest.fail("it was learned again"))
    again = asked.values(recipe(), truth, "b", "s", VALUES)
    np.testing.assert_array_equal(first["b"].log2, again.log2)
    with pytest.raises(pytest.fail.Exception, match="learned again"):
        asked.values(recipe(), truth, "b", "s", VALUES[::-1])


def test_nobody_to_learn_from(rng):
    alone = {"a": client(rng, 20)}
    assert Imputer(0).values(recipe(), alone, "a", "s", VALUES) is None
    assert Imputer(0).label_errors(recipe(), alone, "a") is None
    assert imputed_group_means(recipe(), alone, "a", "s", VALUES) is None
    one_value = Records({"x": np.zeros(9), "s": np.zeros(9), "y": np.arange(9.0)})
    assert Imputer(0).values(recipe(), {**alone, "b": one_value}, "a", "s", VALUES) is None


def test_a_secret_that_is_no_input_is_imputed_too(rng):
    truth = {name: client(rng, 60) for name in "ab"}
    truth = {n: Records({**r.columns, "t": (r["x"] > 0.5).astype(float)}) for n, r in truth.items()}
    found = Imputer(0).values(recipe(), truth, "a", "t", VALUES)
    assert found is not None
    assert found.hits.mean() > 0.95


def test_proposition_3_of_a_client_by_hand(rng):
    """One full-batch step on two values; nothing is promised of anything else."""
    plain = {"model": Dense(inputs=2, bias=False), "target": Target(column="y")}
    records = client(rng, 50, flip=0.5)
    x = np.column_stack([records["x"], records["s"]])
    fit, left = np.linalg.lstsq(x, records["y"], rcond=None)[:2]
    bound = algorithm3_bound(recipe(**plain), records, "s", (0.0, 1.0))
    assert bound == pytest.approx(1 - 4 * left[0] / 50 / fit[1] ** 2)
    assert algorithm3_bound(recipe(**plain), records, "s", (0.0, 1.0, 2.0)) is None
    assert algorithm3_bound(recipe(**plain), records, "z", (0.0, 1.0)) is None
    for other in ({"epochs": 2}, {"batch_size": 10}):
        assert algorithm3_bound(recipe(**plain, **other), records, "s", (0.0, 1.0)) is None
