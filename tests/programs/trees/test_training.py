"""Clients grow what XGBoost grows, and servers join it as Flower does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from overheard.programs.trees import TreeSettings, bagged, grow

pytest.importorskip("xgboost", reason="needs overheard[xgboost]")


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


def test_cyclic_clients_return_all_trees():
    settings = TreeSettings(max_depth=2, aggregation="cyclic", local_rounds=2)
    rng = np.random.default_rng(0)
    records = (rng.normal(size=(40, 2)), rng.integers(2, size=40).astype(float))
    once = grow(b"", records, settings, 0)
    twice = grow(once, records, settings, 0)
    assert [m.count(b'"tree_param"') for m in (once, twice)] == [2, 4]
