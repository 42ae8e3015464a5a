"""How does a client grow its trees, and how does a server join what clients return?

The settings are what an adversary is assumed to know of it, as data. XGBoost itself is needed here
and nowhere else (extra ``xgboost``).
"""

from __future__ import annotations

import json
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from overheard.errors import needs
from overheard.programs.program import Settings

Array = NDArray[np.float64]
_NOT_XGBOOSTS = {
    "name", "wire_names", "aggregation", "local_rounds", "wire", "leaf_step",
}  # fmt: skip


class TreeSettings(Settings):
    """XGBoost's own names and defaults; ``local_rounds``: boosting rounds a client and message.

    ``aggregation``: "bagging", every client returns its newest trees and the server appends them
    all; "cyclic", one client a round returns the whole model, which goes on to the next.

    Defences: ``wire`` "values" sends the leaves' values and drops every other sum (weights of inner
    nodes, Hessians, gains), which no prediction needs; ``leaf_step`` rounds the values to multiples
    of it before they leave.

    ``base_score`` None: every client estimates its own, as XGBoost does by default; the model that
    it returns says which.
    """

    name: Literal["xgboost"] = "xgboost"
    aggregation: Literal["bagging", "cyclic"] = "bagging"
    objective: Literal[
        "binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:gamma"
    ] = "binary:logistic"
    eta: float = Field(default=0.3, gt=0, le=10)
    max_depth: int = Field(default=6, ge=1, le=30)
    reg_lambda: float = Field(default=1.0, ge=0, le=1e6)
    reg_alpha: float = Field(default=0.0, ge=0, le=1e6)
    gamma: float = Field(default=0.0, ge=0)
    min_child_weight: float = Field(default=1.0, ge=0)
    max_delta_step: float = Field(default=0.0, ge=0, le=80)
    base_score: float | None = None
    subsample: float = Field(default=1.0, gt=0, le=1)
    colsample_bytree: float = Field(default=1.0, gt=0, le=1)
    num_parallel_tree: int = Field(default=1, ge=1, le=1000)
    local_rounds: int = Field(default=1, ge=1, le=1000)
    wire: Literal["everything", "values"] = "everything"
    leaf_step: float = Field(default=0.0, ge=0, le=100)

    @model_validator(mode="after")
    def _rounded_alone(self) -> Self:
        if self.leaf_step and self.wire != "values":
            raise ValueError(
                "leaf_step rounds the values of leaves, and the other sums tell them exactly: set "
                'wire to "values"'
            )
        return self

    @property
    def largest_step(self) -> float:
        """Weights are cut to it; 0 for no bound. XGBoost bounds counts even if nobody asks."""
        counts = self.objective == "count:poisson" and not self.max_delta_step
        return 0.7 if counts else self.max_delta_step

    def parameters(self, seed: int, classes: int = 0) -> dict[str, object]:
        """As XGBoost takes them: what differs from its defaults."""
        own: dict[str, object] = {"objective": self.objective}
        own |= self.model_dump(exclude=_NOT_XGBOOSTS, exclude_defaults=True)
        if classes:
            own["num_class"] = classes
        return {**own, "tree_method": "hist", "nthread": 1, "seed": seed}


def grow(
    model: bytes, records: tuple[Array, Array], settings: TreeSettings, seed: int, classes: int = 0
) -> bytes:
    """What a client returns, as JSON: its new trees (bagging), or all of them (cyclic).

    model: what it was sent, empty in the first round; records: inputs (m, d) and labels (m,).
    """
    with needs("xgboost"):
        import xgboost
    data = xgboost.DMatrix(records[0].astype(np.float32), label=records[1].astype(np.float32))
    parameters = settings.parameters(seed, classes)
    booster = xgboost.Booster(parameters, [data])
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
