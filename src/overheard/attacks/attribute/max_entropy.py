"""The least committal reading of the updates: a linear measurement of the secret, decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.any_training import Client, decode_training
from overheard.attacks.attribute import single_layer
from overheard.attacks.attribute.clipped import may_be_clipped, misfits, undo
from overheard.attacks.attribute.dense_measurement import dense_measurement
from overheard.attacks.attribute.first_layer import applies, decode_first_layer
from overheard.attacks.attribute.linear_moments import linear_moments
from overheard.attacks.attribute.numbers import number_play, within_bins
from overheard.attacks.order_search import dictionary
from overheard.attacks.rehearsal import (
    UNLIKE,
    Attempt,
    few_rounds,
    rehearse,
)
from overheard.attacks.wire import heard, one_step
from overheard.decoding.counts import decode_tied, same_rows, tie_diagnostics
from overheard.decoding.ladder import UNSOLVED
from overheard.decoding.max_entropy import Posterior, max_entropy
from overheard.decoding.measurement import Measurement, from_rows
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode, encode_each
from overheard.programs.simulated import Candidates
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    BatchOrder,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

UNEXPLAINED = "poor fit: the updates hold more than recipe, model and rounding explain"
_WELL = 2.0  # mean square of what is left of moments that is called a good fit in any case
_DECIDED = 0.9  # expected accuracy below which choices are flagged


@dataclass(frozen=True)
class MaxEntropy:
    """Reads the updates as linear measurements of the attribute and returns the least committal
    probabilities that reproduce them: exact where the measurements suffice, calibrated where not.
    On linear least squares two messages give what an oracle holding the attribute would need to
    fit a logistic regression of it on everything else.

    Told of a defence it reckons with the noise and finds the scale of clipped updates; how common
    a value is at large, where known, is its prior. What it cannot explain or decide is flagged.

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

    uses: ClassVar[frozenset[type[Any]]] = frozenset({AppliedDefence, AttributePrior, BatchOrder})
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
            return _not_an_input(view)
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
    domain = view.know(AttributeDomain)
    if domain.spread:
        raise ChooseAnotherAttack(
            f"{domain.column!r} is a number; numbers are decoded for linear least squares only"
        )
    link, ties = heard(view), public_ties(view)
    told = view.know(AppliedDefence) if AppliedDefence in view.kinds else None
    client = Client(
        link,
        view.know(LocalTraining).recipe,
        *_candidates(view),
        ties,
        _order(view, seeds),
        may_be_clipped(link, told),
        told is not None and bool(told.names),
    )
    found = decode_training(client, rng)
    return AttributeValues(
        found.probabilities,
        domain.values,
        {
            "method": found.method,
            **flagged(found.flag, found.probabilities),
            **found.notes,
            **tie_diagnostics(ties, found.probabilities),
        },
    )


def _candidates(view: View) -> tuple[Candidates, NDArray[np.float64]]:
    """What each record may be, and how likely that is beforehand."""
    recipe = view.know(LocalTraining).recipe
    labels = recipe.target.encode_values(view.know(Labels).values)
    inputs = candidate_inputs(view)
    values, people, _ = inputs.shape
    labels = np.broadcast_to(labels, (values, people))
    prior = np.tile(prior_shares(view), (people, 1))
    return Candidates(inputs, labels, np.ones(values, dtype=bool), people), prior


def is_input(view: View) -> bool:
    """Does the model see the attribute at all?"""
    columns = view.know(LocalTraining).recipe.encoding.columns()
    return any(column in columns for column in view.know(AttributeDomain).columns)


def refuse_unseen(view: View) -> None:
    """For decoders of updates: what the model does not see is not in them."""
    if not is_input(view):
        raise ChooseAnotherAttack(
            f"the model does not see {view.know(AttributeDomain).column!r}, so no update depends "
            "on it: there is nothing to decode"
        )


def _not_an_input(view: View) -> AttributeValues:
    """The model does not see the attribute, so no update depends on it: what was known before."""
    shares = prior_shares(view)
    probabilities = np.tile(shares / shares.sum(), (len(view.know(Labels).values), 1))
    domain = view.know(AttributeDomain)
    return AttributeValues(
        probabilities,
        domain.values,
        {
            "method": "prior",
            "not_an_input": f"the model does not see {domain.column!r}",
            **flagged("", probabilities),
            "rank": 0,
            "unknowns": len(probabilities) * (len(domain.values) - 1),
        },
    )


def _one_step(view: View, most: int, rng: np.random.Generator) -> AttributeValues:
    """One full-batch step a round, or linear least squares: the update is linear in the secret."""
    recipe, link, ties = view.know(LocalTraining).recipe, heard(view), public_ties(view)
    shares = prior_shares(view)
    told = view.know(AppliedDefence) if AppliedDefence in view.kinds else None

    def decode(measurement: Measurement) -> Posterior:
        # Least squares tells d + 2 numbers however long one listens, and opposite secrets may
        # share them (driouich2022 Proposition 1): only the convex problem says so honestly.
        few = measurement.rank < measurement.unknowns
        if few and recipe.linear_least_squares:
            return max_entropy(measurement, shares)
        return decode_tied(measurement, ties, shares)

    defended: dict[str, float] = {}
    measurement, misfit = measure(view, most)
    posterior = None
    clipped = may_be_clipped(link, told)
    if (clipped or misfits(measurement)) and not link.sparse:
        labels = recipe.target.encode_values(view.know(Labels).values)
        found = undo(link, recipe, candidate_inputs(view), labels, clipped, decode)
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
        tried = rehearse(
            number_play(view, few_rounds(link, most), candidate_inputs(view)[0], rng),
            lambda messages: _attempt(decode(measure(view.knowing(messages), most)[0])),
            posterior.probabilities,
            np.tile(shares, (len(posterior.probabilities), 1)),
        )
        calm, _ = tried.tempered(posterior.probabilities)
        posterior = replace(posterior, probabilities=calm)
        defended |= {"rehearsed": tried.accuracy, "rehearsed_sureness": tried.confidence}
        fits = tried.fits(posterior.chi2_per_equation, _WELL)
        flag = flag or (tried.flag if fits else UNLIKE)
    return AttributeValues(
        posterior.probabilities,
        view.know(AttributeDomain).values,
        {
            "method": posterior.method,
            **flagged(flag, posterior.probabilities),
            "rank": posterior.rank,
            "unknowns": posterior.unknowns,
            "chi2": posterior.chi2_per_equation,
            "misfit": misfit,
            **defended,
            "entropy_bits": float(np.mean(posterior.entropy_bits)),
            **tie_diagnostics(ties, posterior.probabilities),
        },
    )


