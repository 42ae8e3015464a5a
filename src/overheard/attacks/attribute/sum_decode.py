"""Does a sum hide its parts? One linear measurement of everybody's secrets, decoded at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.measurement import summed_measurement
from overheard.attacks.attribute.partial_decode import CLIENTS, PartialDecode
from overheard.attacks.front import (
    answer,
    candidate_inputs,
    refuse_many,
    refuse_numbers,
    refuse_unseen,
)
from overheard.attacks.stranger import beforehand
from overheard.attacks.wire import spread
from overheard.decoding.calibration import calibrate
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.posterior import NOISY, decode
from overheard.decoding.ties import decode_tied, group_means, same_rows
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.private import client_rows, update_noise
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.programs.simulated import Candidates
from overheard.programs.training import local_training, shards
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    EverybodysRecords,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
    Sums,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
SIMULATED = 12
"""Simulated federations, whose mean is then known to a third of their spread; the first of them are
decoded: hundreds of records, which tell the temperature to a tenth."""


@dataclass(frozen=True)
class SumDecode:
    """Reads the sum of all clients' updates, which is all that secure aggregation shows, as a
    linear measurement of the attribute of every record of every client, and solves for all of them
    together. A sum has as many numbers as one update and more unknowns: it hides its parts only
    where the model is smaller than the federation. Of several local steps what the path adds is
    noise; so is who took part without being known, with auxiliary records' mean and covariance.

    Settings: ``rounds``, how many of the rounds heard are used (spread evenly).
    """

    name: ClassVar[str] = "sum_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Sums, LocalTraining, EverybodysRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {AttributePrior, AuxiliaryData, AppliedDefence}
    )

    rounds: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        sums, recipe = view.know(Sums), view.know(LocalTraining).recipe
        everybody, domain = view.know(EverybodysRecords), view.know(AttributeDomain)
        refuse_numbers(domain)
        refuse_unseen(view)
        names = [name for name in sums.clients if name in everybody.records]
        if set(names) != set(sums.clients):
            return among_strangers(view, rng)
        owner = np.repeat(np.arange(len(names)), [len(everybody.labels[n]) for n in names])
        refuse_many(len(owner) * (len(domain.values) - 1), "audit a smaller federation")
        inputs = np.concatenate(
            [candidate_inputs(view, everybody.records[name]) for name in names], axis=1
        )
        raw = np.concatenate([everybody.labels[name] for name in names])
        labels = np.broadcast_to(recipe.target.encode_values(raw), inputs.shape[:2])
        every = Candidates(inputs, labels, np.ones(len(inputs), dtype=bool), len(raw))
        prior = np.concatenate(
            [beforehand(view, everybody.records[n], everybody.labels[n]) for n in names]
        )
        sizes = np.bincount(owner)
        steps = np.array([recipe.local_steps(int(m)) for m in sizes])
        share = recipe.rate * steps / sizes
        told = view.know(AppliedDefence).noise_sd if AppliedDefence in view.kinds else 0.0
        blurred = np.array([told**2 + update_noise(recipe, int(m)) ** 2 for m in sizes])
        used = spread(len(sums), self.rounds)
        sent, thetas, totals, noise, weights = [], [], [], [], []
        for row in used.tolist():
            heard, there = sums[row], sums.participation[row]
            # of several steps all gradients are taken in the middle of the mean path
            path = float(there @ (1 - 1 / steps)) / there.sum() ** 2 / 2
            sent.append(heard.sent)
            thetas.append(heard.sent.astype(np.float64) - path * heard.total)
            totals.append(heard.total)
            rounding = _rounding(heard.sent, heard.total, int(there.sum()), recipe.wire)
            noise.append(np.hypot(rounding, np.sqrt(there @ blurred)))
            weights.append((there * share)[owner])
        rounds = np.array(thetas), np.array(totals), np.array(noise)
        weighed = np.array(weights)
        ties = same_rows(np.column_stack([inputs[0], labels[0], weighed.T]))
        notes: dict[str, float | int | str] = {}
        if recipe.one_step:
            measured = summed_measurement(recipe, *rounds, every, weighed)
            posterior = decode_tied(measured, ties, prior)
        else:
            summed = Summed(recipe, np.array(sent), *rounds, every, weighed, owner, prior, ties)
            posterior, notes = decode_steps(summed, rng)
        mine = owner == names.index(view.client)
        own = replace(posterior, probabilities=posterior.probabilities[mine])
        return answer(view, own, ties[mine], notes)


def among_strangers(view: View, rng: np.random.Generator) -> AttributeValues:
    """Some participants' records are not known: the sum taken for one client's who has them all.

    Where all have equally many records the mean of their updates is that client's, and who is not
    known is noise of auxiliary records' mean and covariance (`PartialDecode`).
    """
    sums, everybody = view.know(Sums), view.know(EverybodysRecords)
    recipe, mine = view.know(LocalTraining).recipe, sums.clients.index(view.client)
    first = int(sums.participation[:, mine].argmax())  # later rounds deviate in the same way
    there = [sums.clients[column] for column in sums[first].participants]
    names = [name for name in there if name in everybody.records]
    if view.client not in names:
        raise FixData(f"{view.client!r} took part in no round, or its records are not known")
    sizes = [len(everybody.labels[name]) for name in names]
    if len(set(sizes)) > 1 or recipe.private is not None or recipe.sends_gradient:
        raise ChooseAnotherAttack(
            f"participants have {sorted(set(sizes))} records; beside unknown clients it reads sums "
            "of models of equally many records, not privately trained"
        )
    sent, count = sums[first].sent[None], len(there)
    returned = (sent - sums[first].total / count).astype(sent.dtype)
    link = Link("model", sums.rounds[[first]], sent, returned, np.array([float(count * sizes[0])]))
    columns = everybody.records[names[0]].columns
    table = {c: np.concatenate([everybody.records[n][c] for n in names]) for c in columns}
    labels = np.concatenate([everybody.labels[name] for name in names])
    one = view.knowing(link, PublicRecords(Records(table)), Labels(labels))
    if AppliedDefence in view.kinds:
        told = view.know(AppliedDefence)
        one = one.knowing(replace(told, noise_sd=told.noise_sd / np.sqrt(count)))
    found = PartialDecode()(one, rng)
    own = np.repeat(names, sizes) == view.client
    return replace(found, probabilities=found.probabilities[own])


def _rounding(sent: NDArray[Any], total: Array, clients: int, wire: str) -> Array:
    """Standard deviation of the rounding in a sum: every client rounds its model to the wire."""
    kind = np.float32 if wire == "float32" else np.float64
    place = np.spacing(np.abs(sent).astype(kind)).astype(np.float64) / np.sqrt(12)
    typical = float(np.sqrt(np.mean(total**2))) / clients
    arithmetic = float(np.finfo(kind).eps) * typical
    return np.asarray(np.sqrt(clients) * np.hypot(place, arithmetic))


@dataclass(frozen=True)
class Summed:
    """Rounds (T, P): models sent, those at which gradients are taken, sums, and their noise; of
    records: what they may be, owners (n,), prior (n, K), ties (n,) and the weights (T, n) of their
    gradients, 0 where the owner took no part."""

    recipe: Recipe
    sent: NDArray[Any]
    thetas: Array
    totals: Array
    noise: Array
    candidates: Candidates
    weights: Array
    owner: NDArray[np.intp]
    prior: Array
    ties: NDArray[np.intp]

    def found(self, totals: Array, noise: Array) -> Posterior:
        """The values, as these sums tell them."""
        known = (self.candidates, self.weights)
        measured = summed_measurement(self.recipe, self.thetas, totals, noise, *known)
        found = decode(measured, self.prior, options=NOISY)
        return replace(found, probabilities=group_means(found.probabilities, self.ties))

    def played(self, secret: NDArray[np.intp], rng: np.random.Generator) -> tuple[Array, Array]:
        """Sums (T, P) of clients with this secret, and what the equations make of it."""
        chosen = secret, np.arange(len(secret))
        inputs, labels = self.candidates.inputs[chosen], self.candidates.labels[chosen]
        sums, equations = [], []
        for sent, theta, weights in zip(self.sent, self.thetas, self.weights, strict=True):
            rows = [np.flatnonzero(self.owner == c) for c in np.unique(self.owner[weights > 0])]
            parts = [inputs[own] for own in rows], [labels[own] for own in rows]
            ends = local_training(self.recipe, sent, shards(*parts, str(sent.dtype)), rng)
            sums.append((sent - ends.astype(np.float64)).sum(axis=0))
            gradients = client_rows(self.recipe, theta, inputs, labels)
            equations.append(gradients.scaled(weights).total())
        return np.array(sums), np.array(equations)


def decode_steps(
    summed: Summed, rng: np.random.Generator
) -> tuple[Posterior, dict[str, float | int | str]]:
    """The answer, believed as far as those about simulated federations deserve it. Federations that
    are drawn from between what was known before and a first answer are more like the real one."""
    decodings = 2 * (CLIENTS + 1)
    remedy = f"each counts {decodings} times, as often as it is decoded; audit a smaller federation"
    refuse_many(decodings * summed.candidates.unknowns, remedy)
    first, _ = _pass(summed, summed.prior, rng)
    return _pass(summed, (first.probabilities + summed.prior) / 2, rng)


def _pass(
    summed: Summed, belief: Array, rng: np.random.Generator
) -> tuple[Posterior, dict[str, float | int | str]]:
    secrets = summed.candidates.drawn(belief, SIMULATED, rng)
    played = [summed.played(secret, rng) for secret in secrets]
    sums = np.array([made for made, _ in played])
    beyond = sums - np.array([expected for _, expected in played])
    bias, varies = beyond.mean(axis=0), beyond.var(axis=0, ddof=1)
    noise = np.sqrt(summed.noise**2 + (1 + 1 / SIMULATED) * varies)
    answers = []
    for number in range(CLIENTS):
        others = bias + (bias - beyond[number]) / (SIMULATED - 1)
        answers.append(summed.found(sums[number] - others, noise).probabilities)
    found = calibrate(answers, list(secrets[:CLIENTS]), summed.prior)
    posterior = summed.found(summed.totals - bias, noise)
    believed = found.applied(posterior.probabilities)
    return replace(posterior, probabilities=believed), found.notes
