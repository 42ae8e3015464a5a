"""What does an XGBoost model say, and where does it send a record?

A model is read from its JSON or UBJSON (never unpickled). Every field that is used is checked:
sizes, indices, finite numbers, each tree a tree. Models of other boosters (gblinear, dart), with
vector leaves or of a future form are refused in a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from overheard.errors import FixRecording
from overheard.foreign.limits import check
from overheard.foreign.notation import parse_json
from overheard.programs.trees.ubjson import parse_ubjson

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_TREES = re.compile(rb'"trees"\s*:\s*\[')
_LAST_KEY = b'"tree_param"'  # of a tree, in the order in which XGBoost writes them
MOST_CLASSES = 1000
MOST_DEPTH = 1000


@dataclass(frozen=True, eq=False)  # a tree is itself; its arrays are compared where needed
class Tree:
    """One tree; arrays over its nodes, node 0 the root, ``left`` -1 at leaves.

    value: the threshold of an inner node, what a leaf adds to the margin (times eta already).
    hessian: its sum over each node, None where the model says nothing. categories: of each node
    that splits on one, those that go right.
    """

    left: Ints
    right: Ints
    feature: Ints
    value: Floats
    default_left: Flags
    group: int
    hessian: Floats | None
    categories: Mapping[int, Ints] = field(default_factory=dict)

    @property
    def leaf(self) -> Flags:
        return self.left < 0

    def leaves(self, inputs: Floats) -> Ints:
        """The leaf (n,) of each row of inputs (n, d); NaN takes the default direction."""
        node = np.zeros(len(inputs), dtype=np.int64)
        rows = np.arange(len(inputs))
        while (self.left[node] >= 0).any():
            x = inputs[rows, self.feature[node]]
            goes_left = x < self.value[node]
            for split in self.categories.keys() & set(node.tolist()):
                here = node == split
                number = np.where(x[here] >= 0, np.floor(x[here]), -1)
                goes_left[here] = ~np.isin(number, self.categories[split])  # others go left
            goes_left = np.where(np.isnan(x), self.default_left[node], goes_left)
            following = np.where(goes_left, self.left[node], self.right[node])
            node = np.where(self.left[node] < 0, node, following)
        return node


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
    return _checked(parse_ubjson(raw, where) if binary else parse_json(raw, where), where)


def read_growing(raws: Sequence[bytes], where: str) -> list[Booster | None]:
    """Models of successive rounds; empty bytes are none yet.

    A federation sends the same trees again every round, with some more behind them. Where the text
    of a model's trees is how the last one's begin, they are the last one's trees, read once.
    """
    found: list[Booster | None] = []
    last, text = None, b""
    for number, raw in reversed([*enumerate(raws, 1)]):
        place, here = f"{where} {number}", _split(raw)
        if last is not None and here is not None and text.startswith(here[0] + b","):
            known = last.trees[: here[0].count(_LAST_KEY)]
            found.append(_checked(parse_json(here[1], place), place, known))
            continue
        found.append(read_model(raw, place) if raw else None)
        if last is None and here is not None:
            last, text = found[-1], here[0]
    return found[::-1]


def _split(raw: bytes) -> tuple[bytes, bytes] | None:
    """The text of a JSON model's trees, and the model without them; None if it is ordered
    otherwise than XGBoost does it."""
    begin, last = _TREES.search(raw), raw.rfind(_LAST_KEY)
    end = raw.find(b"]", last)
    if begin is None or last < begin.end() or end < 0:
        return None
    return raw[begin.end() : end].strip(), raw[: begin.end()] + raw[end:]


# The form of a model's text, as far as it is used; XGBoost writes single numbers in quotes.


def _numbers(given: Any, kinds: str) -> NDArray[Any]:
    found = np.asarray(given if isinstance(given, list | np.ndarray) else None)
    if found.size == 0 and found.ndim == 1:
        return np.zeros(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in kinds:
        raise ValueError("is no list of numbers of its kind")
    return found


def _whole(given: Any) -> Ints:
    return _numbers(given, "iub").astype(np.int64)


def _finite(given: Any) -> Floats:
    with np.errstate(over="ignore"):
        made = _numbers(given, "iufb").astype(np.float32)
    if not np.isfinite(made).all():
        raise ValueError("holds a number that float32 does not")
    return made


def _listed(given: Any) -> Any:
    """One number, "5E-1", or since XGBoost 3.1 one a class, "[5E-1,5E-1]"."""
    return str(given).strip().removeprefix("[").removesuffix("]").split(",")


_Whole = Annotated[Ints, PlainValidator(_whole)]
_Finite = Annotated[Floats, PlainValidator(_finite)]
_None = np.zeros(0, dtype=np.int64)


class _Text(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _TreeParam(_Text):
    num_nodes: int = Field(ge=1, le=1 << 24)
    size_leaf_vector: int = Field(default=1, ge=0, le=1)  # more: vectors (multi_output_tree)


class _TreeText(_Text):
    tree_param: _TreeParam
    left_children: _Whole
    right_children: _Whole
    split_indices: _Whole
    split_conditions: _Finite
    default_left: _Whole
    sum_hessian: _Finite = np.zeros(0, dtype=np.float32)
    categories_nodes: _Whole = _None
    categories_segments: _Whole = _None
    categories_sizes: _Whole = _None
    categories: _Whole = _None


class _Shape(_Text):
    num_parallel_tree: int = Field(ge=0, le=1 << 16)
    num_trees: int = Field(ge=0, le=1 << 24)


class _Trees(_Text):
    gbtree_model_param: _Shape
    tree_info: _Whole
    trees: list[_TreeText]


class _Gbtree(_Text):
    name: Literal["gbtree"]
    model: _Trees


class _Loss(_Text):
    scale_pos_weight: float = Field(default=1.0, ge=0, le=1e30)


class _Poisson(_Text):
    max_delta_step: float = Field(default=0.0, ge=0, le=80)


class _Objective(_Text):
    name: str
    reg_loss_param: _Loss = _Loss()
    poisson_regression_param: _Poisson = _Poisson()


class _Params(_Text):
    num_class: int = Field(ge=0, le=MOST_CLASSES)
    num_target: int = Field(default=1, ge=0, le=1)  # several have vectors for leaves
    num_feature: int = Field(ge=0, le=1 << 24)
    base_score: Annotated[list[float], BeforeValidator(_listed)]


class _Learner(_Text):
    gradient_booster: _Gbtree
    objective: _Objective
    learner_model_param: _Params


class _Document(_Text):
    learner: _Learner


def _checked(said: Any, where: object, known: tuple[Tree, ...] | None = None) -> Booster:
    """The model; ``known``: its trees, where they were read before."""
    try:
        return _booster(_Document.model_validate(said).learner, known)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))[:150]}: {first['msg'][:100]}"
    except ValueError as error:
        what = str(error)
    raise FixRecording(f"{where}: not a model of XGBoost's gbtree: {what}")


def _booster(learner: _Learner, known: tuple[Tree, ...] | None) -> Booster:
    params, objective = learner.learner_model_param, learner.objective
    grown = learner.gradient_booster.model
    groups, shape = max(1, params.num_class), grown.gbtree_model_param
    count = len(grown.trees) if known is None else len(known)
    if not count == shape.num_trees == len(grown.tree_info):
        raise ValueError(f"num_trees is {shape.num_trees}, and there are {count} trees")
    if count and not 0 <= grown.tree_info.min() <= grown.tree_info.max() < groups:
        raise ValueError(f"tree_info names a class beyond the {groups} there are")
    if len(params.base_score) not in (1, groups) or np.abs(params.base_score).max() > 1e30:
        raise ValueError(f"base_score {str(params.base_score)[:40]} for {groups} classes")
    return Booster(
        objective.name,
        known if known is not None else tuple(
            _tree(tree, int(group), params.num_feature)
            for tree, group in zip(grown.trees, grown.tree_info, strict=True)
        ),
        np.resize(np.asarray(params.base_score, dtype=np.float32), groups),
        groups,
        max(1, shape.num_parallel_tree),
        params.num_feature,
        objective.reg_loss_param.scale_pos_weight,
        objective.poisson_regression_param.max_delta_step,
    )  # fmt: skip


def _tree(said: _TreeText, group: int, features: int) -> Tree:
    left, right, feature = said.left_children, said.right_children, said.split_indices
    nodes = said.tree_param.num_nodes
    for one in (left, right, feature, said.split_conditions, said.default_left):
        if len(one) != nodes:
            raise ValueError(f"a tree with {len(one)} numbers where {nodes} belong")
    reached = _walked(left, right)
    inner = reached & (left >= 0)
    if inner.any() and not 0 <= feature[inner].min() <= feature[inner].max() < features:
        raise ValueError(f"a split on a feature beyond the {features} there are")
    return Tree(
        left,
        right,
        np.where(inner, feature, 0),
        said.split_conditions,
        said.default_left.astype(bool),
        group,
        _unmasked(said.sum_hessian, reached),
        _categories(said),
    )


def _unmasked(hessian: Floats, reached: Flags) -> Floats | None:
    """What is said of every node; None where it was left out or masked, by zeros or, as FLARE does
    it, by ones: no sum over a node is that over each of its children."""
    if not len(hessian):
        return None
    if len(hessian) != len(reached):
        raise ValueError(f"sum_hessian has {len(hessian)} numbers where {len(reached)} belong")
    seen = hessian[reached]
    masked = (seen == seen[0]).all() and (len(seen) > 1 or seen[0] in (0, 1))
    return None if masked else hessian


def _walked(left: Ints, right: Ints) -> Flags:
    """Which nodes the root reaches; refused unless they form a tree."""
    reached = np.zeros(len(left), dtype=bool)
    reached[0] = True
    level = np.zeros(1, dtype=np.int64)
    for _ in range(MOST_DEPTH):
        level = level[left[level] != -1]
        if not len(level):
            return reached
        below = np.concatenate([left[level], right[level]])
        if not 0 <= below.min() <= below.max() < len(left):
            raise ValueError(f"a child beyond the {len(left)} nodes of its tree")
        if reached[below].any() or len(np.unique(below)) < len(below):
            raise ValueError("a node that has two parents")
        reached[below] = True
        level = below
    raise ValueError(f"a tree deeper than {MOST_DEPTH}")


def _categories(said: _TreeText) -> dict[int, Ints]:
    at, starts, sizes = said.categories_nodes, said.categories_segments, said.categories_sizes
    if not len(at) == len(starts) == len(sizes) or len(at) > said.tree_param.num_nodes:
        raise ValueError("categories_nodes, _segments and _sizes are not of one length")
    if len(at) and (min(starts.min(), sizes.min()) < 0 or max(starts.max(), sizes.max()) >= 1 << 24
                    or (starts + sizes).max() > len(said.categories)):  # fmt: skip
        raise ValueError("categories_segments reach beyond the categories")
    return {
        int(node): said.categories[start : start + size]
        for node, start, size in zip(at, starts, sizes, strict=True)
    }
