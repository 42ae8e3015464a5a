"""Leaves are sums over records: at the truth nothing but float32 rounding is left."""

from __future__ import annotations

import ctypes.util
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from overheard.errors import ChooseAnotherAttack, FixRecording
from overheard.programs.families.xgboost import (
    exponential,
    objective_of,
    own_trees,
    start_margin,
    tree_equations,
)

pytestmark = pytest.mark.slow

pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
_SPEC = importlib.util.spec_from_file_location("grown", Path(__file__).with_name("grown.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
grown = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(grown)

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:gamma")
VARIANTS = [
    {"reg_lambda": 3.0, "reg_alpha": 0.5},
    {"gamma": 1.0, "min_child_weight": 5.0},
    {"num_parallel_tree": 3, "colsample_bytree": 0.6},
    {"local_rounds": 3},
    {"max_delta_step": 0.2},
    {"base_score": 0.4},
    {"wire": "values"},
    {"wire": "values", "leaf_step": 0.01},
]


@pytest.mark.parametrize(
    ("objective", "variant"),
    [*((o, {}) for o in OBJECTIVES), *((o, v) for o in OBJECTIVES[:4:3] for v in VARIANTS)],
)
def test_the_truth_leaves_rounding(objective, variant):
    settings = grown.plain_settings(objective=objective, **variant)
    exchanges, candidates, truth = grown.federated(settings)
    equations = tree_equations(exchanges, *candidates, settings)
    left = equations.residual_at(truth)
    assert len(left) > 12
    assert np.abs(left).max() < 4.5
    assert np.sqrt(np.mean(left**2)) < 1.2
    if not variant:
        wrong = equations.residual_at(1 - truth)
        assert np.sqrt(np.mean(wrong**2)) > 1000


def test_settings_that_are_not_the_clients_do_not_fit():
    settings = grown.plain_settings()
    exchanges, candidates, truth = grown.federated(settings)
    for other in ({"eta": 0.21}, {"reg_lambda": 1.1}):
        changed = grown.plain_settings(**other)
        left = tree_equations(exchanges, *candidates, changed).residual_at(truth)
        assert np.sqrt(np.mean(left**2)) > 1000


def test_slow_twin():
    """Record by record and tree by tree, in the plainest way."""
    settings = grown.plain_settings()
    exchanges, candidates, truth = grown.federated(settings, rounds=3)
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


def test_cyclic_models_hold_the_clients_trees_behind_those_it_was_sent():
    settings = grown.plain_settings(aggregation="cyclic", local_rounds=2)
    exchanges, candidates, truth = grown.federated(settings, cyclic=True)
    assert [len(returned.trees) for _, returned in exchanges] == [2, 4, 6, 8]
    assert [len(own_trees(*pair)) for pair in exchanges] == [2, 2, 2, 2]
    left = tree_equations(exchanges, *candidates, settings).residual_at(truth)
    assert np.abs(left).max() < 4.5


def test_strangers_add_nothing():
    """Membership: of a pool, twice the client's records, those that it does not hold."""
    settings = grown.plain_settings()
    exchanges, candidates, truth = grown.federated(settings)
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
    settings = grown.plain_settings(subsample=0.5)
    found = []
    for seed in range(6):
        exchanges, candidates, truth = grown.federated(settings, seed=seed)
        found.append(tree_equations(exchanges, *candidates, settings).residual_at(truth))
    left = np.concatenate(found)
    assert 0.7 < np.sqrt(np.mean(left**2)) < 1.2
    assert len(left) > 100


def test_records_of_another_table_are_refused():
    settings = grown.plain_settings()
    exchanges, candidates, _ = grown.federated(settings, rounds=2)
    narrow = (candidates[0][:, :, :3], *candidates[1:])
    with pytest.raises(ChooseAnotherAttack, match="5 features and the records have 3"):
        tree_equations(exchanges, *narrow, settings)


def test_more_trees_than_anybody_waits_for_are_refused():
    """A model of a few megabytes may hold 100,000 trees of one leaf."""
    settings = grown.plain_settings()
    ((sent, returned), *_), candidates, _ = grown.federated(settings, rounds=1)
    (tree,) = returned.trees
    many = tuple(replace(tree) for _ in range(100_000))
    with pytest.raises(FixRecording, match="OVERHEARD_MAX_TREE_VISITS"):
        tree_equations([(sent, replace(returned, trees=many))], *candidates, settings)
