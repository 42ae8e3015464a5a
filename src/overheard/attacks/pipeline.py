"""From a view to a guess: the walk that every decoder of records takes, whatever clients run.

    view -> candidates -> Client -> posterior -> guess

`decode` takes the way that the client's program allows. Releases of Newton steps, trees and tables
are exactly linear in "which candidate is record i?": the program says what all that was observed
measures (`Program.measure`), and one posterior decodes it; sums over few records each (leaves of
trees, cells of tables) have a decoder that proves what the posterior can only believe
(`overheard.decoding.subset_sums`). One full-batch step of a network is an exact sum too
(`attacks.one_step`); everything else is replayed or simulated (`attacks.several_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import Client
from overheard.attacks.one_step import OneStepOptions, decode_one_step, has_moments, is_one_step
from overheard.attacks.several_steps import TrainingOptions, decode_training
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import CARRIED, UNKNOWNS
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.subset_sums import decode_subset_sums
from overheard.decoding.ties import decode_tied, group_means, tie_diagnostics
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.program import Program
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import AttributeDomain, ClientProgram
from overheard.transcript.view import View

Array = NDArray[np.float64]


ONE_STEP, TRAINING = OneStepOptions(), TrainingOptions()


def decode(
    client: Client,
    rng: np.random.Generator,
    one_step: OneStepOptions = ONE_STEP,
    training: TrainingOptions = TRAINING,
) -> Posterior:
    """Probabilities of each record's candidates, with why they must not be relied on, if so: those
    are halfway between the prior and what was decoded, so that nothing is certain."""
    network = isinstance(client.program, Recipe)
    if client.candidates.spread and not (network and has_moments(client)):
        raise ChooseAnotherAttack("it is a number; those are decoded for linear least squares only")
    if not network:
        result = _decode_releases(client)
    elif is_one_step(client):
        result = decode_one_step(client, rng, one_step)
    else:
        result = decode_training(client, rng, training)
        result = replace(result, probabilities=group_means(result.probabilities, client.ties))
    # what must not be relied on may be worth nothing: as likely as not it is the prior that holds
    own = result.probabilities
    return replace(result, probabilities=(own + client.prior) / 2 if result.flag else own)


def _decode_releases(client: Client, fitting: float = 1e4) -> Posterior:
    """Probabilities of each record's candidates. Notes: ``reduced_chi2``, the mean square of what
    no candidate explains, and, of sums over few records each, ``proven``: the records with one
    possible value. ``fitting``: the reduced_chi2 that is let pass: the posterior raises the noise
    to it, and a wrong description leaves orders of magnitude more."""
    program, observed = client.program, client.messages.exchanges
    assert isinstance(program, Program)
    shared = group_means(client.prior, client.ties)
    equations = program.equations(observed, client.candidates)
    notes: dict[str, float | int | str]
    if equations is not None:
        result = decode_subset_sums(equations, shared)
        posterior, chi2 = result.posterior, result.chi2
        notes = {"reduced_chi2": chi2, "proven": int(result.proven.sum())}
    else:
        measurement = program.measure(observed, client.candidates)
        posterior, chi2 = decode_tied(measurement, client.ties, shared), measurement.chi2
        notes = {"reduced_chi2": chi2}
    flag = posterior.flag or (POOR_FIT if chi2 > fitting else "")
    # what a group of indistinguishable records says beyond its prior, said of each one's own prior
    own = client.prior * (posterior.probabilities / np.maximum(shared, 1e-300))
    own /= np.maximum(own.sum(axis=1, keepdims=True), 1e-300)
    return replace(posterior, probabilities=own, flag=flag, notes=notes)


def sees(program: Recipe | Program, columns: Sequence[str]) -> bool:
    """Does what clients do look at one of the columns at all?"""
    return bool(set(columns) & set(program.columns()))


def refuse_unseen(view: View) -> None:
    """For decoders of updates: what the model does not see is not in them."""
    domain = view.know(AttributeDomain)
    if not sees(view.know(ClientProgram).program, domain.columns):
        raise ChooseAnotherAttack(
            f"the model does not see {domain.column!r}, so no update depends on it: there is "
            "nothing to decode"
        )


def refuse_numbers(domain: AttributeDomain) -> None:
    """For decoders of values that are known one by one."""
    if domain.spread:
        raise ChooseAnotherAttack(
            f"{domain.column!r} is a number; numbers are decoded for linear least squares only"
        )


def refuse_many_values(domain: AttributeDomain) -> None:
    """More candidates of a record than are decoded."""
    if (many := len(domain.values)) > CARRIED:
        raise ChooseAnotherAttack(
            f"{domain.column!r} has {many} values or combinations of values; up to {CARRIED} are "
            "decoded: ask about fewer columns at once, or cut a number into bins"
        )


def refuse_many(unknowns: int, remedy: str, most: int | None = None) -> None:
    """More unknowns than a Gram matrix has room for."""
    if unknowns > (most := most or UNKNOWNS):
        raise ChooseAnotherAttack(
            f"{unknowns} unknowns at once; up to {most} are decoded: {remedy}"
        )


def all_known(messages: Any, known: int) -> None:
    """Refuse when the client trained on more records than are known: the rest would be blamed."""
    counts = messages.weights[np.isfinite(messages.weights)]
    if len(counts) and counts.max() > known:
        raise FixData(
            f"{known} records are known but the client reported {counts.max():g}; decode with "
            "partial_decode, or give all records that its messages sum over"
        )


def flagged(flag: str, probabilities: Array, decided: float = 0.9) -> dict[str, str]:
    """The diagnostic ``flag``: why the answer must not be relied on. An answer that may be, and
    that expects less than ``decided`` of its choices right, is undecided: its probabilities stand.
    """
    expected = float(probabilities.max(axis=1).mean())
    vague = f"the decoder itself expects {expected:.2f} of its choices right"
    return {"flag": flag} if flag else {"undecided": vague} if expected < decided else {}


def diagnosed(posterior: Posterior) -> dict[str, float | int | str]:
    """How an answer was reached."""
    return {
        "method": posterior.method,
        "rank": posterior.rank,
        "unknowns": posterior.unknowns,
        "chi2": posterior.chi2_per_equation,
        **posterior.notes,
    }


def answer(
    view: View,
    posterior: Posterior,
    ties: NDArray[np.intp],
    notes: Mapping[str, float | int | str] | None = None,
) -> AttributeValues:
    """The guess, with how it was reached and what it leaves open."""
    probabilities = posterior.probabilities
    return AttributeValues(
        probabilities,
        view.know(AttributeDomain).values,
        {
            **diagnosed(posterior),
            **flagged(posterior.flag, probabilities),
            **(notes or {}),
            "entropy_bits": float(np.mean(posterior.entropy_bits)),
            **tie_diagnostics(ties, probabilities),
        },
    )
