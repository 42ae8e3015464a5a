"""LightGBM's text models: read, decoded like XGBoost's, and refused where they are broken.

``lightgbm.json`` was written by LightGBM 4.7: two clients took turns for seven rounds, a tree each
(num_leaves 7, learning_rate 0.2, lambda_l2 1); the first client's records, and the last model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding.sparse_ladder import decode_sparse
from overheard.errors import FixRecording
from overheard.programs.trees.equations import Candidates, Exchange, tree_equations
from overheard.programs.trees.model import read_model
from overheard.programs.trees.settings import TreeSettings

SAVED = json.loads(Path(__file__).with_name("lightgbm.json").read_text())
SETTINGS = TreeSettings(eta=0.2, reg_lambda=1.0, aggregation="cyclic")


def text_of(objective, trees=None):
    """The model with its first trees only."""
    whole = "\n".join(SAVED[objective]["text"])
    body, _, rest = whole.partition("\nend of trees")
    head, *blocks = body.split("\nTree=")
    return ("\nTree=".join([head, *blocks[:trees]]) + "\nend of trees" + rest).encode()


def heard(objective, rounds=7):
    """What the first client was sent and returned, and its records under each value."""
    models = [read_model(text_of(objective, n), "a model") for n in range(1, 2 * rounds)]
    exchanges = [Exchange(models[n - 1] if n else None, models[n]) for n in range(0, 2 * rounds, 2)]
    inputs = np.array(SAVED[objective]["inputs"], dtype=np.float64)
    labels = np.array(SAVED[objective]["labels"], dtype=np.float32)
    each = np.stack([inputs, inputs])
    each[:, :, 0] = [[0.0], [1.0]]
    return exchanges, Candidates(each, np.stack([labels, labels])), inputs[:, 0].astype(np.int64)


@pytest.mark.parametrize("objective", SAVED)
def test_the_truth_leaves_rounding_and_is_found(objective):
    exchanges, candidates, truth = heard(objective)
    equations = tree_equations(exchanges, candidates, SETTINGS)
    assert np.abs(equations.residual_at(truth)).max() < 1
    assert np.abs(equations.residual_at(1 - truth)).max() > 1000
    found = decode_sparse(equations, np.arange(len(truth)))
    assert (found.posterior.guess == truth)[found.proven].all()
    assert found.proven.mean() > 0.6


def test_fields_that_are_missing_are_done_without():
    raw = text_of("binary", 3)
    lines = raw.split(b"\n")
    fewer = b"\n".join(x for x in lines if not x.startswith((b"leaf_count", b"leaf_weight")))
    whole, bare = read_model(raw, "a model"), read_model(fewer, "a model")
    assert whole.trees[1].count is not None
    assert whole.trees[1].count.sum() == 50
    assert bare.trees[1].count is None
    assert bare.trees[1].hessian is None
    np.testing.assert_array_equal(whole.trees[1].value, bare.trees[1].value)


def test_values_up_to_the_threshold_go_left_and_missing_ones_where_the_model_says():
    tree = read_model(text_of("binary"), "a model").trees[1]
    feature, below = int(tree.feature[0]), float(np.nextafter(tree.value[0], -np.inf))
    inputs = np.full((2, 3), below)
    inputs[1, feature] = np.nextafter(below, np.inf)
    one, other = tree.leaves(inputs)

    def under(node):
        return {node} if tree.left[node] < 0 else under(tree.left[node]) | under(tree.right[node])

    assert one in under(tree.left[0])
    assert other in under(tree.right[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("objective=binary sigmoid:1", "objective=lambdarank"),
        ("objective=binary sigmoid:1", "objective=binary sigmoid:2"),
        ("num_leaves=7", "num_leaves=8"),
        ("num_leaves=7", "num_leaves=99999999999"),
        ("num_leaves=7", "num_leaves=x"),
        ("num_cat=0", "num_cat=1"),
        ("is_linear=0", "is_linear=1"),
        ("split_feature=", "split_feature=77 "),
        ("left_child=1", "left_child=0"),
        ("left_child=1", "left_child=999"),
        ("leaf_value=", "leaf_value=nan "),
        ("leaf_value=", "value="),
        ("decision_type=", "decision_type=1 "),
        ("max_feature_idx=2", "max_feature_idx=0"),
        ("[boosting: gbdt]", "[boosting: dart]"),
        ("version=v4", "version=\u00e9"),
    ],
)
def test_hostile_models_are_refused_in_a_line(old, new):
    text = text_of("binary").decode()
    assert old in text
    with pytest.raises(FixRecording, match="a model: not a model of LightGBM") as refused:
        read_model(text.replace(old, new, 1).encode(), "a model")
    assert len(str(refused.value).splitlines()) == 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_whatever_is_changed_is_read_or_refused(data):
    raw = bytearray(text_of("binary", 2))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(5, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"-", b"9", b"=", b"\n", b" ", b"e9", b"nan", b"\xff", b"Tree="])
        )
    try:
        model = read_model(bytes(raw), "a model")
    except FixRecording:
        return
    for tree in model.trees:
        assert tree.leaf[tree.leaves(np.zeros((2, max(model.features, 1))))].all()
