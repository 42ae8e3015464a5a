"""The least committal reading of the updates: a linear measurement of the secret, decoded.

Updates that were scaled down, or made noisy, before they were sent are decoded all the same
(`undo`). Clipping multiplies a whole update by one unknown number a round. Who listens may be told
the norm to which updates are clipped, never which were; or nothing, and sees that the update as it
is fits no values at all. In both cases the number is found from the update
(`overheard.decoding.update_scale`) and taken out; so is the size of noise that nobody announced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.attacks.any_training import Client, decode_training
from overheard.attacks.attribute.first_layer import applies, decode_first_layer
from overheard.attacks.attribute.measurement import (
    dense_measurement,
    is_single_layer,
    linear_moments,
    scale_of,
    scaled_sum,
    single_layer_measurement,
)
from overheard.attacks.front import (
    UNEXPLAINED,
    all_known,
    answer,
    candidate_inputs,
    flagged,
    is_input,
    labels_of,
    public_ties,
    refuse_many_values,
    refuse_numbers,
    unseen,
)
from overheard.attacks.order_search import dictionary
from overheard.attacks.simulated_clients import UNLIKE, Attempt, judged, retrained
from overheard.attacks.stranger import beforehand, prior_shares
from overheard.attacks.wire import heard, one_step, only, rounding, spread
from overheard.decoding.limits import UNKNOWNS
from overheard.decoding.max_entropy import Posterior, max_entropy
from overheard.decoding.measurement import Measurement, from_rows
from overheard.decoding.posterior import UNSOLVED
from overheard.decoding.ties import decode_tied, tie_diagnostics
from overheard.decoding.update_scale import by_length, refit, regressed
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates, placed
from overheard.programs.training import shards
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    BatchOrder,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

_WELL = 2.0  # mean square of what is left of moments that is called a good fit in any case
Array = NDArray[np.float64]
Decode = Callable[[Measurement], Posterior]
_NOTICED = 100.0  # noise variance, in units of rounding, that no understated rounding explains


@dataclass(frozen=True)
class ScaleOptions:
    """Settings of the search for the scale and the noise of updates.

    rounds, operations: in which scales are looked for (spread evenly; fewer if the records are
        many), and what that may cost.
    far: standard errors below one from which an update that may be clipped counts as scaled.
    halved: without being told of clipping: the noise must fall at least so far.
    passes, settled: of scale and secret in turn; relative change at rest.
    """

    rounds: int = 8
    operations: float = 1e10
    far: float = 4.5
    halved: float = 0.5
    passes: int = 3
    settled: float = 2e-3


SCALES = ScaleOptions()


@dataclass(frozen=True)
class MaxEntropy:
    """Reads the updates as linear measurements of the attribute and returns the least committal
    probabilities that reproduce them: exact where the measurements suffice, calibrated where not.
    On linear least squares two messages give what an oracle holding the attribute would need to
    fit a logistic regression of it on everything else.

    Told of a defence it reckons with the noise and finds the scale of clipped updates; what a
    stranger would say of each record, where auxiliary records are granted, is its prior; else how
    common each value is at large. What it cannot explain or decide is flagged.

    Settings: ``rounds``, how many of the rounds heard are used (spread evenly); of models
    without hidden layers all are. ``seeds``: how many seeds, from 0, clients may have shuffled
    their mini-batches with are tried besides those that people like (0: none at all); where the
    batch order is granted, that counts.
    """

    name: ClassVar[str] = "max_entropy"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )

    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {AppliedDefence, AttributePrior, AuxiliaryData, BatchOrder}
    )
    any_training: ClassVar[bool] = True

    rounds: int = 100
    seeds: int = 256

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        if view.know(LocalTraining).recipe.steps is not None:
            raise ChooseAnotherAttack(
                "decodes whole passes over the records; these clients stop after some mini-batches"
            )
        all_known(heard(view), len(view.know(Labels).values))
        recipe = view.know(LocalTraining).recipe
        if not is_input(view):
            return unseen(view, beforehand(view))
        refuse_many_values(view.know(AttributeDomain))
        rows = recipe.plain and network(recipe).factored
        if network(recipe).mixes or (not rows and not one_step(heard(view), recipe)):
            return _any_training(view, self.seeds, rng)
        very_many = _very_many(view)
        if very_many is not None:
            return very_many
        if takes_several_steps(heard(view), recipe):
            return _any_training(view, self.seeds, rng)
        return _one_step(view, self.rounds, rng)


def takes_several_steps(link: Link, recipe: Recipe) -> bool:
    """Does the client move its model more than once between two messages? Linear least squares
    with full batches has its own exact solution, whatever the epochs."""
    solved = recipe.linear_least_squares and recipe.full_batch and recipe.plain
    return not (solved or one_step(link, recipe))


def _order(view: View, seeds: int) -> BatchOrder | None:
    """What is known of the order of the batches; else a dictionary of seeds."""
    if BatchOrder in view.kinds:
        return view.know(BatchOrder)
    return dictionary(seeds) if seeds else None


def _any_training(view: View, seeds: int, rng: np.random.Generator) -> AttributeValues:
    """Several steps, any rule, any layers: the client's own training, relaxed and linearised."""
    refuse_numbers(view.know(AttributeDomain))
    link, ties = heard(view), public_ties(view)
    told = view.know(AppliedDefence) if AppliedDefence in view.kinds else None
    client = Client(
        link,
        view.know(LocalTraining).recipe,
        candidates_of(view),
        beforehand(view),
        ties,
        _order(view, seeds),
        may_be_clipped(link, told),
        told is not None and bool(told.names),
    )
    found = decode_training(client, rng)
    return AttributeValues(
        found.probabilities,
        view.know(AttributeDomain).values,
        {
            "method": found.method,
            **flagged(found.flag, found.probabilities),
            **found.notes,
            **tie_diagnostics(ties, found.probabilities),
        },
    )


