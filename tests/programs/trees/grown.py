"""Small federations of trees, grown by XGBoost itself."""

from __future__ import annotations

import numpy as np

from overheard.programs.trees import TreeSettings, bagged, grow, read_growing, read_model


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


def federated(settings, rounds=4, seed=0, cyclic=False):
    """Models of the first of two clients, its candidates (inputs, labels, presence), the truth."""
    inputs, labels = people(settings.objective, seed=seed)
    classes = 3 if settings.objective == "multi:softprob" else 0
    sent, back, model = [], [], b""
    for number in range(rounds):
        got = []
        for client in range(2):
            if cyclic and client:
                break
            mine = (inputs[client::2], labels[client::2])
            got.append(grow(model, mine, settings, number, classes))
        sent.append(model)
        back.append(got[0])
        model = got[0] if cyclic else bagged(model, got)
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


def plain_settings(**more):
    return TreeSettings(**{"max_depth": 3, "eta": 0.2, **more})
