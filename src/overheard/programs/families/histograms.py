"""What do histograms of gradients tell? Each client sends sums by node, input and bin.

Horizontal XGBoost (FLARE's histogram recipe): all clients grow the same tree. For every node of its
newest level a client sends, for every input and every bin of it, the sums of its records' gradients
and Hessians; the server adds everybody's up and says how the nodes split. A message is a level of a
tree, so a tree takes ``max_depth`` rounds. Bins are agreed on beforehand.

A record is in one bin of every input, so each message is many small sums over it: a node's people
of one age are few. Gradients depend on the secret by all earlier trees, as with trees that clients
grow themselves (`programs/trees/equations.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from overheard.decoding.measurement import Measurement
from overheard.decoding.sparse_equations import SparseEquations, joined
from overheard.errors import FixRecording
from overheard.programs.program import (
    Candidates,
    Exchange,
    Message,
    Program,
    Settings,
    expected,
    room,
)
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, Records, encode
from overheard.programs.trees.equations import HALF_ULP, PER_RECORD, cell_rows
from overheard.programs.trees.model import Booster
from overheard.programs.trees.objectives import Terms, objective_of, start_margin

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
CELLS = 64
"""Sums a record that are decoded, those over fewest others: there are hundreds, which repeat each
other."""


@dataclass(frozen=True)
class _Forest:
    """feature (-1: a leaf), cut (bins up to it go left), value: (trees, nodes); the last tree grows
    and has whole levels up to ``level``."""

    feature: Ints
    cut: Array
    value: NDArray[np.float32]
    level: int


class HistogramSettings(Settings):
    """XGBoost's names and defaults; ``bins``: at most so many of each input, by quantiles."""

    name: Literal["histograms"] = "histograms"
    objective: Literal["binary:logistic", "reg:squarederror"] = "binary:logistic"
    eta: float = Field(default=0.3, gt=0, le=10)
    max_depth: int = Field(default=6, ge=1, le=12)
    reg_lambda: float = Field(default=1.0, ge=0, le=1e6)
    gamma: float = Field(default=0.0, ge=0)
    min_child_weight: float = Field(default=1.0, ge=0)
    base_score: float = 0.5
    bins: int = Field(default=32, ge=2, le=256)


