"""What do boosted trees tell? Each client sends the trees that it grew on its own records.

As Flower's and FLARE's XGBoost apps do it: the server sends the global model, a client grows one or
a few trees on top of it and returns them (bagging: the server appends everybody's) or the whole
model (cyclic: it goes on to the next client). Models travel as the bytes of XGBoost's JSON or
UBJSON; how they are read: `programs/trees.py`.

A leaf's weight and Hessian give the sums of gradients and Hessians over the records in it:

    w = -(G + alpha sign(w)) / (H + lambda),   G = sum g_i,   H = sum h_i,

and the leaf adds eta w to the margin. Written as ``sum (g_i + w h_i) = -w lambda - alpha sign(w)``
the first is linear in the records even where the Hessian was left out. g_i and h_i are taken at the
margin that the global model, all earlier trees of all clients, gives record i under each candidate:
so leaves above which nothing splits on the secret are equations, too. Inner nodes are sums of their
leaves and say nothing more.

Noise: the rounding of weight and Hessian (float32), and of the gradients that were summed. Row
subsampling with share q: sums of q times the terms, and the variance of the draw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from overheard.decoding.subset_sums import SubsetSums, joined, sums_over_cells
from overheard.errors import ChooseAnotherAttack, FixConfig, FixRecording
from overheard.foreign.limits import check
from overheard.programs.program import Candidates, Exchange, Message, Program, room
from overheard.programs.program import distance as largest_difference
from overheard.programs.records import Records, encode
from overheard.programs.trees import (
    MOST_CLASSES,
    Booster,
    Flags,
    Floats,
    Ints,
    Tree,
    TreeSettings,
    bagged,
    grow,
    read_growing,
    read_model,
)

Array = NDArray[np.float64]
Models = Sequence[tuple[Booster | None, Booster]]
"""Of each round of one client: the model that it was sent (None: none yet), what it returned."""

MODEL = "model"
"""The name of the bytes in a simulated message; in others it is whatever it is."""
HALF_ULP = float(np.finfo(np.float32).eps) / 2
"""Relative rounding of a float32, at most."""
UNIFORM = np.sqrt(1 / 3)
"""Standard deviation of what is spread evenly over -1 to 1."""


@dataclass(frozen=True)
class TreeOptions:
    """Settings of the equations that trees give.

    same: values of leaves that differ by less, relative to the tree's largest, differ by rounding.
    per_record: rounding of a record's gradient that the client's exponential function does
        otherwise than ours, in half units in the last place of the terms that it is made of.
    overfit: splits are chosen to fit the rows that were drawn, so that sums over them lie further
        from those over all rows than a draw alone would have them; measured.
    rows: of inputs up to which a tree costs as much as with one.
    smallest: noise of sums that are exact: far below one record, and no row dwarfs the others.
    equations: what the equations of a tree cost in time and memory, in visits of its records.
    """

    same: float = 1e-5
    per_record: float = 0.5
    overfit: float = 1.4
    rows: int = 1 << 14
    smallest: float = 1e-8
    equations: int = 24


OPTIONS = TreeOptions()
_NUMBERED = re.compile(r"\.[0-9]+$")
_CLASSES = {"binary:logistic": (2, 2), "multi:softprob": (2, MOST_CLASSES)}


class Trees(Program):
    """Boosting rounds on top of the global model, for the server to append."""

    settings: TreeSettings

    @model_validator(mode="after")
    def _fits(self) -> Self:
        objective, classes = self.settings.objective, len(self.target.classes)
        least, most = _CLASSES.get(objective, (0, 0))
        if not least <= classes <= most:
            raise ValueError(
                f"objective {objective!r} does not fit the target {self.target.column!r} of "
                f"{classes or 'no'} classes: use binary:logistic for two, multi:softprob for more, "
                "the others for numbers"
            )
        return self

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Sampled rows and columns are nobody's to repeat."""
        return min(self.settings.subsample, self.settings.colsample_bytree) < 1

    def first(self) -> Message:
        return {MODEL: np.zeros(0, dtype=np.uint8)}

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        inputs, labels = encode(self.encoding, records), self.target.encode(records)
        several = self.settings.objective == "multi:softprob"
        classes = len(self.target.classes) if several else 0
        if self.settings.objective in ("count:poisson", "reg:gamma") and labels.min() < 0:
            raise FixConfig(
                f"objective {self.settings.objective!r} needs labels that are not negative; "
                f"{self.target.column!r} has {labels.min():g}: choose another objective"
            )
        seed = int(rng.integers(1 << 31))
        sent = model_bytes(received, 0)
        return _message(grow(sent, (inputs, labels), self.settings, seed, classes))

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        models = [model_bytes(message, 0) for message in returned.values()]
        if self.settings.aggregation == "bagging":
            return _message(bagged(model_bytes(sent, 0), models))
        if len(models) > 1:
            raise FixConfig(
                f"cyclic training passes one model from client to client, and {len(models)} took "
                "part in a round: set training.participation to 1 / the number of clients"
            )
        return _message(models[0])

    def assembled(self, observed: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """With the whole model that each round began with; refused unless every model can be read.
        FLARE's bagging sends only what is new, a list of the models that all clients returned
        before (arrays ``name.0``, ``name.1``)."""
        whole, result = b"", []
        for one in super().assembled(observed):
            new = [a.tobytes() for n, a in one.sent.items() if _NUMBERED.search(n)]
            whole = _joined(whole, new, one.number) if new else b""
            result.append(replace(one, sent=_message(whole)) if new else one)
        read_exchanges(result)
        return tuple(result)

    def own(self, observed: Sequence[Exchange]) -> Message:
        """Its own trees (bagging), or the model that it passed on."""
        returned = [(model_bytes(one.returned, one.number), one.number) for one in observed]
        whole = b""
        for raw, number in returned if self.settings.aggregation == "bagging" else returned[-1:]:
            whole = _joined(whole, [raw] if raw else [], number)
        return _message(whole)

    def predict(self, sent: Message, records: Records) -> NDArray[np.float64] | None:
        if not model_bytes(sent, 0):
            return None
        model = read_model(model_bytes(sent, 0), "the global model")
        inputs = encode(self.encoding, records).astype(np.float32)
        margin = next(_margins([(model, model)], inputs)).astype(np.float64)
        exponential = self.settings.objective in ("count:poisson", "reg:gamma")
        return np.exp(margin) if exponential else margin

    def equations(self, observed: Sequence[Exchange], candidates: Candidates) -> SubsetSums:
        room(self.encoding.width, candidates.records, len(candidates.tables))
        full = candidates.filled
        inputs = np.stack([encode(self.encoding, table) for table in full], dtype=np.float32)
        labels = np.stack([self.target.encode(table) for table in full], dtype=np.float32)
        models = read_exchanges(observed)
        return tree_equations(models, inputs, labels, candidates.present, self.settings)

    def distance(self, returned: Message, repeated: Message) -> float:
        """Of the trees; infinity where they have other numbers of nodes."""
        parts = ("left", "feature", "value")
        one, other = (
            {
                f"{number}.{part}": getattr(tree, part)
                for number, tree in enumerate(read_model(model_bytes(m, 0), "a model").trees)
                for part in parts
            }
            for m in (returned, repeated)
        )
        return largest_difference(one, other, OPTIONS.same)


def read_exchanges(observed: Sequence[Exchange]) -> Models:
    """The models of every round, read and checked; rounds in which nothing came back are left
    out."""
    sent = [model_bytes(one.sent, one.number) for one in observed]
    models = read_growing(sent, "the model sent in round")
    result = []
    for one, model in zip(observed, models, strict=True):
        raw = model_bytes(one.returned, one.number)
        if raw:
            back = read_model(raw, f"the model returned in round {one.number}")
            if model is not None and model.groups != back.groups:
                raise FixRecording(f"round {one.number}: trees of other classes than the model's")
            result.append((model, back))
    check_visits(result, 0)
    return result


def model_bytes(message: Message, number: int) -> bytes:
    """The bytes of a message's only array."""
    arrays: list[NDArray[np.generic]] = list(message.values())
    if len(arrays) != 1 or arrays[0].dtype != np.uint8 or arrays[0].ndim != 1:
        have = ", ".join(f"{n} {a.dtype} {a.shape}" for n, a in list(message.items())[:5])
        raise FixRecording(
            f"round {number}: a message of trees is one array of bytes (uint8); this one has "
            f"{have[:200] or 'none'}"
        )
    return arrays[0].tobytes()


def _joined(model: bytes, new: list[bytes], number: int) -> bytes:
    """Received models as one, each read and checked before."""
    for raw in new:
        read_model(raw, f"a model of round {number}")
    try:
        return bagged(model, new) if new else model
    except (KeyError, TypeError, ValueError) as error:
        raise FixRecording(f"round {number}: the models cannot be joined ({error!r})") from error


def _message(model: bytes) -> Message:
    return {MODEL: np.frombuffer(model, dtype=np.uint8)}


def own_trees(sent: Booster | None, returned: Booster) -> tuple[Tree, ...]:
    """The trees that the client grew: all that it returned (bagging), or those behind the model
    that it was sent, which it returned with them (cyclic)."""
    before, after = () if sent is None else sent.trees, returned.trees
    if before and len(after) > len(before) and all(map(_same, before, after)):
        return after[len(before) :]
    return after


def _same(one: Tree, other: Tree) -> bool:
    return one is other or (
        np.array_equal(one.left, other.left)
        and np.array_equal(one.feature, other.feature)
        and np.array_equal(one.value, other.value)
    )


def tree_equations(
    models: Models, inputs: Floats, labels: Floats, present: Flags, how: TreeSettings
) -> SubsetSums:
    """The equations of all rounds; refused where model, records and settings cannot belong.

    inputs: (K, m, d), each record under each candidate; labels: (K, m); present: (K,) false where
    the candidate is that the client does not hold the record."""
    if not models:
        raise FixRecording("no round with trees; there is nothing to decode")
    shape, flat, label = labels.shape, inputs.reshape(-1, inputs.shape[2]), labels.reshape(-1)
    check_visits(models, len(flat))
    parts: list[SubsetSums] = []
    for (sent, model), margin in zip(models, _margins(models, flat), strict=True):
        grown, step = own_trees(sent, model), model.groups * model.parallel
        for number, tree in enumerate(grown):
            if number % step == 0:  # trees that are grown at once see the same margin
                terms = objective_of(model).terms(margin, label, model)
            leaf = tree.leaves(flat)
            parts.append(_of_tree(tree, leaf.reshape(shape), terms, present, how, model.parallel))
            margin[:, tree.group] += tree.value[leaf]
    if not any(part.rows for part in parts):
        raise ChooseAnotherAttack("the trees that were returned have no leaf that says anything")
    return joined(parts)


def check_visits(models: Models, rows: int) -> None:
    """Refuse trees that would take minutes and gigabytes: whoever sends may send very many."""
    pairs = [(() if sent is None else sent.trees, own_trees(sent, back)) for sent, back in models]
    every = {tree for pair in pairs for trees in pair for tree in trees}
    grown = sum(len(own) for _, own in pairs)
    visits = OPTIONS.equations * grown + sum(1 + tree.depth for tree in every)
    visits *= max(rows, OPTIONS.rows)
    check("tree_visits", visits, "the trees that were sent and returned", FixRecording)


def _margins(models: Models, inputs: Floats) -> Iterator[Floats]:
    """Margins (K m, groups) at the model that each round began with. A round's model is mostly the
    last one's and some trees more: what the last one's said is kept."""
    seen: tuple[Tree, ...] = ()
    start, margin = (np.zeros((0, 0), dtype=np.float32) for _ in range(2))
    for sent, returned in models:
        model = sent or returned
        if max(model.features, returned.features) > inputs.shape[1]:
            raise ChooseAnotherAttack(
                f"the trees know {model.features} features and the records have {inputs.shape[1]}; "
                "describe the encoding that the clients use"
            )
        trees, first = () if sent is None else sent.trees, start_margin(model)
        if trees[: len(seen)] != seen or not np.array_equal(first, start):
            seen, start, margin = (), first, np.tile(first, (len(inputs), 1))
        for tree in trees[len(seen) :]:
            margin[:, tree.group] += tree.value[tree.leaves(inputs)]
        seen = trees
        yield margin.copy()


def _of_tree(
    tree: Tree, leaf: Ints, terms: Terms, present: Flags, settings: TreeSettings, parallel: int
) -> SubsetSums:
    """Two equations a leaf, or one where the other's field is missing or cut off. leaf: (K, m),
    where each record under each candidate brings its terms (K m, groups), if it is present."""
    gradient, hessian, spread = (
        term[:, tree.group].astype(np.float64).reshape(leaf.shape) * present[:, None]
        for term in (terms.gradient, terms.hessian, terms.spread)
    )

    def over(term: Array) -> Array:
        """Sums over the records in each node (nodes,), every candidate as likely as another."""
        return np.bincount(leaf.ravel(), term.ravel(), len(tree.left)) / len(leaf)

    def equations(term: Array, total: Array, sd: Array, known: Flags) -> SubsetSums:
        """One equation a node whose value is ``known``."""
        noise = np.maximum(sd, OPTIONS.smallest)
        return sums_over_cells(term, leaf, np.where(known, total, np.nan), noise)

    share, penalty = settings.subsample, settings.reg_lambda
    weight = tree.value.astype(np.float64) * parallel / settings.eta
    usual = share * over(hessian)  # nearly, whatever the records are
    total = usual if tree.hessian is None else tree.hessian.astype(np.float64)
    rounded = np.square(OPTIONS.per_record * HALF_ULP) * over(spread**2)
    # two roundings, of the weight and of the weight times eta; and that of the leaf, if it is
    coarse = settings.leaf_step / 2 * UNIFORM * parallel / settings.eta
    fine = np.abs(weight) * HALF_ULP * 2**0.5 * UNIFORM
    slope = np.hypot(fine, coarse) * (total + penalty)
    term = gradient + weight[leaf] * hessian
    right = -weight * penalty - settings.reg_alpha * np.sign(weight)
    sd = np.sqrt(slope**2 + (1 + np.abs(weight)) ** 2 * rounded)
    reached = tree.leaf & (np.bincount(leaf.ravel(), minlength=len(tree.left)) > 0)
    known = reached & ~((settings.reg_alpha > 0) & (weight == 0))
    if settings.largest_step:
        known &= np.abs(weight) < settings.largest_step * (1 - 1e-5)
    if share < 1:
        # the draw moves both sums of a leaf together, so that only one of them is used
        drawn = OPTIONS.overfit**2 * share * (1 - share) * over(term**2)
        return equations(share * term, right, np.sqrt(sd**2 + drawn), known)
    made = [equations(term, right, sd, known)]
    if tree.hessian is not None:
        sd = np.sqrt(np.square(total * HALF_ULP * UNIFORM) + rounded)
        made.append(equations(hessian, total, sd, reached))
    return joined(made, same_cells=True)


# Which gradient and Hessian does a record bring to a tree, at the margin that it has by then? In
# float32 and in XGBoost's own order of operations: what a client computed is met to a rounding of
# each number, and only that rounding remains as noise.

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


def _plain(base: Floats) -> Floats:
    return base


class Objective(NamedTuple):
    """start: margins from the base score; terms: from margins (n, groups) and labels (n,)."""

    start: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats, Booster], Terms]


OBJECTIVES = {
    "binary:logistic": Objective(_logit, _logistic),
    "reg:squarederror": Objective(_plain, _squared),
    "count:poisson": Objective(_log, _poisson),
    "reg:gamma": Objective(_log, _gamma),
    "multi:softprob": Objective(_plain, _softmax),
    "multi:softmax": Objective(_plain, _softmax),
}


def objective_of(model: Booster) -> Objective:
    """The model's objective, if its gradients are known here."""
    result = OBJECTIVES.get(model.objective)
    if result is None:
        raise ChooseAnotherAttack(
            f"the trees were grown for {model.objective[:60]!r}; known are {', '.join(OBJECTIVES)}"
        )
    return result


def start_margin(model: Booster) -> Floats:
    """The margin (groups,) before any tree."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Any = objective_of(model).start(model.base_score)
    if not np.isfinite(result).all():
        raise ChooseAnotherAttack(
            f"base_score {model.base_score.tolist()} has no margin under {model.objective}"
        )
    return np.asarray(result, dtype=np.float32)


PROGRAM = Trees