def _attempt(posterior: Posterior) -> Attempt:
    return Attempt(posterior.probabilities, posterior.chi2_per_equation)


def flagged(flag: str, probabilities: NDArray[np.float64]) -> dict[str, str]:
    """The diagnostic ``flag``: why the answer must not be relied on. An answer that may be, and
    that leaves much open, is ``undecided``: its probabilities stand."""
    if flag:
        return {"flag": flag}
    expected = float(probabilities.max(axis=1).mean())
    if expected < _DECIDED:
        return {"undecided": f"the decoder itself expects {expected:.2f} of its choices right"}
    return {}


def prior_shares(view: View) -> NDArray[np.float64]:
    """How common each value is at large, if that is known; never quite zero. Else all alike."""
    values = len(view.know(AttributeDomain).values)
    if AttributePrior not in view.kinds:
        return np.full(values, 1 / values)
    shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
    if len(shares) != values:
        raise FixData(f"the attribute prior has {len(shares)} shares for {values} values")
    return np.asarray((shares + 1e-6) / (1 + 1e-6 * values))


def candidate_inputs(view: View) -> NDArray[np.float64]:
    """Inputs (K, m, d) of the public records under each value of the attribute."""
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    records = view.know(PublicRecords).records
    return encode_each(recipe.encoding, records, domain.settings)


def all_known(link: Link, known: int) -> None:
    """Refuse when the client trained on more records than are known: the rest would be blamed."""
    counts = link.weights[np.isfinite(link.weights)]
    if len(counts) and counts.max() > known:
        raise FixData(
            f"{known} records are known but the client reported {counts.max():g}; decode with "
            "partial_decode, or give all records that it trained on"
        )


def _very_many(view: View) -> AttributeValues | None:
    """Too many records for a Gram matrix: the first layer's equations, matrix-free."""
    recipe, link, domain = (
        view.know(LocalTraining).recipe,
        heard(view),
        view.know(AttributeDomain),
    )
    labels = recipe.target.encode_values(view.know(Labels).values)
    if not applies(link, recipe, len(labels) * (len(domain.values) - 1)):
        return None
    records = view.know(PublicRecords).records
    posterior, ties = decode_first_layer(link, recipe, records, labels, domain.settings)
    return AttributeValues(
        posterior.probabilities,
        domain.values,
        {
            "method": posterior.method,
            "proven": str(posterior.converged),
            **flagged("" if posterior.converged else UNSOLVED, posterior.probabilities),
            "unknowns": posterior.unknowns,
            "iterations": posterior.iterations,
            "chi2": posterior.chi2_per_equation,
            "entropy_bits": float(np.mean(posterior.entropy_bits)),
            **tie_diagnostics(ties, posterior.probabilities),
        },
    )


def public_ties(view: View) -> NDArray[np.intp]:
    """Numbers of records that agree in everything public and in the label."""
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    public = encode(recipe.encoding, view.know(PublicRecords).records, domain.settings[0])
    labels = recipe.target.encode_values(view.know(Labels).values)
    return same_rows(np.column_stack([public, labels]))


def measure(view: View, most: int) -> tuple[Measurement, float]:
    """What the messages say about the attribute, as a whitened linear measurement.

    And the mean square of what they say that no attribute explains, in units of the assumed
    noise: about one or less, unless recipe, model or records are not what they are said to be.
    """
    recipe, link = view.know(LocalTraining).recipe, heard(view)
    domain, records = view.know(AttributeDomain), view.know(PublicRecords).records
    labels = recipe.target.encode_values(view.know(Labels).values)
    if recipe.linear_least_squares and recipe.full_batch and recipe.private is None:
        moments, phi = linear_moments(link, recipe, records, labels, domain, most)
        width = phi.shape[1]
        features = np.zeros((len(phi), len(domain.values), len(moments.total)))
        for k in range(1, len(domain.values)):
            features[:, k] = phi @ moments.rows[:, (k - 1) * width : k * width].T
        noise = np.eye(len(moments.total))
        if domain.spread:
            noise += within_bins(features, recipe, domain, prior_shares(view))
        return from_rows(features, moments.total, noise), moments.chi2
    if domain.spread:
        raise ChooseAnotherAttack(
            f"{domain.column!r} is a number; numbers are decoded for linear least squares only"
        )
    candidates = candidate_inputs(view)
    if single_layer.applies(link, recipe):
        measurement = single_layer.single_layer_measurement(link, recipe, candidates, labels)
    else:
        measurement = dense_measurement(link, recipe, candidates, labels, most)
    return measurement, measurement.misfit