class Histograms(Program):
    """Levels of trees that everybody grows together; ``cuts``: of each input, between bins."""

    settings: HistogramSettings
    cuts: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wanted = 2 if self.settings.objective == "binary:logistic" else 0
        if len(self.target.classes) != wanted:
            raise ValueError(
                f"objective {self.settings.objective!r} does not fit the target "
                f"{self.target.column!r} of {len(self.target.classes) or 'no'} classes"
            )
        if len(self.cuts) != self.encoding.width or any(
            len(c) > 255 or list(c) != sorted(set(c)) for c in self.cuts
        ):
            raise ValueError("cuts are increasing numbers, up to 255, for every input")
        return self

    @classmethod
    def planned(
        cls, settings: Settings, encoding: Encoding, target: Target, records: Records
    ) -> Self:
        assert isinstance(settings, HistogramSettings)
        shares = np.linspace(0, 1, settings.bins + 1)[1:-1]
        cuts = []
        for values in encode(encoding, records).T:
            found = np.unique(np.quantile(values, shares, method="lower"))
            cuts.append(tuple(found[found < values.max()].tolist()))
        target = target.model_copy(update={"shift": 0.0, "scale": 1.0})
        return cls.checked(
            {"settings": settings, "encoding": encoding, "target": target, "cuts": tuple(cuts)}
        )

    @property
    def nodes(self) -> int:
        """Of a whole tree; those of level l begin at 2^l - 1, below node n are 2n + 1, 2n + 2."""
        return int(2 ** (self.settings.max_depth + 1) - 1)

    def first(self) -> Message:
        return {
            "feature": np.full((1, self.nodes), -1, dtype=np.int64),
            "cut": np.zeros((1, self.nodes), dtype=np.int64),
            "value": np.zeros((1, self.nodes), dtype=np.float32),
            "level": np.zeros(1, dtype=np.int64),
        }

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        forest, inputs = self._forest(received, 0), self._binned(records)
        node, terms = self._reached(forest, inputs, self.target.encode(records))
        begin, count = 2**forest.level - 1, 2**forest.level
        live = node >= begin
        return {
            name: np.concatenate(
                [
                    np.bincount(
                        (node[live] - begin) * size + inputs[live, f],
                        term[live, 0].astype(np.float64),
                        count * size,
                    ).reshape(count, size)
                    for f, size in enumerate(self._sizes())
                ],
                axis=1,
            )
            for name, term in (("gradient", terms.gradient), ("hessian", terms.hessian))
        }

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        made = {name: np.array(array) for name, array in sent.items()}
        level, settings = int(made["level"][0]), self.settings
        g, h = (
            np.sum([np.asarray(m[n]) for m in returned.values()], axis=0)
            for n in ("gradient", "hessian")
        )
        begin, ends = 2**level - 1, np.cumsum(self._sizes())
        split = False
        for at in range(2**level):
            whole = (g[at, : ends[0]].sum(), h[at, : ends[0]].sum())
            if level == 0:
                made["value"][-1, 0] = self._weight(*whole)
            best = (settings.gamma, -1, 0)
            for f, end in enumerate(ends):
                part = slice(end - self._sizes()[f], end)
                left = np.cumsum([g[at, part], h[at, part]], axis=1)[:, :-1]
                right = np.array(whole)[:, None] - left
                gain = self._gain(*left) + self._gain(*right) - self._gain(*whole)
                gain[np.minimum(left[1], right[1]) < settings.min_child_weight] = -np.inf
                if len(gain) and gain.max() > best[0]:
                    best = (float(gain.max()), f, int(gain.argmax()))
                    below = [self._weight(*side[:, gain.argmax()]) for side in (left, right)]
            if best[1] >= 0:
                node, split = begin + at, True
                made["feature"][-1, node], made["cut"][-1, node] = best[1:]
                made["value"][-1, 2 * node + 1 : 2 * node + 3] = below
        if split and level + 1 < settings.max_depth:
            made["level"][0] += 1
            return made
        blank = self.first()
        grown = {n: np.concatenate([made[n], blank[n]]) for n in ("feature", "cut", "value")}
        return {**grown, "level": blank["level"]}

    def measure(self, heard: Sequence[Exchange], candidates: Candidates) -> Measurement:
        return self.equations(heard, candidates).measurement()

    def equations(self, heard: Sequence[Exchange], candidates: Candidates) -> SparseEquations:
        tables, records = candidates.tables, candidates.records
        sizes, shape = self._sizes(), (len(tables), records)
        room(sum(sizes), records, len(tables))
        some = next(table for table in tables if table is not None)
        inputs = np.concatenate([self._binned(t or some) for t in tables])
        labels = np.concatenate([self.target.encode(t or some) for t in tables])
        present = np.array([table is not None for table in tables], dtype=np.float64)[:, None]
        parts = []
        for one in heard:
            forest = self._forest(one.sent, one.number)
            node, terms = self._reached(forest, inputs, labels)
            begin, count = 2**forest.level - 1, 2**forest.level
            g, h, spread = (
                x[:, 0].astype(np.float64).reshape(shape) * present
                for x in (terms.gradient, terms.hessian, terms.spread)
            )
            sums = [
                expected(one.returned, name, (count, sum(sizes)), one.number)
                for name in ("gradient", "hessian")
            ]
            at = 0
            for f, size in enumerate(sizes):
                # the last cell is nobody's: who is in a leaf of an upper level is in no sum
                cell = np.where(node < begin, count * size, (node - begin) * size + inputs[:, f])
                cell = cell.reshape(shape)
                said = np.arange(count * size + 1) < count * size
                noise = np.bincount(cell.ravel(), spread.ravel() ** 2, len(said)) / len(tables)
                sd = PER_RECORD * HALF_ULP * np.sqrt(noise)
                totals = (np.append(s[:, at : at + size].ravel(), 0.0) for s in sums)
                made = [
                    cell_rows(term, cell, (total, sd), said)
                    for term, total in zip((g, h), totals, strict=True)
                ]
                parts.append(_smallest(joined(made, same_cells=True)))
                at += size
        if not parts:
            raise FixRecording("no round with histograms; there is nothing to decode")
        return _smallest(joined(parts))

    def _sizes(self) -> list[int]:
        return [len(cuts) + 1 for cuts in self.cuts]

    def _binned(self, records: Records) -> Ints:
        """(m, d) bins; values up to a cut are below it."""
        inputs = encode(self.encoding, records)
        each = [
            np.searchsorted(c, x, side="left") for c, x in zip(self.cuts, inputs.T, strict=True)
        ]
        return np.stack(each, axis=1).astype(np.int64)

    def _gain(self, g: Array, h: Array) -> Array:
        return np.asarray(g**2 / (h + self.settings.reg_lambda + 1e-300))

    def _weight(self, g: float, h: float) -> np.float32:
        return np.float32(-self.settings.eta * g / (h + self.settings.reg_lambda + 1e-300))

    def _forest(self, sent: Message, number: int) -> _Forest:
        """The trees of a message, checked: a stranger may have written it."""
        count = len(sent["feature"]) if "feature" in sent and sent["feature"].ndim == 2 else 1
        feature, cut, value = (
            expected(sent, name, (max(count, 1), self.nodes), number)
            for name in ("feature", "cut", "value")
        )
        level = float(expected(sent, "level", (1,), number)[0])
        whole = (feature == np.rint(feature)).all() and feature.min() >= -1
        if (
            not whole
            or feature.max() >= len(self.cuts)
            or (feature[:, self.nodes // 2 :] >= 0).any()
            or np.abs(value).max() > np.finfo(np.float32).max
        ):
            raise FixRecording(
                f"round {number}: trees that split on inputs that there are not, below their last "
                "level, or into values that float32 does not hold"
            )
        if level not in range(self.settings.max_depth):
            raise FixRecording(
                f"round {number}: level {level:g} of trees of depth {self.settings.max_depth}"
            )
        return _Forest(feature.astype(np.int64), cut, value.astype(np.float32), int(level))

    def _reached(self, forest: _Forest, inputs: Ints, labels: Array) -> tuple[Ints, Terms]:
        """The node (n,) of the tree that grows, and the terms at the margins of the others."""
        model = Booster(
            self.settings.objective, (), np.array([self.settings.base_score], np.float32), 1, 1, 0
        )
        margin = np.tile(start_margin(model), (len(inputs), 1))
        rows = np.arange(len(inputs))
        node = np.zeros(len(inputs), dtype=np.int64)
        for tree in range(len(forest.feature)):
            feature, cut = forest.feature[tree], forest.cut[tree]
            node = np.zeros(len(inputs), dtype=np.int64)
            for _ in range(self.settings.max_depth):
                right = inputs[rows, feature[node]] > cut[node]
                node = np.where(feature[node] < 0, node, 2 * node + 1 + right)
            if tree + 1 < len(forest.feature):
                margin[:, 0] += forest.value[tree][node]
        return node, objective_of(model).terms(margin, labels.astype(np.float32), model)


def _smallest(equations: SparseEquations) -> SparseEquations:
    """The equations of each record's `CELLS` smallest cells, and of no others."""
    cell = equations.cell[equations.row]
    size = np.bincount(cell, minlength=int(equations.cell.max(initial=-1)) + 1)
    order = np.lexsort((cell, size[cell], equations.record))
    who, where = equations.record[order], cell[order]
    first = np.diff(who, prepend=-1) != 0
    turn = np.cumsum(first | (np.diff(where, prepend=-1) != 0))  # of all records' cells in turn
    rank = turn - np.maximum.accumulate(np.where(first, turn, 0))
    used = np.zeros(len(size), dtype=bool)
    used[where[rank < CELLS]] = True
    rows = used[equations.cell]
    entries = rows[equations.row]
    return replace(
        equations,
        row=(np.cumsum(rows) - 1)[equations.row[entries]],
        record=equations.record[entries],
        difference=equations.difference[entries],
        residual=equations.residual[rows],
        sd=equations.sd[rows],
        cell=(np.cumsum(used) - 1)[equations.cell[rows]],
    )


PROGRAM = Histograms
