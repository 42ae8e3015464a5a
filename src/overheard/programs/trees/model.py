"""What does an XGBoost model say, and where does it send a record?

A model is read from its JSON or UBJSON (never unpickled). Every field that is used is checked:
sizes, indices, finite numbers, each tree a tree. Models of other boosters (gblinear, dart), with
vector leaves or of a future form are refused in a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording
from overheard.foreign.limits import check
from overheard.foreign.notation import parse_json
from overheard.programs.trees.ubjson import parse_ubjson

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_CLASSES = 1000
_TREES = re.compile(rb'"trees"\s*:\s*\[')
_LAST_KEY = b'"tree_param"'  # of a tree, in the order in which XGBoost writes them
MOST_DEPTH = 1000
MOST_CATEGORIES = 1 << 16


@dataclass(frozen=True, eq=False)  # a tree is itself; its arrays are compared where needed
class Tree:
    """One tree; arrays over its nodes, node 0 the root, ``left`` -1 at leaves.

    value: the threshold of an inner node, what a leaf adds to the margin (times eta already).
    weight, hessian, gain: what the model says of each node, None where it says nothing;
    inner weights are without eta. categories: (nodes, C) true where a category goes right, or None.
    """

    left: Ints
    right: Ints
    feature: Ints
    value: Floats
    default_left: Flags
    group: int
    weight: Floats | None
    hessian: Floats | None
    gain: Floats | None
    categories: Flags | None = None
    depth: int = 0
    reached: Flags | None = None

    @property
    def leaf(self) -> Flags:
        return self.left < 0

    def leaves(self, inputs: Floats) -> Ints:
        """The leaf (n,) of each row of inputs (n, d); NaN takes the default direction."""
        node = np.zeros(len(inputs), dtype=np.int64)
        rows = np.arange(len(inputs))
        for _ in range(self.depth):
            x = inputs[rows, self.feature[node]]
            goes_left = np.where(np.isnan(x), self.default_left[node], x < self.value[node])
            if self.categories is not None:
                goes_left = self._by_category(node, x, goes_left)
            following = np.where(goes_left, self.left[node], self.right[node])
            node = np.where(self.left[node] < 0, node, following)
        return node

    def _by_category(self, node: Ints, x: Floats, goes_left: Flags) -> Flags:
        assert self.categories is not None
        sets = self.categories
        split = sets[:, 0][node]
        known = split & (x >= 0) & (x < sets.shape[1] - 1)  # others are in no set and go left
        column = np.where(known, x, 0).astype(np.int64) + 1
        return np.where(split & ~np.isnan(x), ~(known & sets[node, column]), goes_left)


@dataclass(frozen=True)
class Booster:
    """A model: its trees in order, one base score a group, and what its objective says.

    groups: 1, or the number of classes. parallel: trees that are grown at once and share a step.
    """

    objective: str
    trees: tuple[Tree, ...]
    base_score: Floats
    groups: int
    parallel: int
    features: int
    scale_pos_weight: float = 1.0
    max_delta_step: float = 0.0

    @cached_property
    def fields(self) -> frozenset[str]:
        """Which sums the model carries at every tree: "weight", "hessian", "gain"."""
        named = ("weight", "hessian", "gain")
        return frozenset(n for n in named if all(getattr(t, n) is not None for t in self.trees))


def read_model(raw: bytes, where: object) -> Booster:
    """The model that these bytes hold: JSON or UBJSON of XGBoost."""
    check("json_bytes", len(raw), where)
    if raw[:1] != b"{":
        raise FixRecording(
            f"{where}: neither JSON nor UBJSON of XGBoost; save the model with "
            'save_raw("json") or save_raw("ubj")'
        )
    # UBJSON goes on with the marker of a length, JSON with a quote or space
    binary = raw[1:2] in (b"L", b"l", b"I", b"i", b"U")
    said = parse_ubjson(raw, where) if binary else parse_json(raw, where)
    return Checked(where).booster(said)


def read_growing(raws: Sequence[bytes], where: str) -> list[Booster | None]:
    """Models of successive rounds; empty bytes are none yet.

    A federation sends the same trees again every round, with some more behind them. Where the text
    of a model's trees is how the last one's begin, they are the last one's trees, read once.
    """
    if not raws or not raws[-1]:
        return [read_model(raw, f"{where} {n}") if raw else None for n, raw in enumerate(raws, 1)]
    last, text = read_model(raws[-1], f"{where} {len(raws)}"), _split(raws[-1])
    found: list[Booster | None] = []
    for number, raw in enumerate(raws, 1):
        place, here = f"{where} {number}", _split(raw)
        grown = here is not None and text is not None and text[0].startswith(here[0] + b",")
        if number == len(raws):
            found.append(last)
        elif grown and here is not None:
            known = last.trees[: here[0].count(_LAST_KEY)]
            found.append(Checked(place).booster(parse_json(here[1], place), known))
        else:
            found.append(read_model(raw, place) if raw else None)
    return found


def _split(raw: bytes) -> tuple[bytes, bytes] | None:
    """The text of a JSON model's trees, and the model without them; None if it is ordered
    otherwise than XGBoost does it."""
    begin, last = _TREES.search(raw), raw.rfind(_LAST_KEY)
    end = raw.find(b"]", last)
    if begin is None or last < begin.end() or end < 0:
        return None
    return raw[begin.end() : end].strip(), raw[: begin.end()] + raw[end:]


class Checked:
    """Reads fields by name and refuses what is not as it must be, naming the place."""

    def __init__(self, where: object) -> None:
        self.where = where

    def wrong(self, what: str) -> FixRecording:
        return FixRecording(f"{self.where}: not a model of XGBoost's gbtree: {what}")

    def table(self, said: Any, *path: str) -> dict[str, Any]:
        for key in path:
            said = said.get(key) if isinstance(said, dict) else None
        if not isinstance(said, dict):
            raise self.wrong(f"{'.'.join(path) or 'it'} is no table")
        return said

    def number(self, said: dict[str, Any], key: str, least: float, most: float) -> float:
        """A number, in quotes or not, within these."""
        given = said.get(key)
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise self.wrong(f"{key} is {str(given)[:40]!r}, not a number")
        try:
            found = float(given)
        except (ValueError, OverflowError):
            raise self.wrong(f"{key} is {str(given)[:40]!r}, not a number") from None
        if not least <= found <= most:  # false for NaN, too
            raise self.wrong(f"{key} is {found:g}, not from {least:g} to {most:g}")
        return found

    def whole(self, said: dict[str, Any], key: str, least: int, most: int) -> int:
        found = self.number(said, key, least, most)
        if found != int(found):
            raise self.wrong(f"{key} is {found:g}, not a whole number")
        return int(found)

    def list_of(self, said: dict[str, Any], key: str) -> list[Any]:
        found = said.get(key)
        if not isinstance(found, list):
            raise self.wrong(f"{key} is no list")
        return found

    def array(self, said: dict[str, Any], key: str, size: int | None, kind: str) -> NDArray[Any]:
        """A list of ``size`` numbers; kind "f" finite float32, "i" whole."""
        given = said.get(key)
        if not isinstance(given, list | np.ndarray):
            raise self.wrong(f"{key} is no list")
        try:
            found = np.asarray(given)
        except (ValueError, OverflowError):
            raise self.wrong(f"{key} is no list of numbers") from None
        if found.size == 0:
            found = np.zeros(len(given), dtype=np.int64)
        if found.ndim != 1 or found.dtype.kind not in ("iufb" if kind == "f" else "iub"):
            raise self.wrong(f"{key} is no list of {'numbers' if kind == 'f' else 'whole numbers'}")
        if size is not None and len(found) != size:
            raise self.wrong(f"{key} has {len(found)} numbers where {size} belong")
        if kind == "i":
            return found.astype(np.int64)
        with np.errstate(over="ignore"):
            made = found.astype(np.float32)
        if not np.isfinite(made).all():
            raise self.wrong(f"{key} holds a number that float32 does not")
        return made

    def booster(self, said: Any, known: tuple[Tree, ...] | None = None) -> Booster:
        """The model; ``known``: its trees, where they were read before."""
        learner = self.table(said, "learner")
        grown = self.table(learner, "gradient_booster")
        if grown.get("name") != "gbtree":
            raise self.wrong(f"its booster is {str(grown.get('name'))[:40]!r}")
        objective = self.table(learner, "objective")
        name = objective.get("name")
        if not isinstance(name, str):
            raise self.wrong("its objective has no name")
        params = self.table(learner, "learner_model_param")
        groups = max(1, self.whole(params, "num_class", 0, MOST_CLASSES))
        if "num_target" in params:
            self.whole(params, "num_target", 0, 1)  # several targets have vectors for leaves
        features = self.whole(params, "num_feature", 0, 1 << 24)
        model = self.table(grown, "model")
        shape = self.table(model, "gbtree_model_param")
        parallel = max(1, self.whole(shape, "num_parallel_tree", 0, 1 << 16))
        trees = self.list_of(model, "trees") if known is None else list(known)
        info = self.array(model, "tree_info", len(trees), "i")
        if len(trees) != self.whole(shape, "num_trees", 0, 1 << 24):
            raise self.wrong(f"num_trees is {shape['num_trees']} and there are {len(trees)} trees")
        if len(info) and not 0 <= info.min() <= info.max() < groups:
            raise self.wrong(f"tree_info names a class beyond the {groups} there are")
        loss, poisson = (
            self.table(objective, key) if key in objective else {}
            for key in ("reg_loss_param", "poisson_regression_param")
        )
        return Booster(
            name,
            tuple(
                t if isinstance(t, Tree) else self.tree(self.table(t), int(g), features)
                for t, g in zip(trees, info, strict=True)
            ),
            self.base_score(params, groups),
            groups,
            parallel,
            features,
            self.number(loss, "scale_pos_weight", 0, 1e30) if "scale_pos_weight" in loss else 1.0,
            self.number(poisson, "max_delta_step", 0, 80) if "max_delta_step" in poisson else 0.0,
        )

    def base_score(self, params: dict[str, Any], groups: int) -> Floats:
        """One number, "5E-1", or since XGBoost 3.1 one a class, "[5E-1,5E-1]"."""
        given = params.get("base_score")
        text = given if isinstance(given, str) else str(given)
        parts = text.strip().removeprefix("[").removesuffix("]").split(",")
        if len(parts) not in (1, groups):
            raise self.wrong(f"base_score has {len(parts)} numbers for {groups} classes")
        each = [self.number({"base_score": p.strip()}, "base_score", -1e30, 1e30) for p in parts]
        return np.resize(np.asarray(each, dtype=np.float32), groups)

    def tree(self, said: dict[str, Any], group: int, features: int) -> Tree:
        shape = self.table(said, "tree_param")
        if "size_leaf_vector" in shape and self.whole(shape, "size_leaf_vector", 0, 1 << 16) > 1:
            raise self.wrong("a leaf holds a vector (multi_output_tree)")
        nodes = self.whole(shape, "num_nodes", 1, 1 << 24)
        left = self.array(said, "left_children", nodes, "i")
        right = self.array(said, "right_children", nodes, "i")
        feature = self.array(said, "split_indices", nodes, "i")
        value = self.array(said, "split_conditions", nodes, "f")
        default = self.array(said, "default_left", nodes, "i")
        reached, depth = self.walked(left, right)
        inner = reached & (left >= 0)
        if inner.any() and not 0 <= feature[inner].min() <= feature[inner].max() < features:
            raise self.wrong(f"a split on a feature beyond the {features} there are")
        return Tree(
            left,
            right,
            np.where(inner, feature, 0),
            value,
            default.astype(bool),
            group,
            self.said_of_nodes(said, "base_weights", reached),
            self.said_of_nodes(said, "sum_hessian", reached),
            self.said_of_nodes(said, "loss_changes", reached),
            self.categories(said, nodes),
            depth,
            reached,
        )

    def said_of_nodes(self, said: dict[str, Any], key: str, reached: Flags) -> Floats | None:
        """What a field says of every node; None where it was left out or masked, by zeros or, as
        FLARE does it, by ones: no sum over a node is that over each of its children."""
        if key not in said or not len(
            said[key] if isinstance(said[key], list | np.ndarray) else "-"
        ):
            return None
        found = self.array(said, key, len(reached), "f")
        seen = found[reached]
        masked = (seen == seen[0]).all() and (len(seen) > 1 or seen[0] in (0, 1))
        return None if masked else found

    def walked(self, left: Ints, right: Ints) -> tuple[Flags, int]:
        """Which nodes the root reaches, and how deep; refused unless they form a tree."""
        reached = np.zeros(len(left), dtype=bool)
        reached[0] = True
        level, depth = np.zeros(1, dtype=np.int64), 0
        while True:
            level = level[left[level] != -1]
            if not len(level):
                return reached, depth
            below = np.concatenate([left[level], right[level]])
            if not 0 <= below.min() <= below.max() < len(left):
                raise self.wrong(f"a child beyond the {len(left)} nodes of its tree")
            if reached[below].any() or len(np.unique(below)) < len(below):
                raise self.wrong("a node that has two parents")
            reached[below] = True
            level, depth = below, depth + 1
            if depth > MOST_DEPTH:
                raise self.wrong(f"a tree deeper than {MOST_DEPTH}")

    def categories(self, said: dict[str, Any], nodes: int) -> Flags | None:
        """(nodes, 1 + C): column 0 true at nodes that split on a category; column 1 + c true where
        category c goes right."""
        if "categories_nodes" not in said:
            return None
        at = self.array(said, "categories_nodes", None, "i")
        if not len(at):
            return None
        starts = self.array(said, "categories_segments", len(at), "i")
        sizes = self.array(said, "categories_sizes", len(at), "i")
        values = self.array(said, "categories", None, "i")
        if not 0 <= at.min() <= at.max() < nodes:
            raise self.wrong("categories of a node that there is not")
        if min(starts.min(), sizes.min()) < 0 or (starts + sizes).max() > len(values):
            raise self.wrong("categories_segments reach beyond the categories")
        if len(values) and not 0 <= values.min() <= values.max() < MOST_CATEGORIES:
            raise self.wrong(f"a category beyond {MOST_CATEGORIES}")
        width = int(values.max(initial=0)) + 2
        check("json_values", nodes * width, self.where)
        sets = np.zeros((nodes, width), dtype=bool)
        for node, start, size in zip(at, starts, sizes, strict=True):
            sets[node, 0] = True
            sets[node, 1 + values[start : start + size]] = True
        return sets
