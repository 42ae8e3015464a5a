"""What does a LightGBM model say, saved as text?

Its leaves hold what XGBoost's hold, in float64: the value (times the learning rate), the sum of
Hessians, and the number of records besides. The first tree's values include the score that boosting
began at (``boost_from_average``), which is told apart from them: gradients add up to zero there.
Splits on categories, zeros as missing values and linear leaves are refused in a line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.foreign.limits import check
from overheard.programs.trees.model import MOST_CLASSES, Booster, Checked, Tree

MOST_LEAVES = 1 << 20
OBJECTIVES = ("binary", "regression")


def read_text(raw: bytes, where: object) -> Booster:
    """The model that this text holds."""
    check("json_bytes", len(raw), where)
    checked = Checked(where, "of LightGBM")
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise checked.wrong("it is no plain text") from None
    body, _, rest = text.partition("\nend of trees")
    head, *blocks = body.split("\nTree=")
    said = _fields(head)
    objective = said.get("objective", "").split(" ")
    options = _parameters(rest)
    plain = {"boosting": ("gbdt",), "scale_pos_weight": ("1",), "is_unbalance": ("0",)}
    for name, usual in plain.items():
        if options.get(name, usual[0]) not in usual:
            raise checked.wrong(f"{name} is {options[name][:40]!r}")
    if objective[0] not in OBJECTIVES or not set(objective[1:]) <= {"sigmoid:1"}:
        raise checked.wrong(f"its objective is {' '.join(objective)[:40]!r}")
    if checked.whole(said, "num_tree_per_iteration", 1, MOST_CLASSES) != 1:
        raise checked.wrong("it has several trees an iteration")
    features = checked.whole(said, "max_feature_idx", 0, 1 << 24) + 1
    penalty = checked.number({"lambda_l2": 0, **options}, "lambda_l2", 0, 1e6)
    trees = [_tree(checked, _fields(block), features) for block in blocks]
    start = 0.0
    if trees and options.get("boost_from_average", "1") != "0":
        start, trees[0] = _begun(trees[0], penalty, objective[0])
    return Booster(objective[0], tuple(trees), np.array([start]), 1, 1, features)


def _fields(block: str) -> dict[str, Any]:
    return dict(line.split("=", 1) for line in block.split("\n") if "=" in line)


def _parameters(text: str) -> dict[str, str]:
    lines = (line[1:-1] for line in text.split("\n") if line[:1] == "[" and line[-1:] == "]")
    return {name: value for name, colon, value in (x.partition(": ") for x in lines) if colon}


def _numbers(checked: Checked, said: dict[str, Any], key: str, size: int) -> NDArray[np.float64]:
    try:
        found = np.array(said.get(key, "").split(), dtype=np.float64)
    except ValueError:
        raise checked.wrong(f"{key} is no list of numbers") from None
    if len(found) != size or not np.isfinite(found).all():
        raise checked.wrong(f"{key} has {len(found)} numbers where {size} finite ones belong")
    return found


def _tree(checked: Checked, said: dict[str, Any], features: int) -> Tree:
    """Inner nodes come first, then leaves; a child below zero is the leaf of that number."""
    leaves = checked.whole(said, "num_leaves", 1, MOST_LEAVES)
    inner = leaves - 1
    if said.get("num_cat", "0") != "0" or said.get("is_linear", "0") != "0":
        raise checked.wrong("a tree splits on categories or has linear leaves")
    value, weight, count = (
        _numbers(checked, said, key, leaves) if key in said else None
        for key in ("leaf_value", "leaf_weight", "leaf_count")
    )
    if value is None:
        raise checked.wrong("a tree has no leaf_value")
    sides, feature, threshold, kind = [], *(np.zeros(0) for _ in range(3))
    if inner:
        sides = [_numbers(checked, said, k, inner) for k in ("left_child", "right_child")]
        feature, threshold, kind = (
            _numbers(checked, said, k, inner)
            for k in ("split_feature", "threshold", "decision_type")
        )
    below = np.full((2, inner + leaves), -1, dtype=np.int64)
    for row, side in zip(below, sides, strict=False):
        if np.abs(side).max() > leaves:
            raise checked.wrong(f"a child beyond the {leaves} leaves of its tree")
        row[:inner] = np.where(side < 0, inner - 1 - side, side)
    reached, depth = checked.walked(below[0], below[1])
    if inner and not 0 <= feature.min() <= feature.max() < features:
        raise checked.wrong(f"a split on a feature beyond the {features} there are")
    if not np.isin(kind, (0, 2, 8, 10)).all():
        raise checked.wrong("a split that takes zeros for missing values, or on categories")
    # who is missing is 0 where the feature had no missing values
    missing_left = np.where(kind < 8, threshold >= 0, kind == 10)
    none = np.zeros(leaves)
    return Tree(
        below[0],
        below[1],
        np.append(feature, none).astype(np.int64),
        np.append(np.nextafter(threshold, np.inf), value),  # up to the threshold goes left
        np.append(missing_left, none).astype(bool),
        0,
        None,
        _of_leaves(weight, inner),
        None,
        None,
        depth,
        reached,
        _of_leaves(count, inner),
    )


def _of_leaves(given: NDArray[np.float64] | None, inner: int) -> NDArray[np.float64] | None:
    """What is said of leaves, with zeros for inner nodes; None where nothing is (masked)."""
    return np.append(np.zeros(inner), given) if given is not None and given.any() else None


def _begun(tree: Tree, penalty: float, objective: str) -> tuple[float, Tree]:
    """The score that boosting began at, and the first tree without it: (H + lambda) times what a
    leaf adds to it, summed, is minus the sum of all gradients there, zero."""
    leaf, hessian, count = tree.leaf, tree.hessian, tree.count
    if hessian is None or count is None:
        return 0.0, tree
    start = float(np.average(tree.value[leaf], weights=hessian[leaf] + penalty))
    people = count[leaf].sum()
    if objective == "binary":  # the share with the label is a whole number of people
        have = np.clip(np.rint(people / (1 + np.exp(-start))), 1, people - 1)
        start = float(np.log(have / (people - have)))
    value = np.where(leaf, tree.value - start, tree.value)
    return start, Tree(**{**vars(tree), "value": value})
