"""Clients that scale their own columns: the audit sees what their models saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import planned, recipe_in, simulated

from overheard.data.dataset import Dataset, HeldOut
from overheard.programs.recipe import Recipe
from overheard.programs.records import Codes, Records, encode
from overheard.transcript.knowledge import ClientProgram
from overheard.transcript.share import share
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe


def table(columns: dict[str, np.ndarray], sensitive: tuple[str, ...] = ("s",)) -> Dataset:
    return Dataset("t", Records(columns), "at", "y", "regression", sensitive, "")


def content(**data: object) -> dict[str, Any]:
    training = {"rounds": 1, "learning_rate": 0.1}
    return {"data": {"source": "file", **data}, "model": {"name": "linear"}, "training": training}


def test_every_client_has_mean_nought_and_deviation_one_of_its_own() -> None:
    rng = np.random.default_rng(0)
    at = np.repeat(["a", "b"], 50)
    known = {"x": rng.normal(np.where(at == "a", 3.0, -1.0), np.where(at == "a", 2.0, 0.5))}
    known |= {"flag": (rng.random(100) < 0.5).astype(float), "s": rng.choice([1.0, 2.0], 100)}
    columns = {**known, "same": np.where(at == "a", 7.0, 9.0), "y": rng.normal(size=100), "at": at}
    dataset = table(columns)
    ready = planned(content(scale="clients"), dataset)
    for name in ("a", "b"):
        records = ready.clients[name]
        seen = encode(ready.recipe.of(name).encoding, records)
        x, flag, s, same = seen.T
        np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-12)
        np.testing.assert_array_equal(flag, known["flag"][at == name])
        np.testing.assert_array_equal(s, known["s"][at == name])  # a secret of two values
        np.testing.assert_array_equal(same, 0.0)  # it does not vary at this client
    assert abs(ready.recipe.target.scale - columns["y"].std()) < 1e-12


def coded(**how: object) -> Recipe:
    """Of two clients, one of which lacks a value; what it held out has another."""
    at = np.array(["a"] * 4 + ["b"] * 4)
    text = np.array(["x", "z", "z", "y", "y", "z", "z", "w"])
    columns = {"t": text, "s": np.array([0.0, 1.0] * 4), "y": np.arange(8.0), "at": at}
    dataset = table(columns)
    return planned(content(text="codes", **how), dataset).recipe


def test_texts_are_codes_of_a_client_s_own_values_with_those_that_it_held_out() -> None:
    held = {"share": 0.25, "by": "order"}
    recipe = coded(scale="clients", held_out=held)
    block = recipe.of("b").encoding.blocks[0]
    assert isinstance(block, Codes)
    assert (block.values, block.shift, block.scale) == (("w", "y", "z"), 0.0, 1.0)
    np.testing.assert_array_equal(block.places(np.array(["w", "z", "x"])), [0, 2, 0.5])
    every = coded(scale="clients", held_out=held, every=True).of("b").encoding
    text, flag = encode(
        every, Records({"t": np.array(["y", "z", "z"]), "s": np.array([0, 1, 0.0])})
    ).T
    np.testing.assert_allclose(
        [text.mean(), text.std(), flag.mean(), flag.std()], [0, 1, 0, 1], atol=1e-12
    )
    together = coded(scale="records").encoding.blocks[0]
    assert isinstance(together, Codes)
    assert together.values == ("w", "x", "y", "z")
    assert recipe.of("b").own == {}  # nobody is told of others' scales


def test_held_out_is_what_scikit_learn_holds_out() -> None:
    split = pytest.importorskip("sklearn.model_selection").train_test_split
    for rows, part in ((10, 0.2), (37, 0.25)):
        train, _ = split(np.arange(rows), test_size=part, random_state=42)
        np.testing.assert_array_equal(HeldOut(share=part).trained(rows), train)


def test_what_is_held_out_is_everybody_else() -> None:
    columns = {"n": np.arange(20.0), "y": np.zeros(20), "at": np.repeat(["a", "b"], 10)}
    dataset, held = table(columns, ()), HeldOut(share=0.2, by="order")
    trained, tested = dataset.split(held)
    np.testing.assert_array_equal(tested["n"], [8, 9, 18, 19])
    assert set(trained.records["n"]).isdisjoint({8, 9, 18, 19})


def test_who_is_given_one_link_is_told_of_no_other_client_s_scales(tmp_path: Path) -> None:
    at = np.repeat(["a", "b"], 20)
    rng = np.random.default_rng(1)
    known = {"x": rng.normal(size=40), "s": rng.choice([0.0, 1.0], 40), "y": rng.normal(size=40)}
    dataset = table({**known, "at": at})
    run = simulated(tmp_path / "run", content(scale="clients"), dataset)
    whole = recipe_in(run)
    assert set(whole.own) == {"a", "b"}
    view = observe(run, EAVESDROPPER, attribute("s"), "b")
    assert view.know(ClientProgram).recipe == whole.of("b")
    share(run, attribute("s").key, EAVESDROPPER, tmp_path / "shared", ["a"])
    shared = recipe_in(Recording.open(tmp_path / "shared"))
    assert set(shared.own) == {"a"}
