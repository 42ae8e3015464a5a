"""Updates of a client as a linear measurement of its records' unknown values.

`dense_measurement`, of networks: one full-batch step sends ``(theta - theta') m / lr = sum_i
g_i(s_i)``, exactly linear in the indicator of each record's value, however non-linear the network
(decoders.md section 1). Rounds stack. With few parameters the gradients are rows; with many, or
where that is sharp enough already, only their inner products are made. Of dense layers these need
no gradient (`GradientRows`).

`single_layer_measurement`, of a logistic or softmax regression: without hidden layers a record's
gradient is its residual times its input, so that the residuals of all rounds span a few dozen
curves in time: every round is used, at the price of a few (`overheard.decoding.rounds`).

`linear_moments`, of linear least squares: the secret column's moments (decoders.md section 2.1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import (
    format_of,
    one_step,
    only,
    rate_of,
    refuse_several_steps,
    rounding,
    spread,
)
from overheard.decoding.limits import NUMBERS
from overheard.decoding.measurement import Measurement, from_differences, from_gram, stack
from overheard.decoding.moments import Moments, Steps, moments_of_secret, statistics
from overheard.decoding.rounds import float32_noise, from_factors
from overheard.decoding.update_scale import ScaledSum
from overheard.errors import ChooseAnotherAttack
from overheard.programs.gradient_rows import Differences, GradientRows, add_products
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.private import client_rows
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Scaled, encode
from overheard.programs.simulated import Candidates
from overheard.transcript.knowledge import AttributeDomain, Link

Array = NDArray[np.float64]

_FEW_ROW_NUMBERS = 1_000_000  # rows of so many numbers cost next to nothing
_ALIKE = 1.5  # ratio of largest to smallest noise that counts as even
_COUNT_SD = 0.01  # how exactly the number of members is known, in records
_SHARP = 30.0  # least singular value, in noise units, from which finer weighting adds nothing


def dense_measurement(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    most: int,
    *,
    products_only: bool = False,
    scales: Array | None = None,
) -> Measurement:
    """The measurement of which candidate each record is, from ``most`` rounds.

    Of records that may be absent the number of those present is one more equation: the client
    reported it. ``products_only``: inner products however blunt; quick, for who can tell whether
    they suffice. scales: by what each round of the link was multiplied before it was sent (None:
    by one).
    """
    refuse_several_steps(link, recipe)
    used = spread(len(link), most)
    scale = candidates.members / rate_of(link, recipe)
    # how a gradient was rounded is judged by all rounds, so those are kept
    heard = link if link.gradients else only(link, used)
    updates, noise = heard.updates() * scale, rounding(heard) * scale
    if len(heard) > len(used):
        updates, noise = updates[used], noise[used]
    if scales is not None:
        updates, noise = updates / scales[used, None], noise / scales[used, None]
    thetas = link.sent[used].astype(np.float64)
    unknowns = candidates.unknowns
    numbers = unknowns * thetas.size
    if link.sparse:
        return _rows(recipe, thetas, updates, noise, candidates, updates != 0)
    if products_only:
        return _inner_products(recipe, thetas, updates, noise, candidates)
    if numbers > _FEW_ROW_NUMBERS and (thetas.size > unknowns or numbers > NUMBERS):
        products = _inner_products(recipe, thetas, updates, noise, candidates)
        if numbers > NUMBERS or _even(noise) or _sharp(products):
            return products
    return _rows(recipe, thetas, updates, noise, candidates)


def scaled_sum(link: Link, recipe: Recipe, candidates: Candidates, row: int) -> ScaledSum:
    """One round of the link with what is needed to find out by what it was multiplied."""
    scale = candidates.members / rate_of(link, recipe)
    sd = float(np.sqrt(np.mean(rounding(link)[row] ** 2))) * scale
    update, theta = link.updates()[row] * scale / sd, link.sent[row].astype(np.float64)
    at = _at(recipe, theta, candidates, np.zeros_like(update))
    base, unknowns = -at.left / sd, candidates.unknowns
    products = np.zeros((len(at.base), len(at.others)) * 2)
    with_both = np.zeros((2, *products.shape[:2]))
    for a, one in enumerate(at.others):
        for which, flat in enumerate((update, base)):
            with_both[which, :, a] = one.project(at.base.blocks(flat)) / sd
    add_products(at.others, sd**-2, products)
    return ScaledSum(
        products.reshape(unknowns, unknowns),
        with_both[0].ravel(),
        with_both[1].ravel(),
        float(update @ update),
        float(update @ base),
        float(base @ base),
        update.size,
        len(candidates.present),
    )


def _even(noise: Array) -> bool:
    """Do all rows of a round carry about the same noise, so that weighting them adds nothing?"""
    return bool((noise.max(axis=1) <= _ALIKE * noise.min(axis=1)).all())


def _sharp(measurement: Measurement) -> bool:
    """Is every unknown seen far above the noise, so that weighting each row adds nothing?"""
    if measurement.unresolved or measurement.rank < measurement.unknowns:
        return False
    features = measurement.features
    return float(np.einsum("ikr,ikr->r", features, features).min()) >= _SHARP**2


def summed_measurement(
    recipe: Recipe,
    thetas: Array,
    totals: Array,
    noise: Array,
    candidates: Candidates,
    weights: Array,
) -> Measurement:
    """The measurement from sums (T, P) in which record i counts ``weights[t, i]`` times its
    gradient at ``thetas[t]``; noise: (T, P)."""
    return _inner_products(recipe, thetas, totals, noise, candidates, weights)


class _At(NamedTuple):
    """At one model: gradients of the first candidate present, differences of the others to the
    first candidate, and what the update leaves unexplained by the first."""

    base: GradientRows
    others: list[Differences]
    left: Array


def _at(
    recipe: Recipe,
    theta: Array,
    candidates: Candidates,
    update: Array,
    weights: Array | None = None,
) -> _At:
    if too_long(recipe, theta, candidates):
        raise ChooseAnotherAttack(
            f"{candidates.inputs.shape[1]} records and {recipe.model.size} parameters are too many "
            "gradients to write out; of dense layers any number can be decoded"
        )
    there = np.flatnonzero(candidates.present)
    rows = [client_rows(recipe, theta, candidates.inputs[k], candidates.labels[k]) for k in there]
    if weights is not None:
        rows = [one.scaled(weights) for one in rows]
    if not candidates.present[0]:  # who is absent adds nothing
        return _At(rows[0], [one.since() for one in rows], update)
    return _At(rows[0], [one.since(rows[0]) for one in rows[1:]], update - rows[0].total())


def too_long(recipe: Recipe, theta: Array, candidates: Candidates) -> bool:
    """Are there more gradients of layers that are written out than there is room for?"""
    if network(recipe).factored:
        return False
    one = network(recipe).rows(theta, candidates.inputs[0, :1], np.zeros(1))
    return bool(candidates.labels.size * one.written > NUMBERS)


def _rows(
    recipe: Recipe,
    thetas: Array,
    updates: Array,
    noise: Array,
    candidates: Candidates,
    sent: NDArray[np.bool_] | None = None,
) -> Measurement:
    """Every coordinate an equation with its own noise; ``sent`` (T, P): only these."""
    differences, residual, sds = [], [], []
    for number, (theta, update) in enumerate(zip(thetas, updates, strict=True)):
        kept = slice(None) if sent is None else np.flatnonzero(sent[number])
        at = _at(recipe, theta, candidates, update)
        differences.append(np.stack([o.explicit()[..., kept] for o in at.others], axis=1))
        residual.append(at.left[kept])
        sds.append(noise[number][kept])
    if not candidates.present[0]:
        differences.append(np.ones((*differences[0].shape[:2], 1)))
        residual.append(np.array([float(candidates.members)]))
        sds.append(np.array([_COUNT_SD]))
    return from_differences(
        np.concatenate(differences, axis=2), np.concatenate(residual), np.concatenate(sds)
    )


def _inner_products(
    recipe: Recipe,
    thetas: Array,
    updates: Array,
    noise: Array,
    candidates: Candidates,
    weights: Array | None = None,
) -> Measurement:
    """Rounds are weighted by their own noise, so that the sum of Gram matrices has unit noise."""
    values, people, _ = candidates.inputs.shape
    unknowns, counted = candidates.unknowns, int(not candidates.present[0])
    number_of = candidates.members * counted / _COUNT_SD
    # record-major: the K - 1 differences of a record stand side by side
    products = np.full((people, values - 1, people, values - 1), counted * _COUNT_SD**-2)
    projections = np.full((people, values - 1), number_of / _COUNT_SD)
    energy = number_of**2
    for number, (theta, update, sd) in enumerate(zip(thetas, updates, noise, strict=True)):
        precision = float(1 / np.mean(sd**2))
        weight = None if weights is None else weights[number]
        at = _at(recipe, theta, candidates, update, weight)
        energy += precision * float(at.left @ at.left)
        blocks = at.base.blocks(at.left)
        for a, one in enumerate(at.others):
            projections[:, a] += precision * one.project(blocks)
        add_products(at.others, precision, products)
    measurement = from_gram(
        products.reshape(unknowns, unknowns), projections.ravel(), 1.0, candidates=values
    )
    spare = thetas.size + counted - measurement.rank
    if spare <= 0:
        return measurement
    # what the differences cannot explain; a difference of sums, so never quite negative
    left_over = max(energy - float(measurement.total @ measurement.total), 0.0)
    return replace(measurement, spare_rows=spare, spare_chi2=left_over)


def is_single_layer(link: Link, recipe: Recipe) -> bool:
    """One full-batch step a round of a classifier without hidden layers."""
    as_it_is = not (recipe.pull or recipe.private or link.sparse)
    return recipe.model.linear and one_step(link, recipe) and as_it_is


def single_layer_measurement(link: Link, recipe: Recipe, candidates: Candidates) -> Measurement:
    """The measurement of which candidate each record is.

    Rounds with an all-zero model are left out: equal residuals make float32 sums err in one
    direction.
    """
    values, people, _ = candidates.inputs.shape
    outputs = recipe.model.outputs
    told = np.flatnonzero(np.abs(link.sent).max(axis=1) > 0)
    most = max(NUMBERS // (values * people * outputs), 1)
    used = told[spread(len(told), most)] if len(told) else np.arange(1)
    scale = people / rate_of(link, recipe)
    thetas = link.sent[used].astype(np.float64)
    # (T, K, m, outputs) -> (outputs, m, K, T)
    raw = network(recipe).predict(thetas[:, None, :], candidates.inputs)
    residuals = np.moveaxis(
        loss_named(recipe.loss).errors(raw, candidates.labels), (3, 2, 1), (0, 1, 2)
    )
    inputs = candidates.inputs.transpose(1, 0, 2)
    if recipe.model.bias:
        inputs = np.concatenate([inputs, np.ones((people, values, 1))], axis=2)
    totals = _by_output(recipe, link.updates()[used] * scale)
    returned = _by_output(recipe, link.returned[used].astype(np.float64))
    stated = _by_output(recipe, rounding(link)[used] * scale)
    wire = format_of(link.returned).name
    parts = []
    for unit in range(outputs):
        noise = stated[unit]
        if wire == "float32":
            noise = float32_noise(returned[unit], residuals[unit], inputs, scale)
            noise = np.hypot(noise, link.noise_sd * scale)
        parts.append(from_factors(residuals[unit], inputs, totals[unit], noise))
    return parts[0] if outputs == 1 else stack(parts)


def _by_output(recipe: Recipe, flat: Array) -> Array:
    """(T, P) parameters as (outputs, T, d [+ 1])."""
    outputs, width = recipe.model.outputs, recipe.model.inputs
    weights = flat[:, : outputs * width].reshape(len(flat), outputs, width)
    if recipe.model.bias:
        weights = np.concatenate([weights, flat[:, outputs * width :, None]], axis=2)
    return weights.transpose(1, 0, 2)


def linear_moments(
    link: Link,
    recipe: Recipe,
    records: Records,
    labels: NDArray[np.float64],
    domain: AttributeDomain,
    most: int,
) -> tuple[Moments, NDArray[np.float64]]:
    """The secret's moments and each record's statistics (decoders.md section 2.1)."""
    inputs = recipe.encoding.inputs_of_all(domain.columns)
    public = encode(recipe.encoding, records, domain.settings[0])
    blocks = np.zeros((len(domain.values), recipe.encoding.width))
    for k, setting in enumerate(domain.settings):
        one = encode(recipe.encoding, records.take(np.arange(1)), setting)
        blocks[k, inputs] = one[0, inputs]
    public[:, inputs] = 0.0
    variance = np.zeros_like(blocks)
    for k, deviation in enumerate(domain.spread):
        variance[k, inputs] = (deviation / scale_of(recipe, domain.column)) ** 2
    phi = statistics(public, labels)
    used = spread(len(link), most)
    # the solver's own float64 arithmetic, which matters where the wire is as precise
    solver = 64 * np.finfo(np.float64).eps * np.abs(link.sent[used]).max()
    rate = rate_of(link, recipe)
    moments = moments_of_secret(
        link.sent[used].astype(np.float64),
        link.updates()[used],
        np.hypot(rounding(link)[used], solver),
        phi,
        blocks,
        Steps(
            2 * rate / len(phi),
            1 if link.gradients else recipe.epochs,
            recipe.model.bias,
            recipe.proximal * rate,
        ),
        variance,
    )
    return moments, phi


def scale_of(recipe: Recipe, column: str) -> float:
    """By how much a number is divided before the model sees it."""
    block = next(b for b in recipe.encoding.blocks if b.column == column)
    return block.scale if isinstance(block, Scaled) else 1.0
