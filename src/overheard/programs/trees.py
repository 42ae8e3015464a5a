"""How does a client grow its trees, how does a server join them, and what does a model say?

The settings are what an adversary is assumed to know of the growing, as data. XGBoost itself is
needed in `grow` and nowhere else (extra ``xgboost``).

A model is read from its JSON or UBJSON (never unpickled). Every field that is used is checked:
sizes, indices, finite numbers, each tree a tree. Models of other boosters (gblinear, dart), with
vector leaves or of a future form are refused in a line.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from overheard.errors import FixRecording, needs
from overheard.foreign.files import parse_json
from overheard.foreign.limits import beyond, check, limit
from overheard.programs.program import Settings

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_TREES = re.compile(rb'"trees"\s*:\s*\[')
_LAST_KEY = b'"tree_param"'  # of a tree, in the order in which XGBoost writes them
MOST_CLASSES = 1000
MOST_DEPTH = 1000
MOST_TREES = 1 << 16


@dataclass(frozen=True, eq=False)  # a tree is itself; its arrays are compared where needed
class Tree:
    """One tree; arrays over its nodes, node 0 the root, ``left`` -1 at leaves.

    value: the threshold of an inner node, what a leaf adds to the margin (times eta already).
    hessian: its sum over each node, None where the model says nothing. depth: splits that a record
    passes at most. categories: of each node that splits on one, those that go right.
    """

    left: Ints
    right: Ints
    feature: Ints
    value: Floats
    default_left: Flags
    group: int
    depth: int
    hessian: Floats | None
    categories: Mapping[int, Ints] = field(default_factory=dict)

    @property
    def leaf(self) -> Flags:
        return self.left < 0

    def leaves(self, inputs: Floats) -> Ints:
        """The leaf (n,) of each row of inputs (n, d); NaN takes the default direction."""
        node = np.zeros(len(inputs), dtype=np.int64)
        rows = np.arange(len(inputs))
        for _ in range(self.depth):
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
    result: list[Booster | None] = []
    last, text = None, b""
    for number, raw in reversed([*enumerate(raws, 1)]):
        place, here = f"{where} {number}", _split(raw)
        if last is not None and here is not None and text.startswith(here[0] + b","):
            known = last.trees[: here[0].count(_LAST_KEY)]
            result.append(_checked(parse_json(here[1], place), place, known))
            continue
        result.append(read_model(raw, place) if raw else None)
        if last is None and here is not None:
            last, text = result[-1], here[0]
    return result[::-1]


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
    result = np.asarray(given if isinstance(given, list | np.ndarray) else None)
    if result.size == 0 and result.ndim == 1:
        return np.zeros(0, dtype=np.int64)
    if result.ndim != 1 or result.dtype.kind not in kinds:
        raise ValueError("is no list of numbers of its kind")
    return result


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


def _at(*path: str, **more: Any) -> Any:
    """A field that stands deep within the document."""
    return Field(validation_alias=AliasPath(*path), **more)


_TREES_AT = ("learner", "gradient_booster", "model")
_PARAMS_AT = ("learner", "learner_model_param")
_LOSS_AT = ("learner", "objective")


class _TreeText(_Text):
    num_nodes: int = _at("tree_param", "num_nodes", ge=1, le=1 << 24)
    leaf_vector: int = _at("tree_param", "size_leaf_vector", default=1, ge=0, le=1)
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


class _ModelText(_Text):
    """The document; leaves that are vectors (several targets) are refused."""

    booster: Literal["gbtree"] = _at("learner", "gradient_booster", "name")
    parallel: int = _at(*_TREES_AT, "gbtree_model_param", "num_parallel_tree", ge=0, le=1 << 16)
    num_trees: int = _at(*_TREES_AT, "gbtree_model_param", "num_trees", ge=0, le=1 << 24)
    tree_info: _Whole = _at(*_TREES_AT, "tree_info")
    trees: list[_TreeText] = _at(*_TREES_AT, "trees", max_length=MOST_TREES)
    objective: str = _at(*_LOSS_AT, "name")
    scale_pos_weight: float = _at(
        *_LOSS_AT, "reg_loss_param", "scale_pos_weight", default=1.0, ge=0, le=1e30
    )
    max_delta_step: float = _at(
        *_LOSS_AT, "poisson_regression_param", "max_delta_step", default=0.0, ge=0, le=80
    )
    classes: int = _at(*_PARAMS_AT, "num_class", ge=0, le=MOST_CLASSES)
    targets: int = _at(*_PARAMS_AT, "num_target", default=1, ge=0, le=1)
    features: int = _at(*_PARAMS_AT, "num_feature", ge=0, le=1 << 24)
    base_score: Annotated[list[float], BeforeValidator(_listed)] = _at(*_PARAMS_AT, "base_score")


def _checked(text: Any, where: object, known: tuple[Tree, ...] | None = None) -> Booster:
    """The model; ``known``: its trees, where they were read before."""
    try:
        return _booster(_ModelText.model_validate(text), known)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))[:150]}: {first['msg'][:100]}"
    except ValueError as error:
        what = str(error)
    raise FixRecording(f"{where}: not a model of XGBoost's gbtree: {what}")


def _booster(text: _ModelText, known: tuple[Tree, ...] | None) -> Booster:
    groups = max(1, text.classes)
    count = len(text.trees) if known is None else len(known)
    if not count == text.num_trees == len(text.tree_info):
        raise ValueError(f"num_trees is {text.num_trees}, and there are {count} trees")
    if count and not 0 <= text.tree_info.min() <= text.tree_info.max() < groups:
        raise ValueError(f"tree_info names a class beyond the {groups} there are")
    if len(text.base_score) not in (1, groups) or np.abs(text.base_score).max() > 1e30:
        raise ValueError(f"base_score {str(text.base_score)[:40]} for {groups} classes")
    if known is None:
        each = zip(text.trees, text.tree_info, strict=True)
        known = tuple(_tree(tree, int(group), text.features) for tree, group in each)
    scores = np.resize(np.asarray(text.base_score, dtype=np.float32), groups)
    loss = text.scale_pos_weight, text.max_delta_step
    parallel = max(1, text.parallel)
    return Booster(text.objective, known, scores, groups, parallel, text.features, *loss)


def _tree(text: _TreeText, group: int, features: int) -> Tree:
    left, right, feature = text.left_children, text.right_children, text.split_indices
    nodes = text.num_nodes
    for one in (left, right, feature, text.split_conditions, text.default_left):
        if len(one) != nodes:
            raise ValueError(f"a tree with {len(one)} numbers where {nodes} belong")
    reached, depth = _walked(left, right)
    inner = reached & (left >= 0)
    if inner.any() and not 0 <= feature[inner].min() <= feature[inner].max() < features:
        raise ValueError(f"a split on a feature beyond the {features} there are")
    return Tree(
        left,
        right,
        np.where(inner, feature, 0),
        text.split_conditions,
        text.default_left.astype(bool),
        group,
        depth,
        _unmasked(text.sum_hessian, reached),
        _categories(text),
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


def _walked(left: Ints, right: Ints) -> tuple[Flags, int]:
    """Which nodes the root reaches, and over how many levels; refused unless they form a tree."""
    reached = np.zeros(len(left), dtype=bool)
    reached[0] = True
    level = np.zeros(1, dtype=np.int64)
    for depth in range(MOST_DEPTH):
        level = level[left[level] != -1]
        if not len(level):
            return reached, depth
        below = np.concatenate([left[level], right[level]])
        if not 0 <= below.min() <= below.max() < len(left):
            raise ValueError(f"a child beyond the {len(left)} nodes of its tree")
        if reached[below].any() or len(np.unique(below)) < len(below):
            raise ValueError("a node that has two parents")
        reached[below] = True
        level = below
    raise ValueError(f"a tree deeper than {MOST_DEPTH}")


def _categories(text: _TreeText) -> dict[int, Ints]:
    at, starts, sizes = text.categories_nodes, text.categories_segments, text.categories_sizes
    if not len(at) == len(starts) == len(sizes) or len(at) > text.num_nodes:
        raise ValueError("categories_nodes, _segments and _sizes are not of one length")
    if len(at) and (min(starts.min(), sizes.min()) < 0 or max(starts.max(), sizes.max()) >= 1 << 24
                    or (starts + sizes).max() > len(text.categories)):  # fmt: skip
        raise ValueError("categories_segments reach beyond the categories")
    return {
        int(node): text.categories[start : start + size]
        for node, start, size in zip(at, starts, sizes, strict=True)
    }


# UBJSON from elsewhere: bounded in bytes, values and depth.

_MARKERS = {b"i": "b", b"U": "B", b"I": "h", b"l": "i", b"L": "q", b"d": "f", b"D": "d"}
"""The markers of numbers, and how `struct` and numpy call them; the first byte is the highest."""
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_ALONE = 8
"""Values in an array of numbers that are read in less time than one that stands alone."""


def parse_ubjson(raw: bytes, where: object) -> Any:
    """What a UBJSON text says; what is cut short, unknown or beyond the limits is refused.

    Only what XGBoost writes is read: objects, texts, whole numbers, float32 and float64, truth
    values, null, and arrays that begin with their length, typed or not. Typed arrays of numbers
    become numpy arrays, everything else what JSON would give. Nothing is executed, and no length is
    believed before the bytes are there."""
    reader = _Reader(raw, where)
    content = reader.value(reader.depth)
    if reader.at != len(raw):
        raise reader.wrong("more follows the end")
    return content


class _Reader:
    def __init__(self, raw: bytes, where: object) -> None:
        self.raw, self.where, self.at = raw, where, 0
        self.values, self.depth = limit("json_values"), limit("depth")  # still allowed

    def wrong(self, what: str) -> FixRecording:
        return FixRecording(f"{self.where}: UBJSON that is broken at byte {self.at}: {what}")

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.raw) - self.at:
            raise self.wrong("it is cut short")
        self.at += count
        return self.raw[self.at - count : self.at]

    def spend(self, values: int) -> None:
        self.values -= values
        if self.values < 0:
            raise beyond("json_values", self.where)

    def number(self, kind: bytes) -> Any:
        form = ">" + _MARKERS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self) -> int:
        """A length: a whole number of any size."""
        kind = self.take(1)
        if kind not in _MARKERS or kind in b"dD":
            raise self.wrong("no length, where one belongs")
        return int(self.number(kind))

    def text(self) -> str:
        try:
            return self.take(self.count()).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.wrong("a text that is not UTF-8") from problem

    def value(self, depth: int) -> Any:
        """The value that begins here; ``depth``: of levels that may still follow."""
        self.spend(_ALONE)
        if depth < 0:
            raise beyond("depth", self.where)
        kind = self.take(1)
        if kind in _MARKERS:
            return self.number(kind)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"S":
            return self.text()
        if kind == b"{":
            result = {}
            while self.raw[self.at : self.at + 1] != b"}":
                key = self.text()
                result[key] = self.value(depth - 1)
            self.at += 1
            return result
        if kind != b"[":
            raise self.wrong("no value, where one belongs")
        typed = self.take(1)
        if typed == b"$":
            number, typed = self.take(1), self.take(1)
            if number in _MARKERS and typed == b"#":
                return self.array(np.dtype(">" + _MARKERS[number]))
        if typed != b"#":
            raise self.wrong("an array of an unknown type or length")
        count = self.count()
        if count > len(self.raw) - self.at:  # every value takes a byte
            raise self.wrong("it is cut short")
        return [self.value(depth - 1) for _ in range(count)]

    def array(self, dtype: np.dtype[Any]) -> Any:
        count = self.count()
        result = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        self.spend(count + 2 * _ALONE)  # three times the work of a lone number
        return result.astype(dtype.newbyteorder("="))


_NOT_XGBOOSTS = {
    "name", "sent_names", "aggregation", "local_rounds", "releases", "leaf_step",
}  # fmt: skip


class TreeSettings(Settings):
    """Boosted trees, with XGBoost's own names and defaults."""

    labels_as_they_are: ClassVar[bool] = True

    name: Literal["xgboost"] = "xgboost"
    aggregation: Literal["bagging", "cyclic"] = "bagging"
    """"bagging": every client returns its newest trees and the server appends them all;
    "cyclic": one client a round returns the whole model, which goes on to the next."""
    objective: Literal[
        "binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:gamma"
    ] = "binary:logistic"
    """XGBoost's objective."""
    eta: float = Field(default=0.3, gt=0, le=10)
    """XGBoost's learning rate."""
    max_depth: int = Field(default=6, ge=1, le=30)
    """XGBoost's: of a tree."""
    reg_lambda: float = Field(default=1.0, ge=0, le=1e6)
    """XGBoost's L2 penalty."""
    reg_alpha: float = Field(default=0.0, ge=0, le=1e6)
    """XGBoost's L1 penalty."""
    gamma: float = Field(default=0.0, ge=0)
    """XGBoost's: the least gain of a split."""
    min_child_weight: float = Field(default=1.0, ge=0)
    """XGBoost's: the least Hessian of a leaf."""
    max_delta_step: float = Field(default=0.0, ge=0, le=80)
    """XGBoost's: weights are cut to it; 0: no bound."""
    base_score: float | None = None
    """XGBoost's first prediction; left out, every client estimates its own, and the model that
    it returns says which. Example: `base_score = 0.5`"""
    subsample: float = Field(default=1.0, gt=0, le=1)
    """XGBoost's: the share of the records that a tree sees."""
    colsample_bytree: float = Field(default=1.0, gt=0, le=1)
    """XGBoost's: the share of the columns that a tree sees."""
    num_parallel_tree: int = Field(default=1, ge=1, le=1000)
    """XGBoost's: trees of a boosting round."""
    local_rounds: int = Field(default=1, ge=1, le=1000)
    """Boosting rounds of a client and message."""
    releases: Literal["everything", "values"] = "everything"
    """A defence: "values" sends the leaves' values and drops every other sum (weights of inner
    nodes, Hessians, gains), which no prediction needs."""
    leaf_step: float = Field(default=0.0, ge=0, le=100)
    """A defence: the values are rounded to multiples of it before they leave."""

    @model_validator(mode="after")
    def _rounded_alone(self) -> Self:
        if self.leaf_step and self.releases != "values":
            raise ValueError(
                "leaf_step rounds the values of leaves, and the other sums tell them exactly: set "
                'releases to "values"'
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
    return raw if settings.releases == "everything" else _values_only(raw, settings.leaf_step)


def _values_only(raw: bytes, step: float) -> bytes:
    """The model without the sums that no prediction needs, its leaves rounded to the step."""
    whole = json.loads(raw)
    for tree in whole["learner"]["gradient_booster"]["model"]["trees"]:
        for name in ("base_weights", "sum_hessian", "loss_changes"):
            tree[name] = [0.0] * len(tree[name])
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
