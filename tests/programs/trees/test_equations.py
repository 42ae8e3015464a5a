"""Trees, grown by XGBoost itself: leaves are sums over records; the truth leaves rounding."""

from __future__ import annotations

import ctypes.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from overheard.errors import ChooseAnotherAttack, FixRecording
from overheard.programs.families.xgboost import (
    check_visits,
    exponential,
    objective_of,
    own_trees,
    start_margin,
    tree_equations,
)
from overheard.programs.trees import TreeSettings, bagged, grow, read_growing, read_model

pytestmark = pytest.mark.slow

pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:gamma")
VARIANTS = [
    {"reg_lambda": 3.0, "reg_alpha": 0.5},
    {"gamma": 1.0, "min_child_weight": 5.0},
    {"num_parallel_tree": 3, "colsample_bytree": 0.6},
    {"local_rounds": 3},
    {"max_delta_step": 0.2},
    {"base_score": 0.4},
    {"releases": "values"},
    {"releases": "values", "leaf_step": 0.01},
]


def people(objective, count=240, seed=0):
    """Inputs with missing values, the first column 0 or 1, and labels that depend on it."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, 5)).astype(np.float32)
    inputs[:, 1] = np.round(inputs[:, 1] * 2)
    inputs[rng.random((count, 5)) < 0.1] = np.nan
    inputs[:, 0] = rng.random(count) < 0.4
    plain = np.nan_to_num(inputs)
    mean = np.exp(0.3 * plain[:, 2] + 0.4 * plain[:, 0])
    labels = {
        "binary:logistic": lambda: plain[:, 0] + plain[:, 2] + rng.normal(size=count) > 0.5,
        "reg:squarederror": lambda: plain.sum(axis=1) + rng.normal(size=count),
        "count:poisson": lambda: rng.poisson(mean),
        "reg:gamma": lambda: rng.gamma(2.0, mean) + 0.01,
        "multi:softprob": lambda: np.clip(np.round(plain[:, 2] + plain[:, 0]), 0, 2),
    }[objective]()
    return inputs, np.asarray(labels, dtype=np.float64)


def federated(settings, rounds=4, seed=0):
    """Models of the first of two clients, its candidates (inputs, labels, presence), the truth."""
    inputs, labels = people(settings.objective, seed=seed)
    classes = 3 if settings.objective == "multi:softprob" else 0
    sent, back, model = [], [], b""
    for number in range(rounds):
        got = []
        for client in range(2):
            mine = (inputs[client::2], labels[client::2])
            got.append(grow(model, mine, settings, number, classes))
        sent.append(model)
        back.append(got[0])
        model = bagged(model, got)
    exchanges = [
        (before, read_model(raw, "returned"))
        for before, raw in zip(read_growing(sent, "sent"), back, strict=True)
    ]
    true, other = inputs[::2], inputs[::2].copy()
    other[:, 0] = 1 - other[:, 0]
    swapped = np.random.default_rng(seed + 1).random(len(true)) < 0.5
    each = np.stack(
        [np.where(swapped[:, None], other, true), np.where(swapped[:, None], true, other)]
    )
    candidates = (each, np.tile(labels[::2].astype(np.float32), (2, 1)), np.ones(2, dtype=bool))
    return exchanges, candidates, swapped.astype(np.int64)


def residual(settings, stated=None, **federation):
    """What the truth of a federation leaves, if its settings are declared to be these."""
    exchanges, candidates, truth = federated(settings, **federation)
    return tree_equations(exchanges, *candidates, stated or settings).residual_at(truth)


def plain_settings(**more):
    return TreeSettings(**{"max_depth": 3, "eta": 0.2, **more})


@pytest.mark.parametrize(
    ("objective", "variant"),
    [*((o, {}) for o in OBJECTIVES), *((o, v) for o in OBJECTIVES[:4:3] for v in VARIANTS)],
)
def test_the_truth_leaves_rounding(objective, variant):
    settings = plain_settings(objective=objective, **variant)
    exchanges, candidates, truth = federated(settings)
    equations = tree_equations(exchanges, *candidates, settings)
    left = equations.residual_at(truth)
    assert len(left) > 12
    assert np.abs(left).max() < 4.5
    assert np.sqrt(np.mean(left**2)) < 1.2
    if not variant:
        wrong = equations.residual_at(1 - truth)
        assert np.sqrt(np.mean(wrong**2)) > 1000


def test_settings_that_are_not_the_clients_do_not_fit():
    for other in ({"eta": 0.21}, {"reg_lambda": 1.1}):
        left = residual(plain_settings(), plain_settings(**other))
        assert np.sqrt(np.mean(left**2)) > 1000


def test_slow_twin():
    """Record by record and tree by tree, in the plainest way."""
    settings = plain_settings()
    exchanges, candidates, truth = federated(settings, rounds=3)
    rows = []
    people = np.arange(len(truth))
    both, labels = candidates[0], candidates[1][0]
    inputs = both[truth, people]
    for sent, returned in exchanges:
        before = () if sent is None else sent.trees
        start = start_margin(sent or returned)
        margin = np.tile(start, (len(truth), 1))
        for tree in before:
            margin[:, 0] += tree.value[tree.leaves(inputs)]
        found = objective_of(returned).terms(margin, labels, returned)
        (tree,) = own_trees(sent, returned)
        leaf = tree.leaves(inputs)
        kinds = ([], [])
        for node in np.flatnonzero(tree.leaf):
            mine = leaf == node
            if not any((tree.leaves(each) == node).any() for each in both):
                continue
            g = found.gradient[mine, 0].astype(np.float64).sum()
            h = found.hessian[mine, 0].astype(np.float64).sum()
            w = float(tree.value[node]) / settings.eta
            kinds[0].append(-w * settings.reg_lambda - (g + w * h))
            kinds[1].append(float(tree.hessian[node]) - h)
        rows += [*kinds[0], *kinds[1]]
    equations = tree_equations(exchanges, *candidates, settings)
    np.testing.assert_allclose(equations.given(truth).residual, rows, atol=1e-9)


def test_the_exponential_is_the_c_librarys():
    name = ctypes.util.find_library("m")
    if not sys.platform.startswith("linux") or name is None:
        pytest.skip("compares with the C library of Linux")
    library = ctypes.CDLL(name)
    library.expf.restype, library.expf.argtypes = ctypes.c_float, [ctypes.c_float]
    x = np.random.default_rng(0).normal(0, 5, 20_000).astype(np.float32)
    wanted = np.array([library.expf(float(v)) for v in x], dtype=np.float32)
    np.testing.assert_array_equal(exponential(x), wanted)


def test_non_members_add_nothing():
    """Membership: of a pool, twice the client's records, those that it does not hold."""
    settings = plain_settings()
    exchanges, candidates, truth = federated(settings)
    people = np.arange(len(truth))
    mine = candidates[0][truth, people]
    theirs = mine[::-1] + np.float32(0.01)
    pool = np.concatenate([mine, theirs])
    labels = np.concatenate([candidates[1][0]] * 2)
    each = (np.stack([pool] * 2), np.stack([labels] * 2), np.array([False, True]))
    equations = tree_equations(exchanges, *each, settings)
    member = (np.arange(len(pool)) < len(truth)).astype(np.int64)
    assert np.abs(equations.residual_at(member)).max() < 4.5


