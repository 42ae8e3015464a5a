"""The client's side of boosted trees, and how a server joins what clients return.

XGBoost itself is needed here and nowhere else (extra ``xgboost``).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig
from overheard.programs.trees.settings import TreeSettings

Array = NDArray[np.float64]


def xgboost() -> Any:
    """The package, or a line that says how to get it."""
    try:
        import xgboost as package
    except ImportError as missing:
        raise FixConfig(
            "growing trees needs XGBoost; install overheard with its extra: overheard[xgboost]"
        ) from missing
    return package


def grow(
    model: bytes, records: tuple[Array, Array], settings: TreeSettings, seed: int, classes: int = 0
) -> bytes:
    """What a client returns, as JSON: its new trees (bagging), or all of them (cyclic).

    model: what it was sent, empty in the first round; records: inputs (m, d) and labels (m,).
    """
    package = xgboost()
    data = package.DMatrix(records[0].astype(np.float32), label=records[1].astype(np.float32))
    parameters = settings.parameters(seed, classes)
    booster = package.Booster(parameters, [data])
    if model:
        booster.load_model(bytearray(model))
        booster.set_param(parameters)
    for _ in range(settings.local_rounds):
        booster.update(data, booster.num_boosted_rounds())
    if settings.aggregation == "bagging":
        last = booster.num_boosted_rounds()
        booster = booster[last - settings.local_rounds : last]
    raw = bytes(booster.save_raw("json"))
    return raw if settings.wire == "everything" else _values_only(raw, settings.leaf_step)


def _values_only(raw: bytes, step: float) -> bytes:
    """The model without the sums that no prediction needs, its leaves rounded to the step."""
    whole = json.loads(raw)
    for tree in whole["learner"]["gradient_booster"]["model"]["trees"]:
        for field in ("base_weights", "sum_hessian", "loss_changes"):
            tree[field] = [0.0] * len(tree[field])
        if step:
            values = zip(tree["split_conditions"], tree["left_children"], strict=True)
            tree["split_conditions"] = [
                float(np.float32(round(v / step) * step)) if left < 0 else v for v, left in values
            ]
    return json.dumps(whole).encode()


def bagged(model: bytes, returned: list[bytes]) -> bytes:
    """The model with all returned trees appended, client after client, as Flower's FedXgbBagging
    does it: the first model that comes is the base of all that follow, its base score included."""
    models = [json.loads(raw) for raw in (model, *returned) if raw]
    whole = models[0]
    into = whole["learner"]["gradient_booster"]["model"]
    for new in models[1:]:
        add = new["learner"]["gradient_booster"]["model"]
        count = len(into["trees"])
        for number, tree in enumerate(add["trees"]):
            tree["id"] = count + number
            into["trees"].append(tree)
        into["tree_info"] += add["tree_info"]
        into["iteration_indptr"] += [count + end for end in add["iteration_indptr"][1:]]
        into["gbtree_model_param"]["num_trees"] = str(len(into["trees"]))
    return json.dumps(whole).encode()
