"""What a guesser gets without listening."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from overheard.evaluation import baselines
from overheard.evaluation.baselines import Imputer, imputed_group_means
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Records, Scaled
from overheard.transcript.target import attribute

pytestmark = pytest.mark.slow

VALUES, SECRET = (0.0, 1.0), attribute("s")


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
    found = Imputer(0).values(recipe(), truth, "a", SECRET, VALUES)
    assert found is not None
    assert found.hits.mean() < 0.1


def test_models_are_fitted_once_for_each_fold_of_clients(rng, monkeypatch):
    """Of few clients each is a fold; of many, each has been learned about from other folds."""
    truth = {name: client(rng, 30, flip=0.2) for name in "abc"}
    monkeypatch.setattr(baselines, "_error", lambda *_: 0.0)  # always the linear model
    alone = {name: Imputer(0).values(recipe(), truth, name, SECRET, VALUES) for name in "abc"}
    monkeypatch.setattr(baselines, "FOLDS", 2)
    asked, fitted = Imputer(0), list[int]()
    count: Any = lambda n: fitted.append(n) or threadpool_limits(n)  # noqa: E731
    monkeypatch.setattr(baselines, "threadpool_limits", count)
    found = {name: asked.values(recipe(), truth, name, SECRET, VALUES) for name in "abc"}
    again = Imputer(0, asked.fitted).values(recipe(), truth, "a", SECRET, VALUES)
    np.testing.assert_array_equal(again.log2, found["a"].log2)
    assert fitted == [1] * 4  # two kinds of two folds, one thread each
    without_fold = Imputer(0).values(recipe(), {n: truth[n] for n in "ab"}, "a", SECRET, VALUES)
    np.testing.assert_array_equal(found["a"].log2, without_fold.log2)
    np.testing.assert_array_equal(found["b"].log2, alone["b"].log2)


def test_nobody_to_learn_from(rng):
    alone = {"a": client(rng, 20)}
    assert Imputer(0).values(recipe(), alone, "a", SECRET, VALUES) is None
    assert Imputer(0).label_errors(recipe(), alone, "a") is None
    assert imputed_group_means(recipe(), alone, "a", "s", VALUES) is None
    one_value = Records({"x": np.zeros(9), "s": np.zeros(9), "y": np.arange(9.0)})
    assert Imputer(0).values(recipe(), {**alone, "b": one_value}, "a", SECRET, VALUES) is None


def test_a_secret_that_is_no_input_is_imputed_too(rng):
    truth = {name: client(rng, 60) for name in "ab"}
    truth = {n: Records({**r.columns, "t": (r["x"] > 0.5).astype(float)}) for n, r in truth.items()}
    found = Imputer(0).values(recipe(), truth, "a", attribute("t"), VALUES)
    assert found is not None
    assert found.hits.mean() > 0.95
