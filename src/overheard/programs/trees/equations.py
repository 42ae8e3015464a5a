"""What do the trees that a client returned say about which candidate each of its records is?

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.sparse_equations import SparseEquations, joined
from overheard.errors import ChooseAnotherAttack, FixRecording
from overheard.programs.trees.model import Booster, Floats, Tree
from overheard.programs.trees.objectives import objective_of, start_margin
from overheard.programs.trees.training import TreeSettings

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

HALF_ULP = 2.0**-24
"""Relative rounding of a float32, at most."""
UNIFORM = 3**-0.5
"""Standard deviation of what is spread evenly over -1 to 1."""
PER_RECORD = 0.5
"""Rounding of a record's gradient that the client's exponential function does otherwise than ours,
in half units in the last place of the terms that it is made of."""


OVERFIT = 1.4
"""Splits are chosen to fit the rows that were drawn, so that sums over them lie further from those
over all rows than a draw alone would have them; measured."""
SMALLEST = 1e-8
"""Noise of sums that are exact: far below one record, and no row dwarfs the others."""


@dataclass(frozen=True)
class Exchange:
    """One round of one client: the model that it was sent (None: none yet) and what it returned."""

    sent: Booster | None
    returned: Booster


@dataclass(frozen=True)
class Candidates:
    """inputs: (K, m, d), each record under each candidate; labels: (K, m) float32; present: (K,)
    false where the candidate is that the client does not hold the record."""

    inputs: Floats
    labels: Floats
    present: NDArray[np.bool_] | None = None


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
    count, records, width = candidates.inputs.shape
    inputs, labels = candidates.inputs.reshape(-1, width), candidates.labels.reshape(-1)
    present = np.ones((count, 1)) if candidates.present is None else candidates.present[:, None]
    parts: list[SparseEquations] = []
    for exchange, margin in zip(exchanges, _margins(exchanges, inputs), strict=True):
        grown, model = own_trees(exchange), exchange.returned
        step = model.groups * model.parallel
        for start in range(0, len(grown), step):
            together = grown[start : start + step]
            found = objective_of(model).terms(margin, labels, model)
            for tree in together:
                leaf = tree.leaves(inputs)
                each = (
                    x[:, tree.group].astype(np.float64).reshape(count, records) * present
                    for x in (found.gradient, found.hessian, found.spread)
                )
                sums = _Sums(tree, leaf.reshape(count, records), *each)
                parts.append(_of_tree(sums, settings, model.parallel))
                margin[:, tree.group] += tree.value[leaf]
    if not any(part.rows for part in parts):
        raise ChooseAnotherAttack("the trees that were returned have no leaf that says anything")
    return joined(parts)


def _margins(exchanges: Sequence[Exchange], inputs: Floats) -> Iterator[Floats]:
    """Margins (K m, groups) at the model that each round began with. A round's model is mostly the
    last one's and some trees more: what the last one's said is kept."""
    seen: tuple[Tree, ...] = ()
    start, margin = (np.zeros((0, 0), dtype=np.float32) for _ in range(2))
    for one in exchanges:
        model = one.returned if one.sent is None else one.sent
        if max(model.features, one.returned.features) > inputs.shape[1]:
            raise ChooseAnotherAttack(
                f"the trees know {model.features} features and the records have {inputs.shape[1]}; "
                "describe the encoding that the clients use"
            )
        if model.groups != one.returned.groups:
            raise FixRecording("a model of other classes than the one that it was grown on")
        trees, first = () if one.sent is None else model.trees, start_margin(model)
        if trees[: len(seen)] != seen or not np.array_equal(first, start):
            seen, start, margin = (), first, np.tile(first, (len(inputs), 1))
        for tree in trees[len(seen) :]:
            margin[:, tree.group] += tree.value[tree.leaves(inputs)]
        seen = trees
        yield margin.copy()


@dataclass(frozen=True)
class _Sums:
    """What each record under each candidate brings to one tree, and the leaf it brings it to."""

    tree: Tree
    leaf: Ints  # (K, m), as the others
    gradient: Array
    hessian: Array
    spread: Array

    def over(self, term: Array) -> Array:
        """Sums over the records in each node (nodes,), every candidate as likely as another."""
        nodes = len(self.tree.left)
        return np.bincount(self.leaf.ravel(), term.ravel(), nodes) / len(self.leaf)


def _of_tree(sums: _Sums, settings: TreeSettings, parallel: int) -> SparseEquations:
    """Two equations a leaf, or one where the other's field is missing or cut off."""
    tree, share, penalty = sums.tree, settings.subsample, settings.reg_lambda
    weight = tree.value.astype(np.float64) * parallel / settings.eta
    usual = share * sums.over(sums.hessian)  # nearly, whatever the records are
    total = usual if tree.hessian is None else tree.hessian.astype(np.float64)
    rounded = np.square(PER_RECORD * HALF_ULP) * sums.over(sums.spread**2)
    # two roundings, of the weight and of the weight times eta; and that of the leaf, if it is
    coarse = settings.leaf_step / 2 * UNIFORM * parallel / settings.eta
    fine = np.abs(weight) * HALF_ULP * 2**0.5 * UNIFORM
    slope = np.hypot(fine, coarse) * (total + penalty)
    term = sums.gradient + weight[sums.leaf] * sums.hessian
    right = -weight * penalty - settings.reg_alpha * np.sign(weight)
    sd = np.sqrt(slope**2 + (1 + np.abs(weight)) ** 2 * rounded)
    leaf = tree.leaf & (np.bincount(sums.leaf.ravel(), minlength=len(tree.left)) > 0)
    said = leaf & ~((settings.reg_alpha > 0) & (weight == 0))
    if settings.largest_step:
        said &= np.abs(weight) < settings.largest_step * (1 - 1e-5)
    if share < 1:
        # the draw moves both sums of a leaf together, so that only one of them is used
        drawn = OVERFIT**2 * share * (1 - share) * sums.over(term**2)
        return cell_rows(share * term, sums.leaf, (right, np.sqrt(sd**2 + drawn)), said)
    made = [cell_rows(term, sums.leaf, (right, sd), said)]
    if tree.hessian is not None:
        sd = np.sqrt(np.square(total * HALF_ULP * UNIFORM) + rounded)
        made.append(cell_rows(sums.hessian, sums.leaf, (total, sd), leaf))
    return joined(made, same_cells=True)


def cell_rows(
    term: Array, leaf: Ints, total: tuple[Array, Array], said: NDArray[np.bool_]
) -> SparseEquations:
    """One equation a node that is ``said``: its total and its noise, over the terms in it."""
    count, records = term.shape
    rows, people, differences = [], [], []
    for k in range(1, count):
        same = leaf[k] == leaf[0]
        gap = np.zeros((2, records, count - 1))
        gap[0, :, k - 1] = np.where(same, term[k] - term[0], -term[0])
        gap[1, :, k - 1] = np.where(same, 0.0, term[k])
        rows += [leaf[0], leaf[k]]
        people += [np.arange(records)] * 2
        differences += [*gap]
    row, record = np.concatenate(rows), np.concatenate(people)
    difference = np.concatenate(differences)
    used = said[row] & (difference != 0).any(axis=1)
    residual = total[0] - np.bincount(leaf[0], term[0], len(said))
    return SparseEquations(
        records,
        count,
        (np.cumsum(said) - 1)[row[used]],
        record[used],
        difference[used],
        residual[said],
        np.maximum(total[1], SMALLEST)[said],
        np.flatnonzero(said),
    )