def test_sampled_rows_are_noise_of_the_stated_size():
    settings = plain_settings(subsample=0.5)
    left = np.concatenate([residual(settings, seed=seed) for seed in range(6)])
    assert 0.7 < np.sqrt(np.mean(left**2)) < 1.2
    assert len(left) > 100


def test_records_of_another_table_are_refused():
    settings = plain_settings()
    exchanges, candidates, _ = federated(settings, rounds=2)
    narrow = (candidates[0][:, :, :3], *candidates[1:])
    with pytest.raises(ChooseAnotherAttack, match="5 features and the records have 3"):
        tree_equations(exchanges, *narrow, settings)


def test_more_trees_than_anybody_waits_for_are_refused():
    """A model of a few megabytes may hold 100,000 trees of one leaf. Those that a client was sent
    cost little."""
    settings = plain_settings()
    ((sent, returned), *_), candidates, _ = federated(settings, rounds=1)
    (tree,) = returned.trees
    many = replace(returned, trees=tuple(replace(tree) for _ in range(100_000)))
    with pytest.raises(FixRecording, match="OVERHEARD_MAX_TREE_VISITS"):
        tree_equations([(sent, many)], *candidates, settings)
    check_visits([(replace(many, trees=many.trees[:20_000]), returned)], 400)


def returned(model, seed):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(60, 3))
    labels = (inputs[:, 0] + rng.normal(size=60) > 0).astype(float)
    return grow(model, (inputs, labels), TreeSettings(max_depth=2), seed)


def test_the_server_joins_trees_as_flower_does():
    flower = pytest.importorskip(
        "flwr.server.strategy.fedxgb_bagging", reason="needs overheard[flower]"
    )
    ours, theirs = b"", None
    for number in range(3):
        messages = [returned(ours, 10 * number + client) for client in range(3)]
        assert [m.count(b'"tree_param"') for m in messages] == [1, 1, 1]
        ours = bagged(ours, messages)
        for message in messages:
            theirs = flower.aggregate(theirs, message)
        assert json.loads(ours) == json.loads(theirs)
