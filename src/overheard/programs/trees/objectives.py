"""Which gradient and Hessian does a record bring to a tree, at the margin that it has by then?

In float32 and in XGBoost's own order of operations: what a client computed is met to a rounding of
each number, and only that rounding remains as noise.
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

_ONE = np.float32(1)
_TINY = np.float32(1e-16)


@dataclass(frozen=True)
class Terms:
    """g and h (n, groups) of each record; spread: the size of the numbers that were rounded to
    make them, which bounds by how much another exponential function would change both."""

    gradient: Floats
    hessian: Floats
    spread: Floats


@dataclass(frozen=True)
class Objective:
    """start: margins from the base score; terms: from margins (n, groups) and labels (n,)."""

    name: str
    start: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats, Booster], Terms]


def _exp(x: Floats) -> Floats:
    """Rounded once, from float64: as good libraries do it, and numpy's float32 does not."""
    return np.exp(x, dtype=np.float64).astype(np.float32)


def _logistic(margin: Floats, label: Floats, model: Booster) -> Terms:
    # XGBoost bounds the exponent at 88.7 and adds 1e-16 so that nothing is divided by zero
    p = _ONE / (_exp(np.minimum(-margin, np.float32(88.7))) + _ONE + _TINY)
    y = label[:, None]
    weight = np.where(y == 1, np.float32(model.scale_pos_weight), _ONE)
    return Terms((p - y) * weight, np.maximum(p * (_ONE - p), _TINY) * weight, p * weight)


def _squared(margin: Floats, label: Floats, model: Booster) -> Terms:
    gap = margin - label[:, None]
    return Terms(gap, np.ones_like(margin), np.zeros_like(margin))


def _poisson(margin: Floats, label: Floats, model: Booster) -> Terms:
    hessian = _exp(margin + np.float32(model.max_delta_step))
    return Terms(_exp(margin) - label[:, None], hessian, hessian)


def _gamma(margin: Floats, label: Floats, model: Booster) -> Terms:
    ratio = label[:, None] / _exp(margin)
    return Terms(_ONE - ratio, ratio, ratio)


def _softmax(margin: Floats, label: Floats, model: Booster) -> Terms:
    raised = _exp(margin - margin.max(axis=1, keepdims=True))
    p = raised / raised.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    mine = np.arange(margin.shape[1]) == label[:, None]
    hessian = np.maximum(np.float32(2) * p * (_ONE - p), _TINY)
    return Terms(p - mine.astype(np.float32), hessian, np.float32(2) * p)


def _logit(base: Floats) -> Floats:
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