def candidates_of(view: View) -> Candidates:
    """What each record may be, as the model sees it."""
    inputs = candidate_inputs(view)
    values, people, _ = inputs.shape
    labels = np.broadcast_to(labels_of(view), (values, people))
    return Candidates(inputs, labels, np.ones(values, dtype=bool), people)


def _one_step(view: View, most: int, rng: np.random.Generator) -> AttributeValues:
    """One full-batch step a round, or linear least squares: the update is linear in the secret."""
    recipe, link, ties = view.know(LocalTraining).recipe, heard(view), public_ties(view)
    prior = beforehand(view)
    told = view.know(AppliedDefence) if AppliedDefence in view.kinds else None

    def decode(measurement: Measurement) -> Posterior:
        # Least squares tells d + 2 numbers however long one listens, and opposite secrets may
        # share them (driouich2022 Proposition 1): only the convex problem says so honestly.
        few = measurement.rank < measurement.unknowns
        if few and recipe.linear_least_squares:
            return max_entropy(measurement, prior)
        return decode_tied(measurement, ties, prior)

    defended: dict[str, float | int | str] = {}
    measurement, misfit = measure(view, most)
    posterior = None
    clipped = may_be_clipped(link, told)
    if (clipped or misfits(measurement)) and not link.sparse:
        found = undo(link, recipe, candidates_of(view), prior, clipped, decode)
        if found is not None and found.noise_sd > link.noise_sd:
            defended["noise_found"] = found.noise_sd
            names = () if told is None else told.names
            view = view.knowing(AppliedDefence(names, noise_sd=found.noise_sd))
            if found.measurement is None:
                measurement, misfit = measure(view, most)
        if found is not None and found.measurement is not None:
            measurement, posterior = found.measurement, found.posterior
            misfit = measurement.misfit
            defended["scale"] = float(np.median(found.scales))
    if posterior is None:
        posterior = decode(measurement)
    flag = posterior.flag
    if not flag and misfits(measurement):
        flag = UNEXPLAINED
    if view.know(AttributeDomain).spread:
        few = only(link, spread(len(link), most))
        tried = judged(
            number_play(view, few, candidate_inputs(view)[0], rng),
            lambda messages: _attempt(decode(measure(view.knowing(messages), most)[0])),
            posterior.probabilities,
            prior,
        )
        believed = tried.calibration.applied(posterior.probabilities)
        posterior = replace(posterior, probabilities=believed)
        defended |= tried.calibration.notes
        fits = tried.fits(posterior.chi2_per_equation, _WELL)
        flag = flag or (tried.flag if fits else UNLIKE)
    notes = {"misfit": misfit, **defended}
    return answer(view, replace(posterior, flag=flag), ties, notes)


def _attempt(posterior: Posterior) -> Attempt:
    return Attempt(posterior.probabilities, posterior.chi2_per_equation)


def _very_many(view: View) -> AttributeValues | None:
    """Too many records for a Gram matrix: the first layer's equations, matrix-free."""
    recipe, link = view.know(LocalTraining).recipe, heard(view)
    labels, domain = labels_of(view), view.know(AttributeDomain)
    if not applies(link, recipe, len(labels) * (len(domain.values) - 1)):
        return None
    records = view.know(PublicRecords).records
    posterior, ties = decode_first_layer(link, recipe, records, labels, domain.settings)
    flag = "" if posterior.converged else UNSOLVED
    notes: dict[str, int | str] = {
        "proven": str(posterior.converged),
        "iterations": posterior.iterations,
    }
    return answer(view, replace(posterior, flag=flag), ties, notes)


def measure(view: View, most: int) -> tuple[Measurement, float]:
    """What the messages say about the attribute, as a whitened linear measurement.

    And the mean square of what they say that no attribute explains, in units of the assumed
    noise: about one or less, unless recipe, model or records are not what they are said to be.
    """
    recipe, link = view.know(LocalTraining).recipe, heard(view)
    domain, records = view.know(AttributeDomain), view.know(PublicRecords).records
    if recipe.linear_least_squares and recipe.full_batch and recipe.private is None:
        moments, phi = linear_moments(link, recipe, records, labels_of(view), domain, most)
        width = phi.shape[1]
        features = np.zeros((len(phi), len(domain.values), len(moments.total)))
        for k in range(1, len(domain.values)):
            features[:, k] = phi @ moments.rows[:, (k - 1) * width : k * width].T
        noise = np.eye(len(moments.total))
        if domain.spread:
            noise += within_bins(features, recipe, domain, prior_shares(view))
        return from_rows(features, moments.total, noise), moments.chi2
    refuse_numbers(domain)
    if is_single_layer(link, recipe):
        measurement = single_layer_measurement(link, recipe, candidates_of(view))
    else:
        measurement = dense_measurement(link, recipe, candidates_of(view), most)
    return measurement, measurement.misfit


