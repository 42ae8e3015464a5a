"""Which gradient and Hessian does a record bring to a tree, at the margin that it has by then?

In float32 and in XGBoost's own order of operations: what a client computed is met to a rounding of
each number, and only that rounding remains as noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from overheard.errors import ChooseAnotherAttack
from overheard.programs.trees.model import Booster, Floats

_ONE = np.float32(1)
_TINY = np.float32(1e-16)


@dataclass(frozen=True)
class Terms:
    """g and h (n, groups) of each record; spread: the size of the numbers that were rounded to
    make them, which bounds by how much another exponential function would change both."""

    gradient: Floats
    hessian: Floats
    spread: Floats


_PARTS = 32
_POLYNOMIAL = tuple(
    float.fromhex(c) / _PARTS**n
    for n, c in (
        (3, "0x1.c6af84b912394p-5"),
        (2, "0x1.ebfce50fac4f3p-3"),
        (1, "0x1.62e42ff0c52d6p-1"),
    )
)


def exponential(x: Floats) -> Floats:
    """e^x in float32, bit by bit as the C library of Linux (glibc's expf) has it.

    Rounding once from float64 differs in one number of 2,000, numpy's float32 in two of five; where
    many records share a margin, such a difference adds up over all of them.
    """
    with np.errstate(over="ignore", under="ignore"):
        turns = float.fromhex("0x1.71547652b82fep+0") * _PARTS * x.astype(np.float64)
        whole = np.rint(turns)
        rest = turns - whole
        power = np.ldexp(np.exp2((whole % _PARTS) / _PARTS), (whole // _PARTS).astype(np.int64))
        cubic, square, linear = _POLYNOMIAL
        fraction = (cubic * rest + square) * (rest * rest) + (linear * rest + 1.0)
        return np.asarray((fraction * power).astype(np.float32))


def _logistic(margin: Floats, label: Floats, model: Booster) -> Terms:
    # XGBoost bounds the exponent at 88.7 and adds 1e-16 so that nothing is divided by zero
    p = _ONE / (exponential(np.minimum(-margin, np.float32(88.7))) + _ONE + _TINY)
    y = label[:, None]
    weight = np.where(y == 1, np.float32(model.scale_pos_weight), _ONE)
    return Terms((p - y) * weight, np.maximum(p * (_ONE - p), _TINY) * weight, p * weight)


def _squared(margin: Floats, label: Floats, model: Booster) -> Terms:
    gap = margin - label[:, None]
    return Terms(gap, np.ones_like(margin), np.zeros_like(margin))


def _poisson(margin: Floats, label: Floats, model: Booster) -> Terms:
    hessian = exponential(margin + np.float32(model.max_delta_step))
    return Terms(exponential(margin) - label[:, None], hessian, hessian)


def _gamma(margin: Floats, label: Floats, model: Booster) -> Terms:
    ratio = label[:, None] / exponential(margin)
    return Terms(_ONE - ratio, ratio, ratio)


def _softmax(margin: Floats, label: Floats, model: Booster) -> Terms:
    raised = exponential(margin - margin.max(axis=1, keepdims=True))
    p = raised / raised.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    mine = np.arange(margin.shape[1]) == label[:, None]
    hessian = np.maximum(np.float32(2) * p * (_ONE - p), _TINY)
    return Terms(p - mine.astype(np.float32), hessian, np.float32(2) * p)


def _logit(base: Floats) -> Floats:
    return -_log(_ONE / base - _ONE)


def _log(x: Floats) -> Floats:
    return np.asarray(np.log(x, dtype=np.float64).astype(np.float32))


def _same(base: Floats) -> Floats:
    return base


class Objective(NamedTuple):
    """start: margins from the base score; terms: from margins (n, groups) and labels (n,)."""

    start: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats, Booster], Terms]


OBJECTIVES = {
    "binary:logistic": Objective(_logit, _logistic),
    "reg:squarederror": Objective(_same, _squared),
    "count:poisson": Objective(_log, _poisson),
    "reg:gamma": Objective(_log, _gamma),
    "multi:softprob": Objective(_same, _softmax),
    "multi:softmax": Objective(_same, _softmax),
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
