"""Which labels do the records have, or their groups on average?

leprovost2023's setting: squared error, and local training that is one gradient step on all K
records, so that each round reveals the mean gradient at the model that was sent. `BayesGroups` has
the mean label of each group as a posterior, from the whole update; `LinearDecode` every label at
once, where the records' inputs are known: the gradient is linear in labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import (
    as_trained,
    client_of,
    rate_of,
    record_count,
    refuse_several_steps,
    rounding,
    spread,
)
from overheard.attacks.one_step import measure
from overheard.attacks.pipeline import all_known
from overheard.decoding.labels import Grouped, Residuals, group_posterior, solve_residuals
from overheard.decoding.measurement import Measurement
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.program import Candidates
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode
from overheard.transcript.guess import GroupMeans, LabelValues
from overheard.transcript.knowledge import (
    AuxiliaryData,
    ClientProgram,
    GroupCounts,
    Groups,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]


class Gradients(NamedTuple):
    """Models sent, the client's mean gradients there, and the sd of their rounding, (T, P)."""

    models: Array
    means: Array
    noise: Array


def gradients(link: Messages, recipe: Recipe) -> Gradients:
    """The client's gradients, for federations in which an update is one."""
    if not loss_named(recipe.loss).least_squares:
        raise ChooseAnotherAttack("labels are numbers here: works for squared error only")
    link.require(1, "an attack on labels")
    reported = link.weights[np.isfinite(link.weights)]
    whole = len(reported) and not link.gradients
    refuse_several_steps(link, as_trained(recipe, int(reported.max())) if whole else recipe)
    rate = rate_of(link, recipe)
    return Gradients(link.sent.astype(np.float64), link.updates() / rate, rounding(link) / rate)


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
        inside = np.eye(len(self.values))[self.groups]
        return np.asarray((inside / inside.sum(axis=0)).T @ v)

    def thinned(self, most: int, rng: np.random.Generator) -> Outside:
        """At most so many of the records, drawn from each group by its share (two at least)."""
        n = len(self.labels)
        if n <= most:
            return self
        members = [np.flatnonzero(self.groups == c) for c in range(len(self.values))]
        drawn = [rng.choice(own, max(2, len(own) * most // n), replace=False) for own in members]
        rows = np.concatenate(drawn)
        inputs, labels, groups = (a[rows] for a in (self.inputs, self.labels, self.groups))
        return replace(self, inputs=inputs, labels=labels, groups=groups)


def sort(auxiliary: AuxiliaryData, sorting: Groups) -> NDArray[np.int64]:
    """Each auxiliary record's group; refuses unknown groups and groups that are all but absent."""
    column = auxiliary.records[sorting.column]
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
    values, (inputs, labels, groups) = view.know(Groups).values, encoded(view, recipe)
    known = GroupCounts in view.kinds
    if known:
        counts = np.array(view.know(GroupCounts).counts, dtype=np.float64)
        if len(counts) != len(values) or counts.sum() < 1:
            raise FixData(f"{len(counts)} group counts for {len(values)} groups")
    else:
        size = record_count(view.know(Messages), "it, or each group's (grant GroupCounts),")
        counts = size * np.bincount(groups) / len(groups)
    return Outside(inputs, labels, groups, values, counts, known, round(counts.sum()))


@dataclass(frozen=True)
class BayesGroups:
    """Reads the update as a noisy linear measurement of the groups' mean labels, with all that is
    unknown of the records as noise whose covariance the auxiliary records show, and returns the
    posterior: a mean and a standard deviation per group, nothing tuned by hand.

    Solves: (K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1] + noise of known covariance; r̄ has a Gaussian prior

    Settings: ``layers``, the whole update or, as in the paper, its last layer only; ``rounds``, how
    many of the observed rounds are used together (spread evenly); ``records``, the most auxiliary
    records that are used (the time grows with their cube).
    """

    name: ClassVar[str] = "bayes_groups"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, AuxiliaryData, Groups})
    uses: ClassVar[Kinds] = frozenset({GroupCounts})

    layers: Literal["all", "last"] = "all"
    rounds: int = 8
    records: int = 2000

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(ClientProgram).plain_recipe
        known = outside(view, recipe).thinned(self.records, rng)
        observed = gradients(view.know(Messages), recipe)
        used_rounds = len(observed.models) - 1 - spread(len(observed.models), self.rounds)
        n = len(known.labels)
        gram, overlap, noise = np.zeros((n, n)), np.zeros(n), 0.0
        predictions = []
        for at in used_rounds:
            outputs, rows = output_rows(recipe, observed.models[at], known.inputs)
            predictions.append(outputs)
            residuals = outputs - known.labels
            used = GradientRows((rows.output_layer,)) if self.layers == "last" else rows
            slopes = used.since()
            inner = slopes.gram(slopes) * np.outer(residuals, residuals)
            # every round has the same weight, however large its residuals are
            scale = 1 / max(float(np.trace(inner)) / n, 1e-300)
            gram += inner * scale
            total = observed.means[at, -used.size :] * known.size / 2
            overlap += residuals * slopes.project(used.blocks(total)) * scale
            noise += scale * (known.size / 2) ** 2 * float(np.mean(observed.noise[at] ** 2))
        counts = known.counts if known.known else None
        posterior = group_posterior(
            gram,
            overlap,
            known.labels,
            predictions,
            Grouped(known.groups, len(known.values), known.size, counts),
            float(np.sqrt(noise / len(used_rounds))),
        )
        target = recipe.target
        return GroupMeans(
            known.values,
            target.decode_values(posterior.means),
            posterior.sd * abs(target.scale),
            {
                "counts": "known" if known.known else "estimated",
                "directions": round(posterior.directions),
                "bits_leaked": posterior.bits(),
                "rounds": len(used_rounds),
            },
        )


@dataclass(frozen=True)
class LinearDecode:
    """Solves what the client sends, which is linear in its labels (gradients are, of squared error,
    Poisson and gamma), for every label at once; knows the other columns, models the rounding of
    messages, and says which labels are identified. Labels that are not (records with equal inputs,
    more records than equations) stay near the prediction. No label is claimed to more digits than
    float32 holds: clients may have rounded it so.

    Solves: m ∇ = Σᵢ (f(xᵢ) − yᵢ) ∂f(xᵢ), or release = Σᵢ φᵢ(0) + yᵢ (φᵢ(1) − φᵢ(0))

    Settings: ``rounds``, how many of the observed rounds are stacked (spread evenly).
    """

    name: ClassVar[str] = "linear_decode"
    aliases: ClassVar[dict[str, Any]] = {"linear_label": {}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, PublicRecords})

    rounds: int = 4

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        program, known = view.know(ClientProgram).program, view.know(PublicRecords).records
        label, size = program.target.column, len(known)
        if program.target.classes:
            raise ChooseAnotherAttack(f"{label!r} is a class, which 'max_entropy' decodes")
        all_known(view.know(Messages), size)
        base = _predicted(view, known)

        def measured(*labels: Array) -> Measurement:
            settings = tuple({label: values} for values in labels)
            client = client_of(view, Candidates(known, settings, size), np.ones((size, 1)))
            if isinstance(program, Recipe):
                return measure(client, self.rounds)
            return program.measure(client.messages.exchanges, client.candidates)

        result = measured(base, base + 1)
        raised = max(1.0, result.chi2) if result.residual_dof else 1.0
        first = _solved(result.differences, result.total, np.full(result.rank, raised**0.5))
        # what clients round, who have other labels than these: how far from linear it is that
        # labels as far away as the answer enter
        away = np.abs(first.values) + 1e-12
        again = measured(base, base + 1, base + away)
        each, same = np.moveaxis(again.differences.reshape(size, 2, -1), 1, 0)
        bent = same - away[:, None] * each
        if np.abs(bent).max(initial=0.0) > 1e-3 * np.abs(same).max(initial=0.0):
            raise ChooseAnotherAttack(f"what was sent is not linear in {label!r}")
        solved = _solved(each, again.total, np.sqrt(raised + np.square(bent).sum(axis=0)))
        if solved.tau == 0.0:
            raise ChooseAnotherAttack(
                "what was sent is no larger than the rounding of the messages: nothing to decode"
            )
        values = base + solved.values
        return LabelValues(
            values,
            np.hypot(solved.sd, np.finfo(np.float32).eps / 2 * np.abs(values)),
            {
                "identified": int(solved.identified.sum()),
                "records": size,
                "prior_sd": solved.tau,
                "rank": result.rank,
                "reduced_chi2": result.chi2,
            },
        )


def _predicted(view: View, known: Records) -> Array:
    """What the model that was sent first says of the records: labels that are not identified stay
    near it. Ones, where there is no model."""
    program, messages = view.know(ClientProgram).program, view.know(Messages)
    if not isinstance(program, Recipe):
        return np.ones(len(known))
    inputs = encode(program.encoding, known)
    outputs = network(program).predict(messages.sent[0].astype(np.float64), inputs)[:, 0]
    return program.target.decode_values(np.asarray(outputs, dtype=np.float64))


def _solved(each: Array, total: Array, noise: Array) -> Residuals:
    """How far above the base each label is: what one more adds (m, R), and what all add (R,)."""
    together = each.sum(axis=0)
    mean = float(together @ total / max(float(together @ together), 1e-300))
    solved = solve_residuals(each.T, total - mean * together, noise)
    return replace(solved, values=mean + solved.values)
