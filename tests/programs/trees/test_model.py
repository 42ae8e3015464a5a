"""Models of XGBoost: read as XGBoost means them, or refused in a line."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from overheard.errors import FixRecording
from overheard.programs.families.xgboost import start_margin
from overheard.programs.trees import read_growing, read_model

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
JSON = (CORPUS / "trees" / "categories.json").read_bytes()
BINARY = (CORPUS / "trees_binary" / "categories.ubj").read_bytes()


def test_both_notations_say_the_same():
    for name in ("categories", "classes"):
        one = read_model((CORPUS / "trees" / f"{name}.json").read_bytes(), "a")
        other = read_model((CORPUS / "trees_binary" / f"{name}.ubj").read_bytes(), "b")
        assert (one.objective, one.groups) == (other.objective, other.groups)
        assert len(one.trees) == len(other.trees) > 0
        for a, b in zip(one.trees, other.trees, strict=True):
            for field in ("left", "right", "feature", "value", "hessian", "default_left"):
                np.testing.assert_array_equal(getattr(a, field), getattr(b, field))


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:gamma"])
@pytest.mark.parametrize("kind", ["json", "ubj"])
def test_records_reach_the_leaves_that_xgboost_sends_them_to(objective, kind):
    """Missing values, categories (one that no split has seen among them), several classes."""
    xgboost = pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(300, 4)).astype(np.float32)
    inputs[:, 0] = rng.integers(0, 6, 300)
    inputs[rng.random((300, 4)) < 0.15] = np.nan
    labels = np.clip(np.round(np.nan_to_num(inputs[:, 1] + inputs[:, 0] / 3)), 0, 1)
    types = ["c", "q", "q", "q"]
    data = xgboost.DMatrix(
        inputs, label=labels + 0.1 * (objective == "reg:gamma"), feature_types=types,
        enable_categorical=True,
    )  # fmt: skip
    settings = {"objective": objective, "max_depth": 4, "max_cat_to_onehot": 1, "nthread": 1}
    if objective == "multi:softprob":
        settings["num_class"] = 3
    booster = xgboost.train(settings, data, num_boost_round=5)
    model = read_model(bytes(booster.save_raw(kind)), "model")
    assert any(tree.categories is not None for tree in model.trees)
    leaves = booster.predict(data, pred_leaf=True).reshape(300, -1)
    margin = np.tile(start_margin(model), (300, 1))
    for number, tree in enumerate(model.trees):
        found = tree.leaves(inputs)
        np.testing.assert_array_equal(found, leaves[:, number])
        margin[:, tree.group] += tree.value[found]
    wanted = booster.predict(data, output_margin=True).reshape(300, -1)
    np.testing.assert_allclose(margin, wanted, rtol=2e-6, atol=2e-6)


def test_models_that_grow_are_the_models_read_one_by_one():
    named = json.loads(JSON)
    grown = deepcopy(named)
    model = grown["learner"]["gradient_booster"]["model"]
    model["trees"].append(model["trees"][0])
    model["tree_info"].append(0)
    model["gbtree_model_param"]["num_trees"] = "3"
    raws = [b"", JSON, json.dumps(named).encode(), json.dumps(grown).encode()]
    none, first, second, third = read_growing(raws, "sent")
    assert none is None
    assert second.trees == third.trees[:2]  # the same objects: not read again
    assert first.trees != third.trees[:2]  # written otherwise, and so read for itself
    for a, b in zip(first.trees, third.trees, strict=False):
        np.testing.assert_array_equal(a.value, b.value)
    np.testing.assert_array_equal(first.base_score, second.base_score)


def test_fields_that_are_masked_are_not_there():
    named = json.loads(JSON)
    first, second = named["learner"]["gradient_booster"]["model"]["trees"]
    del first["sum_hessian"]
    second["sum_hessian"] = [0.0] * len(second["sum_hessian"])
    model = read_model(json.dumps(named).encode(), "masked")
    assert [tree.hessian for tree in model.trees] == [None, None]
    assert all(tree.hessian is not None for tree in read_model(JSON, "whole").trees)


def _changed(path, value):
    named = json.loads(JSON)
    at = named
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(named).encode()


MODEL = ("learner", "gradient_booster", "model")
TREE = (*MODEL, "trees", 0)
HOSTILE = {
    "nothing": b"",
    "a pickle": b"\x80\x04\x95",
    "half of it": JSON[: len(JSON) // 2],
    "half of the binary one": BINARY[: len(BINARY) // 2],
    "a binary length beyond the end": BINARY.replace(b"[$d#L" + bytes(7), b"[$d#L\x7f" + bytes(6)),
    "a negative binary length": BINARY.replace(b"[$d#L" + bytes(7), b"[$d#L\xff" + bytes(6)),
    "deep": b"{L\0\0\0\0\0\0\0\x01a" * 100,
    "more after the end": BINARY + b"x",
    "another booster": _changed(("learner", "gradient_booster", "name"), "dart"),
    "no trees": _changed((*MODEL, "trees"), None),
    "fewer trees than stated": _changed((*MODEL, "trees"), []),
    "a class that there is not": _changed((*MODEL, "tree_info"), [0, 7]),
    "more nodes than stated": _changed((*TREE, "tree_param", "num_nodes"), "6"),
    "a child beyond": _changed((*TREE, "left_children", 0), 4000),
    "a circle": _changed((*TREE, "left_children", 1), 0),
    "two parents": _changed((*TREE, "right_children", 0), 1),
    "a feature beyond": _changed((*TREE, "split_indices", 0), 3),
    "text for a number": _changed((*TREE, "sum_hessian", 0), "1"),
    "infinity": _changed((*TREE, "sum_hessian", 0), 1e300),
    "lists of lists": _changed((*TREE, "left_children"), [[1]]),
    "vectors for leaves": _changed((*TREE, "tree_param", "size_leaf_vector"), "3"),
    "sums of fewer nodes": _changed((*TREE, "sum_hessian"), [1.0, 2.0]),
    "categories beyond": _changed((*TREE, "categories_segments"), [0, 400]),
    "many classes": _changed(("learner", "learner_model_param", "num_class"), "1000000000"),
    "a base score that is none": _changed(("learner", "learner_model_param", "base_score"), "x"),
    "an objective without a name": _changed(("learner", "objective", "name"), 3),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_models_are_refused_in_a_line(raw):
    with pytest.raises(FixRecording) as refused:
        read_model(raw, "round 3")
    assert str(refused.value).startswith("round 3: ")
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 300


def test_binary_text_of_megabytes_is_refused_as_soon_as_it_is_too_much():
    """Values that stand alone take the longest to read; XGBoost writes few of them. Of three times
    as many no more are read."""
    seconds = []
    for many in (7_000_000, 21_000_000):
        raw = b"{L" + bytes(7) + b"\x01a[#L" + many.to_bytes(8, "big") + b"Z" * many + b"}"
        began = time.process_time()
        with pytest.raises(FixRecording, match="OVERHEARD_MAX_JSON_VALUES"):
            read_model(raw, "a model")
        seconds.append(time.process_time() - began)
    assert seconds[1] < 2 * seconds[0]
