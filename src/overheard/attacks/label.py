"""Which labels do the records have, or their groups on average?

leprovost2023's setting: squared error, and local training that is one gradient step on all K
records, so that each round reveals the mean gradient at the model that was sent. `BayesGroups` has
the mean label of each group as a posterior, from the whole update; `LinearDecode` every label at
once, where the records' inputs are known: the gradient is linear in labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import rate_of
from overheard.decoding.group_posterior import Grouped, group_posterior
from overheard.decoding.label_solve import solve_residuals
from overheard.decoding.limits import BLOCK
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Value, encode
from overheard.transcript.guess import GroupMeans, LabelValues
from overheard.transcript.knowledge import (
    AuxiliaryData,
    GroupCounts,
    Groups,
    Link,
    LocalTraining,
    PublicRecords,
)
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


def encoded(view: View, recipe: Recipe) -> tuple[Array, Array, NDArray[np.int64]]:
    """The auxiliary records' inputs, labels and groups; refuses what does not fit or lacks one."""
    auxiliary = view.know(AuxiliaryData)
    try:
        labels = recipe.target.encode_values(auxiliary.labels)
        groups = sort(auxiliary, view.know(Groups))
        return encode(recipe.encoding, auxiliary.records), labels, groups
    except FixData as error:
        raise FixData(f"auxiliary data: {error}") from error


def outside(view: View, recipe: Recipe) -> Outside:
    """The view's auxiliary records; refuses those that do not fit the model or lack a group."""
    sorting, (inputs, labels, groups) = view.know(Groups), encoded(view, recipe)
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


@dataclass(frozen=True)
class BayesGroups:
    """Reads the update as a noisy linear measurement of the groups' mean labels, with all that is
    unknown of the records as noise whose covariance the auxiliary records show, and returns the
    posterior: a mean and a standard deviation per group, nothing tuned by hand.

    Settings: ``layers``, the whole update or, as in the paper, its last layer only; ``rounds``, how
    many of the rounds heard are used together (spread evenly); ``records``, the most auxiliary
    records that are used (the time grows with their cube).
    """

    name: ClassVar[str] = "bayes_groups"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, AuxiliaryData, Groups})
    uses: ClassVar[frozenset[type[Any]]] = frozenset({GroupCounts})

    layers: Literal["all", "last"] = "all"
    rounds: int = 8
    records: int = 2000

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(LocalTraining).recipe
        known = outside(view, recipe).thinned(self.records, rng)
        heard = gradients(view.know(Link), recipe).spread(self.rounds)
        n = len(known.labels)
        gram, overlap, noise = np.zeros((n, n)), np.zeros(n), 0.0
        predictions = []
        for model, mean, rounding in zip(heard.models, heard.means, heard.noise, strict=True):
            outputs, rows = output_rows(recipe, model, known.inputs)
            predictions.append(outputs)
            residuals = outputs - known.labels
            used = GradientRows((rows.output_layer,)) if self.layers == "last" else rows
            slopes = used.since()
            inner = slopes.gram(slopes) * np.outer(residuals, residuals)
            # every round has the same weight, however large its residuals are
            scale = 1 / max(float(np.trace(inner)) / n, 1e-300)
            gram += inner * scale
            total = mean[-used.size :] * known.size / 2
            overlap += residuals * slopes.project(used.blocks(total)) * scale
            noise += scale * (known.size / 2) ** 2 * float(np.mean(rounding**2)) / len(heard)
        posterior = group_posterior(
            gram,
            overlap,
            known.labels,
            predictions,
            Grouped(
                known.groups,
                len(known.values),
                known.size,
                known.counts if known.known else None,
            ),
            float(np.sqrt(noise)),
        )
        target = recipe.target
        return GroupMeans(
            known.values,
            target.decode_values(posterior.means),
            posterior.sd * abs(target.scale),
            {
                "counts": "known" if known.known else "estimated",
                "directions": posterior.directions,
                "bits_leaked": posterior.bits(),
                "rounds": len(heard),
            },
        )


@dataclass(frozen=True)
class LinearDecode:
    """Solves the client's gradients, which are linear in its labels, for every label at once; knows
    the inputs, models the rounding on the wire, and says which labels are identified. Labels that
    are not (records with equal inputs, more records than equations) stay near the prediction.

    Settings: ``rounds``, how many of the rounds heard are stacked (spread evenly).
    """

    name: ClassVar[str] = "linear_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, PublicRecords})

    rounds: int = 4

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        heard = gradients(link, recipe).spread(self.rounds)
        inputs = encode(recipe.encoding, view.know(PublicRecords).records)
        sizes = link.weights[np.isfinite(link.weights)]
        if not len(inputs) or (sizes != len(inputs)).any():
            raise FixData(
                f"{len(inputs)} records are known but the client reported {sizes.max():g}; give "
                "the records that it trained on"
                if len(sizes)
                else "the client has no known records; there is nothing to decode"
            )
        reference, _ = output_rows(recipe, heard.models[0], inputs)
        precision = float(np.finfo(link.returned.dtype).eps)
        found = solve_residuals(_rows(recipe, heard, inputs, reference, precision), len(inputs))
        if found.tau == 0.0:
            raise ChooseAnotherAttack(
                "the gradients are no larger than the rounding on the wire: nothing to decode"
            )
        target = recipe.target
        return LabelValues(
            target.decode_values(reference - found.values),
            found.sd * abs(target.scale),
            {
                "identified": int(found.identified.sum()),
                "records": len(inputs),
                "prior_sd": found.tau * abs(target.scale),
                "rank": found.rank,
                "misfit": found.misfit,
                "rounds": len(heard),
            },
        )


def _rows(
    recipe: Recipe, heard: Gradients, inputs: Array, reference: Array, precision: float
) -> Iterator[tuple[Array, Array, Array]]:
    """Equations for the residuals at the first round, a block at a time.

    A later round's residual is the first's plus the change of the prediction, which is known. To
    the rounding on the wire comes that of the client's own arithmetic, in the same precision.
    """
    size = len(inputs)
    for model, mean, rounding in zip(heard.models, heard.means, heard.noise, strict=True):
        outputs, rows = output_rows(recipe, model, inputs)
        moved = outputs - reference
        loudest = float(np.sqrt(np.mean(outputs**2)) + np.sqrt(size) * _typical(mean, rows))
        units = max(1, BLOCK // size)
        for begin in range(0, rows.size, units):
            part = slice(begin, begin + units)
            columns = rows.columns(np.arange(rows.size)[part])
            features = np.asarray(columns.T, dtype=np.float64)
            strength = np.sqrt((features**2).sum(axis=1))
            noise = np.hypot(rounding[part] * size / 2, precision * loudest * strength)
            heard_sum = mean[part].astype(np.float64) * size / 2
            live = noise > 0
            yield (features[live], (heard_sum - features @ moved)[live], noise[live])


def _typical(mean: Array, rows: GradientRows) -> float:
    """Size of a residual for which the gradient would be as long as it is, if none cancelled."""
    length = sum(float(layer.lengths().sum()) for layer in rows.layers)
    return float(np.linalg.norm(mean) * len(rows) / 2 / np.sqrt(max(length, 1e-300)))
