"""What do the trees that a client returned say about which candidate each of its records is?

A leaf's weight and Hessian give the sums of gradients and Hessians over the records in it:

    w = -(G + alpha sign(w)) / (H + lambda),   G = sum g_i,   H = sum h_i,

and the leaf adds eta w to the margin. Written as ``sum (g_i + w h_i) = -w lambda - alpha sign(w)``
the first is linear in the records even where the Hessian was left out. g_i and h_i are taken at the
margin that the global model, all earlier trees of all clients, gives record i under each candidate:
so leaves above which nothing splits on the secret are equations, too. Inner nodes are sums of their
leaves and say nothing more.

Noise: the float32 rounding of weight and Hessian, and of the gradients that were summed. Row
subsampling with share q: sums of q times the terms, and the variance of the draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.sparse_equations import SparseEquations, joined
from overheard.errors import ChooseAnotherAttack, FixRecording
from overheard.programs.trees.model import Booster, Tree
from overheard.programs.trees.objectives import objective_of, start_margin
from overheard.programs.trees.settings import TreeSettings

Floats = NDArray[np.float32]
Array = NDArray[np.float64]
Ints = NDArray[np.int64]

HALF_ULP = 2.0**-24
"""Relative rounding of a float32, at most."""
UNIFORM = 3**-0.5
"""Standard deviation of what is spread evenly over -1 to 1."""
PER_RECORD = 0.3
"""Rounding of a record's own gradient that the client's exponential does otherwise than ours, in
half units in the last place of the terms it is made of; measured, it stays below."""


@dataclass(frozen=True)
class Exchange:
    """One round of one client: the model that it was sent (None: none yet) and what it returned."""

    sent: Booster | None
    returned: Booster


@dataclass(frozen=True)
class Candidates:
    """inputs: (K, m, d) float32, each record under each candidate; labels: (K, m) float32."""

    inputs: Floats
    labels: Floats

    @property
    def count(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def records(self) -> int:
        return int(self.inputs.shape[1])


def own_trees(exchange: Exchange) -> tuple[Tree, ...]:
    """The trees that the client grew: all that it returned (bagging), or those behind the model
    that it was sent, which it returned with them (cyclic)."""
    before = () if exchange.sent is None else exchange.sent.trees
    after = exchange.returned.trees
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
    exchanges: Sequence[Exchange], candidates: Candidates, settings: TreeSettings
) -> SparseEquations:
    """The equations of all rounds; refused where model, records and settings cannot belong."""
    if not exchanges:
        raise FixRecording("no round with trees; there is nothing to decode")
    forest = _Margins(candidates)
    parts: list[SparseEquations] = []
    for exchange in exchanges:
        margin = forest.before(exchange)
        grown, model = own_trees(exchange), exchange.returned
        step = model.groups * model.parallel
        for start in range(0, len(grown), step):
            together = grown[start : start + step]
            pairs = objective_of(model).pair(margin, forest.labels, model)
            margin = margin.copy()
            for tree in together:
                leaf = tree.leaves(forest.inputs)
                terms = _Terms(leaf, pairs[0][:, tree.group], pairs[1][:, tree.group], forest)
                parts += _of_tree(tree, terms, settings, model.parallel)
                margin[:, tree.group] += tree.value[leaf]
    if not parts:
        raise ChooseAnotherAttack("the trees that were returned have no leaf that says anything")
    return joined(parts)


class _Margins:
    """Margins of every record under every candidate, tree by tree; what rounds share is kept."""

    def __init__(self, candidates: Candidates) -> None:
        self.records, self.count = candidates.records, candidates.count
        self.inputs = candidates.inputs.reshape(-1, candidates.inputs.shape[2])
        self.labels = candidates.labels.reshape(-1)
        self._trees: tuple[Tree, ...] = ()
        self._start = np.zeros(0, dtype=np.float32)
        self._margin = np.zeros((0, 0), dtype=np.float32)

    def before(self, exchange: Exchange) -> Floats:
        """(K m, groups) at the model that the client was sent."""
        model = exchange.returned if exchange.sent is None else exchange.sent
        width = self.inputs.shape[1]
        if max(model.features, exchange.returned.features) > width:
            raise ChooseAnotherAttack(
                f"the trees know {model.features} features and the records have {width}; describe "
                "the encoding that the clients use"
            )
        trees = () if exchange.sent is None else exchange.sent.trees
        start, done = start_margin(model), len(self._trees)
        if not done or trees[:done] != self._trees or not np.array_equal(start, self._start):
            self._margin, done = np.tile(start, (len(self.inputs), 1)), 0
        for tree in trees[done:]:
            self._margin[:, tree.group] += tree.value[tree.leaves(self.inputs)]
        self._trees, self._start = trees, start
        return self._margin.copy()


@dataclass(frozen=True)
class _Terms:
    """What each record under each candidate brings to a tree; all (K m,)."""

    leaf: Ints
    gradient: Floats
    hessian: Floats
    of: _Margins


def _of_tree(
    tree: Tree, terms: _Terms, settings: TreeSettings, parallel: int
) -> list[SparseEquations]:
    """Two equations a leaf, or one where the other's field is missing or cut off."""
    nodes, share = len(tree.left), settings.subsample
    count, records = terms.of.count, terms.of.records
    g, h = terms.gradient.astype(np.float64), terms.hessian.astype(np.float64)
    usual = np.bincount(terms.leaf, h, nodes) / count  # expected, if nothing is known yet
    total = share * usual if tree.hessian is None else tree.hessian.astype(np.float64)
    value = tree.value.astype(np.float64)
    weight = value * parallel / settings.eta
    sizes = np.abs(g) + np.abs(terms.of.labels)
    own = PER_RECORD * HALF_ULP
    rounded = np.square(own) * np.bincount(terms.leaf, sizes**2, nodes) / count
    rounded_h = np.square(own) * np.bincount(terms.leaf, h**2, nodes) / count
    slope = np.abs(weight) * HALF_ULP * 2**0.5 * UNIFORM * (total + settings.reg_lambda)
    leaf = tree.leaf & (np.bincount(terms.leaf, minlength=nodes) > 0)
    cut = settings.largest_step > 0
    cut_off = cut & (np.abs(weight) >= settings.largest_step * (1 - 1e-5))
    undecided = (settings.reg_alpha > 0) & (weight == 0)
    right = -weight * settings.reg_lambda - settings.reg_alpha * np.sign(weight)
    kinds = [
        (g + weight[terms.leaf] * h, right, np.sqrt(slope**2 + rounded), leaf & ~cut_off & ~undecided)
    ]
    if tree.hessian is not None:
        coarse = total * HALF_ULP * UNIFORM
        kinds.append((h, total, np.sqrt(coarse**2 + rounded_h), leaf))
    made = []
    for term, sum_of, sd, said in kinds:
        if share < 1:
            drawn = share * (1 - share) * np.bincount(terms.leaf, term**2, nodes) / count
            sd = np.sqrt(sd**2 + drawn)
            term = share * term
        made.append(_rows(term.reshape(count, records), terms.leaf.reshape(count, records),
                          sum_of, sd, said))
    return [joined(made, same_cells=True)]


def _rows(term: Array, leaf: Ints, total: Array, sd: Array, said: NDArray[np.bool_]) -> SparseEquations:
    """One equation a node that is ``said``: sum over records of the terms in it."""
    count, records = term.shape
    number = np.cumsum(said) - 1
    base, who = leaf[0], np.arange(records)
    rows, people, differences = [], [], []
    for k in range(1, count):
        same = leaf[k] == base
        gap = np.zeros((records, count - 1))
        gap[:, k - 1] = np.where(same, term[k] - term[0], -term[0])
        rows.append(base)
        people.append(who)
        differences.append(gap)
        moved = ~same
        gap = np.zeros((int(moved.sum()), count - 1))
        gap[:, k - 1] = term[k][moved]
        rows.append(leaf[k][moved])
        people.append(who[moved])
        differences.append(gap)
    row, record = np.concatenate(rows), np.concatenate(people)
    difference = np.concatenate(differences)
    used = said[row] & (difference != 0).any(axis=1)
    residual = total - np.bincount(base, term[0], len(total))
    return SparseEquations(
        records,
        count,
        number[row[used]],
        record[used],
        difference[used],
        residual[said],
        np.maximum(sd, 1e-12)[said],
        np.flatnonzero(said),
    )
