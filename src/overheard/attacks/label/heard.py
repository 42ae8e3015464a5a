"""What every attack on labels starts from: gradients heard, and auxiliary records sorted by group.

leprovost2023's setting: squared error, and local training that is one gradient step on all K
records, so that each round reveals the mean gradient at the model that was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import rate_of
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Value, encode
from overheard.transcript.knowledge import AuxiliaryData, GroupCounts, Groups, Link
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gradients:
    """Models sent and the client's mean gradients there, (T, P); standard deviation of rounding."""

    models: Array
    means: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.models)

    def spread(self, most: int) -> Gradients:
        """At most so many rounds, evenly spread, the last one among them."""
        used = np.unique(np.linspace(len(self) - 1, 0, min(most, len(self))).round().astype(int))
        return Gradients(self.models[used], self.means[used], self.noise[used])


def gradients(link: Link, recipe: Recipe) -> Gradients:
    """The client's gradients, for federations in which an update is one."""
    if not loss_named(recipe.loss).least_squares:
        raise ChooseAnotherAttack("labels are numbers here: works for squared error only")
    link.require(1, "an attack on labels")
    if not recipe.sends_gradient:
        reported = np.nan_to_num(link.weights, nan=np.inf).max()
        whole = recipe.batch_size is None or recipe.batch_size >= reported
        if recipe.epochs != 1 or not whole:
            raise ChooseAnotherAttack(
                "works where local training is one step on all records; here it is "
                f"{recipe.epochs} epoch(s) with batches of {recipe.batch_size or 'all'} records"
            )
    rate = rate_of(link, recipe)
    return Gradients(
        link.sent.astype(np.float64), link.updates() / rate, _rounding(link.returned) / rate
    )


def _rounding(messages: NDArray[np.floating[Any]]) -> Array:
    """One unit in the last place of each number on the wire, or of the message's typical size.

    A number that happens to be tiny was computed from ones that were not.
    """
    size = np.maximum(np.abs(messages), np.sqrt(np.mean(messages.astype(np.float64) ** 2)))
    return np.asarray(np.spacing(size.astype(messages.dtype)), dtype=np.float64)


def output_rows(recipe: Recipe, theta: Array, inputs: Array) -> tuple[Array, GradientRows]:
    """Predictions (n,), and the gradient of each prediction."""
    net = network(recipe)
    outputs = net.predict(theta, inputs)[:, 0]
    # half the squared error's slope at a residual of one half is one: what is left is df/dtheta
    rows = net.rows(theta, inputs, outputs - 0.5)
    return np.asarray(outputs, dtype=np.float64), rows


@dataclass(frozen=True)
class Outside:
    """Auxiliary records as the model sees them; ``groups`` are indices into ``values``.

    ``counts`` is how many records the client has in each group; ``known`` says whether that is
    knowledge or the auxiliary shares times the client's size.
    """

    inputs: Array
    labels: Array
    groups: NDArray[np.int64]
    values: tuple[Value, ...]
    counts: Array
    known: bool
    size: int

    def mean(self, v: Array) -> Array:
        """Mean of v in each group (over the leading axis)."""
        members = np.bincount(self.groups, minlength=len(self.values))
        sums = np.zeros((len(self.values), *v.shape[1:]))
        np.add.at(sums, self.groups, v)
        return sums / members.reshape(-1, *[1] * (v.ndim - 1))

    def thinned(self, most: int, rng: np.random.Generator) -> Outside:
        """At most so many of the records, drawn from each group by its share (two at least)."""
        n = len(self.labels)
        if n <= most:
            return self
        members = np.bincount(self.groups, minlength=len(self.values))
        wanted = np.maximum(2, members * most // n)
        kept = np.concatenate(
            [
                rng.choice(np.flatnonzero(self.groups == c), w, replace=False)
                for c, w in enumerate(wanted)
            ]
        )
        return replace(
            self, inputs=self.inputs[kept], labels=self.labels[kept], groups=self.groups[kept]
        )


def sort(auxiliary: AuxiliaryData, sorting: Groups) -> NDArray[np.int64]:
    """Each auxiliary record's group; refuses unknown groups and groups that are all but absent."""
    column = auxiliary.records[sorting.column]
    if len(auxiliary.labels) != len(column):
        raise FixData(
            f"{len(auxiliary.labels)} auxiliary labels for {len(column)} auxiliary records; give "
            "each record one label"
        )
    hits = column[:, None] == np.asarray(sorting.values)[None, :]
    if not hits.any(axis=1).all():
        stray = sorted({str(v) for v in column[~hits.any(axis=1)]})[:3]
        known = ", ".join(map(str, sorting.values))
        raise FixData(f"auxiliary records of unknown group {', '.join(stray)}; known: {known}")
    members = hits.sum(axis=0)
    if (members < 2).any():
        lacking = ", ".join(str(v) for v, n in zip(sorting.values, members, strict=True) if n < 2)
        raise FixData(
            f"the auxiliary data have fewer than two records of group {lacking}; give more "
            "auxiliary records, or merge groups"
        )
    return np.asarray(hits.argmax(axis=1), dtype=np.int64)


def encoded(view: View, recipe: Recipe) -> tuple[Array, NDArray[np.int64]]:
    """The auxiliary records' inputs and groups; refuses what does not fit or lacks a group."""
    auxiliary = view.know(AuxiliaryData)
    try:
        return encode(recipe.encoding, auxiliary.records), sort(auxiliary, view.know(Groups))
    except FixData as error:
        raise FixData(f"auxiliary data: {error}") from error


def outside(view: View, recipe: Recipe) -> Outside:
    """The view's auxiliary records; refuses those that do not fit the model or lack a group."""
    auxiliary, sorting = view.know(AuxiliaryData), view.know(Groups)
    inputs, groups = encoded(view, recipe)
    try:
        labels = recipe.target.encode_values(auxiliary.labels)
    except FixData as error:
        raise FixData(f"auxiliary data: {error}") from error
    if GroupCounts in view.kinds:
        counts = np.array(view.know(GroupCounts).counts, dtype=np.float64)
        if len(counts) != len(sorting.values) or counts.sum() < 1:
            raise FixData(f"{len(counts)} group counts for {len(sorting.values)} groups")
        return Outside(inputs, labels, groups, sorting.values, counts, True, int(counts.sum()))
    size = _size(view.know(Link))
    shares = np.bincount(groups) / len(groups)
    return Outside(inputs, labels, groups, sorting.values, size * shares, False, size)


def _size(link: Link) -> int:
    reported = link.weights[np.isfinite(link.weights)]
    if not len(reported):
        raise ChooseAnotherAttack(
            "the client reported no number of records and the group counts are not known; grant "
            "GroupCounts"
        )
    return int(reported[-1])