def within_bins(features: Array, recipe: Recipe, domain: AttributeDomain, shares: Array) -> Array:
    """Noise of a binned number: where a value lies within its bin is not decoded.

    To first order a record's features (m, K, r) move along the chord from the first bin to the
    last. shares: (K,) of the bins.
    """
    scale = scale_of(recipe, domain.column)
    reach = (float(domain.values[-1]) - float(domain.values[0])) / scale
    slope = (features[:, -1] - features[:, 0]) / reach
    variance = float(shares @ np.square(domain.spread)) / scale**2
    return np.asarray(variance * slope.T @ slope)


def number_play(
    view: View, link: Link, base: Array, rng: np.random.Generator
) -> Callable[[Array], tuple[Link, NDArray[np.int64]]]:
    """What draws numbers anywhere within their bins and trains on them (see `judged`).

    base: (m, d), the records' inputs with the first bin's middle.
    """
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    labels = recipe.target.encode_values(view.know(Labels).values)
    inside = recipe.encoding.inputs_of(domain.column)
    middles, spread = np.asarray(domain.values, dtype=np.float64), np.asarray(domain.spread)

    def play(probabilities: Array) -> tuple[Link, NDArray[np.int64]]:
        secret, place = placed(probabilities, np.column_stack([base, labels]), rng)
        moved = middles[secret] + spread[secret] * norm.ppf(place) - middles[0]
        inputs = base.copy()
        inputs[:, inside] += (moved / scale_of(recipe, domain.column))[:, None]
        data = shards([inputs], [labels], str(link.sent.dtype))
        return retrained(link, recipe, data, link.noise_sd, rng), secret

    return play


@dataclass(frozen=True)
class Undone:
    """What was done to the updates before they were sent, and what they say without it.

    scales: of the rounds used; noise_sd: of the noise on a coordinate, told or found. measurement
    and posterior are None where no round was scaled: then ordinary decoding serves.
    """

    scales: Array
    noise_sd: float
    measurement: Measurement | None = None
    posterior: Posterior | None = None


def may_be_clipped(link: Link, told: AppliedDefence | None) -> bool:
    """Was the listener told of a norm that some update heard reaches?"""
    if told is None or told.clip_norm is None:
        return False
    if link.noise_sd:
        return True
    lengths = np.linalg.norm(link.updates(), axis=1)
    return bool((lengths >= (1 - 1e-3) * told.clip_norm).any())


def misfits(measurement: Measurement) -> bool:
    """Is there more than the stated noise where nothing but noise should be?"""
    return bool(measurement.spare_rows and measurement.misfit > _NOTICED)


def undo(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    prior: Array,
    told: bool,
    decode: Decode,
    options: ScaleOptions = SCALES,
) -> Undone | None:
    """Find every round's own scale and the noise, and decode if a round was scaled.

    prior: (m, K); told: clipping was announced, so that scales are at most one and a small one is
    believed. None where it cannot be found out: several local steps, or too many records.
    """
    unknowns = candidates.unknowns
    if unknowns > UNKNOWNS or not one_step(link, recipe):
        return None
    most = int(np.clip(options.operations / unknowns**3, 1, options.rounds))
    link = only(link, spread(len(link), most))
    rows = range(len(link))
    sums = [scaled_sum(link, recipe, candidates, row) for row in rows]
    scales, noise = np.ones(len(link)), 1.0
    for row, one in enumerate(sums):
        found = regressed(one)
        if found is None:
            scales[row] = min(by_length(one, prior), 1.0) if told else 1.0
            continue
        away = (1 - found.value) / found.sd
        believed = (
            away > options.far if told else found.noise < options.halved * found.noise_unscaled
        )
        if believed and found.value > 0:
            scales[row] = found.value
        noise = max(noise, found.noise)
    if noise > _NOTICED:
        stated = float(np.sqrt(np.mean(rounding(link) ** 2)))
        link = replace(link, noise_sd=float(np.sqrt(noise)) * stated)
    if (scales == 1.0).all():
        return Undone(scales, link.noise_sd)
    for _ in range(options.passes):
        measurement = dense_measurement(link, recipe, candidates, len(link), scales=scales)
        posterior = decode(measurement)
        again = np.array([refit(one, posterior.probabilities) for one in sums])
        again = np.where(scales == 1.0, 1.0, np.minimum(again, 1.0) if told else again)
        proven = posterior.method in ("linear_solve", "counts")
        if proven or np.abs(again / scales - 1).max() <= options.settled:
            break
        scales = again
    return Undone(scales, link.noise_sd, measurement, posterior)
