"""What cannot be trained or audited is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import planned

from overheard.errors import FixConfig, FixData
from overheard.programs.records import OneHot, Scaled, encode

Settings = Callable[..., dict[str, Any]]
TWO_CLIENTS = "at,x,s,y\na,1,0,1\na,2,1,2\nb,3,0,4\nb,5,1,3\n"


def test_a_plan_settles_encoding_and_model(settings_for: Settings) -> None:
    ready = planned(settings_for(audit={"attributes": ["s", "job"]}))
    age, job, s = ready.recipe.encoding.blocks
    assert isinstance(age, Scaled)
    assert isinstance(job, OneHot)
    assert s == Scaled(column="s")  # zeros and ones stay as they are
    assert job.values == ("cook", "nurse", "smith")
    values = {name: domain.values for name, domain in ready.attributes.items()}
    assert values == {"s": (0.0, 1.0), "job": ("cook", "nurse", "smith")}
    assert ready.recipe.model.sizes == (5, 1)
    assert ready.recipe.linear_least_squares
    assert list(ready.clients) == ["site 0", "site 1", "site 2"]
    assert [len(r) for r in ready.clients.values()] == [12, 5, 9]
    inputs = np.concatenate([encode(ready.recipe.encoding, r) for r in ready.clients.values()])
    assert inputs[:, 0].mean() == pytest.approx(0, abs=1e-12)
    assert inputs[:, 0].std() == pytest.approx(1)
    labels = np.concatenate([ready.recipe.target.encode(r) for r in ready.clients.values()])
    assert labels.mean() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "target", "drop", "outputs", "loss"),
    [
        ({"name": "logistic"}, "ill", ["y"], 1, "cross_entropy"),
        ({"name": "logistic"}, "job", ["y", "ill"], 3, "cross_entropy"),
        ({"name": "mlp", "hidden": [4]}, "job", ["y", "ill"], 3, "cross_entropy"),
        ({"name": "mlp", "hidden": [4]}, "y", ["ill"], 1, "squared_error"),
    ],
)
def test_the_task_decides_loss_and_outputs(
    settings_for: Settings,
    model: dict[str, Any],
    target: str,
    drop: list[str],
    outputs: int,
    loss: str,
) -> None:
    recipe = planned(settings_for(model=model, data={"target": target, "drop": drop})).recipe
    assert (recipe.model.outputs, recipe.loss) == (outputs, loss)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"audit": {"attributes": ["y"]}}, "attribute 'y' is not an input; choose from age, job"),
        ({"audit": {"attributes": ["sx"]}}, r"people\.csv: no column 'sx'; columns: at, age"),
        ({"audit": {"attributes": ["ill"]}}, "attribute 'ill' is not an input"),
        ({"audit": {"attributes": ["age"]}}, None),
        ({"data": {"drop": ["zz"]}}, r"people\.csv: no column 'zz'; columns: at"),
        ({"data": {"path": "nowhere.csv"}}, r"no such file \(looked in .*`path` in \[data\]"),
        ({"data": {"path": ""}}, "source 'file' needs path, client and target"),
        ({"data": {"source": "randhie"}}, r"data\.path belongs to source = 'file'; 'randhie'"),
        ({"data": {"source": "fil"}}, r"unknown data source 'fil'.*did you mean 'file'"),
        ({"data": {"options": {"colour": 1}}}, "data source 'file': .*unexpected.*'colour'"),
        ({"data": {"target": "ill", "drop": []}}, "'linear' predicts a number .* use logistic"),
        ({"model": {"name": "logistic"}}, "'logistic' predicts a class .* use linear"),
        (
            {"data": {"target": "ill", "drop": [], "task": "regression"}},
            "target 'ill' holds text; use task = 'classification'",
        ),
        ({"model": {"hidden": [3]}}, "model 'linear' has no hidden layers; use name = 'mlp'"),
        ({"model": {"name": "mlp"}}, "model 'mlp' needs hidden layers"),
        ({"training": {"algorithm": "fedsgd", "epochs": 2}}, "fedsgd sends one full-batch"),
        ({"training": {"algorithm": "fedsgd", "batch_size": 2}}, "fedsgd sends one full-batch"),
        ({"training": {"proximal": 0.1}}, "proximal belongs to algorithm = 'fedprox'"),
        ({"audit": {"group": "job"}}, "belong to audit.label"),
        ({"audit": {"auxiliary": 5}}, "belong to audit.label"),
        ({"audit": {"attributes": [], "label": True, "group": "degree"}}, "'degree' is not an in"),
        ({"audit": {"attributes": [], "label": True, "auxiliary": 100_000}}, "leaves nothing"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings_for: Settings, changes: dict[str, Any], complaint: str | None
) -> None:
    content = settings_for(**changes)
    if complaint is None:  # few rows, so even a column of numbers has few values
        assert len(planned(content).attributes["age"].values) == 26
        return
    with pytest.raises((FixConfig, FixData), match=complaint):
        planned(content)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("0,4\nb,5,1", "0,4\nb,5,0", None),  # constant for one client is fine
        ("\na,2,1,2\nb,3,0,4\nb,5,1", "\na,2,0,2\nb,3,0,4\nb,5,0", "'s' is constant .* audit an"),
        ("0,1\na,2,1,2\nb,3,0,4\nb,5,1,3", "0,2\na,2,1,2\nb,3,0,2\nb,5,1,2", "'y' is constant"),
        ("0,4", "0,nan", r"column 'y' has a missing"),
        ("at,x,s,y", "at,x,x,y", "column 'x' stands twice; rename one"),
        ("\nb,3", "\nCharité,3", None),  # any printable name
        ("\nb,3", "\nö/b,3", r"client name 'ö/b' is not allowed; use at most"),
        ("\na,1,0,1\na,2,1,2\nb,3,0,4\nb,5,1,3\n", "\n", "there are no records|cannot be read"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(
    tmp_path: Path, settings_for: Settings, old: str, new: str, complaint: str | None
) -> None:
    assert old in TWO_CLIENTS
    file = tmp_path / "t.csv"
    file.write_text(TWO_CLIENTS.replace(old, new, 1))
    content = settings_for(data={"path": str(file), "drop": []}, audit={"attributes": ["s"]})
    if old == "at,x,s,y":
        content["audit"] = {"attributes": []}
    if complaint is None:
        assert planned(content).attributes["s"].values == (0.0, 1.0)
        return
    with pytest.raises((FixConfig, FixData), match=complaint):
        planned(content)


def test_a_column_without_spread_is_not_blown_up(tmp_path: Path, settings_for: Settings) -> None:
    """The computed deviation of a constant 0.1 is not always exactly zero."""
    rows = [f"{'ab'[i % 2]},0.1,{i},{i % 2},{i}" for i in range(10)]
    (tmp_path / "t.csv").write_text("at,flat,x,s,y\n" + "\n".join(rows))
    ready = planned(settings_for(data={"path": str(tmp_path / "t.csv"), "drop": []}))
    assert np.abs(encode(ready.recipe.encoding, ready.clients["a"])[:, 0]).max() < 1e-12
