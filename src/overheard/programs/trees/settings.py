"""How does a client grow its trees? What an adversary is assumed to know of it, as data."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from overheard.programs.program import Settings

_NOT_XGBOOSTS = {
    "name", "wire_names", "aggregation", "local_rounds", "wire", "leaf_step", "base_score",
    "max_delta_step",
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
        """As XGBoost takes them."""
        own = self.model_dump(exclude=_NOT_XGBOOSTS)
        if self.base_score is not None:
            own["base_score"] = self.base_score
        if self.max_delta_step:
            own["max_delta_step"] = self.max_delta_step
        if classes:
            own["num_class"] = classes
        return {**own, "tree_method": "hist", "nthread": 1, "seed": seed}
