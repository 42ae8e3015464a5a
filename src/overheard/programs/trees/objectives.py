"""Which gradient and Hessian does a record bring to a tree, at the margin that it has by then?

In float32 and in XGBoost's own order of operations: what a client computed is met to a rounding of
each number, and only that rounding remains as noise. ``noise`` is its scale: the size of the terms
that are rounded, in units of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack
from overheard.programs.trees.model import Booster

Floats = NDArray[np.float32]
Pair = tuple[Floats, Floats]

_ONE = np.float32(1)
_TINY = np.float32(1e-16)


@dataclass(frozen=True)
class Objective:
    """start: margins from the base score; pair: g and h (n, groups) from margins and labels (n,)."""

    name: str
    start: Callable[[Floats], Floats]
    pair: Callable[[Floats, Floats, Booster], Pair]


def _sigmoid(margin: Floats) -> Floats:
    # XGBoost bounds the exponent at 88.7 and adds 1e-16 so that nothing is divided by zero
    return np.asarray(_ONE / (np.exp(np.minimum(-margin, np.float32(88.7))) + _ONE + _TINY))


def _logistic(margin: Floats, label: Floats, model: Booster) -> Pair:
    p, y = _sigmoid(margin), label[:, None]
    weight = np.where(y == 1, np.float32(model.scale_pos_weight), _ONE)
    return (p - y) * weight, np.maximum(p * (_ONE - p), _TINY) * weight


def _squared(margin: Floats, label: Floats, model: Booster) -> Pair:
    return margin - label[:, None], np.ones_like(margin)


def _poisson(margin: Floats, label: Floats, model: Booster) -> Pair:
    step = np.float32(model.max_delta_step)
    return np.exp(margin) - label[:, None], np.exp(margin + step)


def _gamma(margin: Floats, label: Floats, model: Booster) -> Pair:
    ratio = label[:, None] / np.exp(margin)
    return _ONE - ratio, ratio


def _softmax(margin: Floats, label: Floats, model: Booster) -> Pair:
    raised = np.exp(margin - margin.max(axis=1, keepdims=True))
    p = raised / raised.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    mine = np.arange(margin.shape[1]) == label[:, None]
    return p - mine.astype(np.float32), np.maximum(np.float32(2) * p * (_ONE - p), _TINY)


def _logit(base: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(_ONE / base - _ONE))


def _same(base: Floats) -> Floats:
    return base


OBJECTIVES: Mapping[str, Objective] = {
    o.name: o
    for o in (
        Objective("binary:logistic", _logit, _logistic),
        Objective("reg:squarederror", _same, _squared),
        Objective("count:poisson", np.log, _poisson),
        Objective("reg:gamma", np.log, _gamma),
        Objective("multi:softprob", _same, _softmax),
        Objective("multi:softmax", _same, _softmax),
    )
}


def objective_of(model: Booster) -> Objective:
    """The model's objective, if its gradients are known here."""
    found = OBJECTIVES.get(model.objective)
    if found is None:
        raise ChooseAnotherAttack(
            f"the trees were grown for {model.objective[:60]!r}; known are {', '.join(OBJECTIVES)}"
        )
    return found


def start_margin(model: Booster) -> Floats:
    """The margin (groups,) before any tree."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Any = objective_of(model).start(model.base_score)
    if not np.isfinite(found).all():
        raise ChooseAnotherAttack(
            f"base_score {model.base_score.tolist()} has no margin under {model.objective}"
        )
    return np.asarray(found, dtype=np.float32)
