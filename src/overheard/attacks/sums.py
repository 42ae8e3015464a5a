"""Does a sum hide its parts? One linear measurement of everybody's secrets, decoded at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import imputed_prior
from overheard.attacks.client import Client, defence_of, rounding, spread
from overheard.attacks.one_step import inner_products
from overheard.attacks.partial import PartialDecode
from overheard.attacks.pipeline import answer, refuse_many, refuse_numbers, refuse_unseen
from overheard.attacks.pipeline import decode as decode_client
from overheard.decoding.calibration import calibrate
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import Measurement
from overheard.decoding.posterior import NOISY, decode
from overheard.decoding.ties import decode_tied, group_means, same_rows
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.linearise import Encoded, encoded
from overheard.programs.networks import client_rows
from overheard.programs.program import Candidates
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.programs.training import local_training, shards, update_noise
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    ClientProgram,
    EverybodysRecords,
    Labels,
    Messages,
    PublicRecords,
    Sums,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SumDecode:
    """Reads the sum of what all clients sent, which is all that secure aggregation shows, as a
    linear measurement of the attribute of every record of every client, and solves for all of them
    together. A sum has as many numbers as one message and more unknowns: it hides its parts only
    where the model is smaller than the federation. Of several local steps what the path adds is
    noise; so is who took part without being known, with auxiliary records' mean and covariance.

    Solves: Σ over clients of (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ), the records of all of them unknown

    Settings: ``rounds``, how many of the observed rounds are used (spread evenly). ``simulated``
    federations of several local steps, whose mean is then known to a third of their spread; the
    first ``decoded`` of them are decoded too: hundreds of records, which tell the temperature to a
    tenth.
    """

    name: ClassVar[str] = "sum_decode"
    aliases: ClassVar[dict[str, Any]] = {"linear_sum": {}}
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = frozenset({Sums, ClientProgram, EverybodysRecords, AttributeDomain})
    uses: ClassVar[Kinds] = frozenset({AttributePrior, AuxiliaryData, AppliedDefence})

    rounds: int = 20
    simulated: int = 12
    decoded: int = 4

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        sums, program = view.know(Sums), view.know(ClientProgram).program
        everybody, domain = view.know(EverybodysRecords), view.know(AttributeDomain)
        refuse_numbers(domain)
        refuse_unseen(view)
        names = [name for name in sums.clients if name in everybody.records]
        if set(names) != set(sums.clients):
            return beside_unknown_clients(view, rng)
        owner = np.repeat(np.arange(len(names)), [len(everybody.labels[n]) for n in names])
        table, labels = _joined(everybody, names)
        known = Records({**table.columns, program.target.column: labels})
        candidates = Candidates(known, domain.settings, len(owner))
        prior = np.concatenate(
            [imputed_prior(view, everybody.records[n], everybody.labels[n]) for n in names]
        )
        if isinstance(program, Recipe):
            refuse_many(candidates.unknowns, "audit a smaller federation")
            posterior, ties = self._networks(view, sums, owner, candidates, prior, rng)
        else:
            whole, observed = program.summed(len(names)), sums.as_messages()
            client = Client(observed, whole, candidates, prior)
            posterior, ties = decode_client(client, rng), client.ties
        mine = owner == names.index(view.client)
        own = replace(posterior, probabilities=posterior.probabilities[mine])
        return answer(view, own, ties[mine])

    def _networks(
        self,
        view: View,
        sums: Sums,
        owner: NDArray[np.intp],
        candidates: Candidates,
        prior: Array,
        rng: np.random.Generator,
    ) -> tuple[Posterior, NDArray[np.intp]]:
        recipe = view.know(ClientProgram).recipe
        every, sizes = encoded(recipe, candidates), np.bincount(owner)
        steps = np.array([recipe.local_steps(int(m)) for m in sizes])
        share = recipe.rate * steps / sizes
        noise_sd = defence_of(view).noise_sd
        blurred = np.array([noise_sd**2 + update_noise(recipe, int(m)) ** 2 for m in sizes])
        sent, thetas, totals, noise, weights = [], [], [], [], []
        for row in spread(len(sums), self.rounds).tolist():
            observed, there = sums[row], sums.participation[row]
            # of several steps all gradients are taken in the middle of the mean path
            path = float(there @ (1 - 1 / steps)) / there.sum() ** 2 / 2
            sent.append(observed.sent)
            thetas.append(observed.sent.astype(np.float64) - path * observed.total)
            totals.append(observed.total)
            rounded = there.sum() * rounding(_mean_client(sums, row))[0] ** 2  # each by itself
            noise.append(np.sqrt(rounded + there @ blurred))
            weights.append((there * share)[owner])
        weighed = np.array(weights)
        ties = same_rows(np.column_stack([every.inputs[0], every.labels[0], weighed.T]))
        rounds = np.array(sent), np.array(thetas), np.array(totals), np.array(noise)
        summed = Summed(recipe, *rounds, every, weighed, owner, prior, ties)
        if recipe.one_step:
            return decode_tied(summed.measured(summed.totals, summed.noise), ties, prior), ties
        times = 2 * (self.decoded + 1)
        remedy = f"each counts {times} times, as often as it is decoded; audit a smaller federation"
        refuse_many(times * candidates.unknowns, remedy)
        # federations drawn from between what was known before and a first answer are more like it
        first = self._steps(summed, prior, rng)
        return self._steps(summed, (first.probabilities + prior) / 2, rng), ties

    def _steps(self, summed: Summed, belief: Array, rng: np.random.Generator) -> Posterior:
        """The answer, believed as far as those about simulated federations deserve it."""
        secrets = summed.candidates.drawn(belief, self.simulated, rng)
        sums, expected = np.array([summed.played(secret, rng) for secret in secrets]).swapaxes(0, 1)
        beyond = sums - expected
        bias, varies = beyond.mean(axis=0), beyond.var(axis=0, ddof=1)
        noise = np.sqrt(summed.noise**2 + (1 + 1 / self.simulated) * varies)
        answers = []
        for made, own in zip(sums[: self.decoded], beyond, strict=False):
            others = bias + (bias - own) / (self.simulated - 1)
            answers.append(summed.posterior(made - others, noise).probabilities)
        worth = calibrate(answers, list(secrets[: self.decoded]), summed.prior)
        result = summed.posterior(summed.totals - bias, noise)
        believed = worth.applied(result.probabilities)
        return replace(result, probabilities=believed, notes=worth.notes)


def beside_unknown_clients(view: View, rng: np.random.Generator) -> AttributeValues:
    """Some participants' records are not known: the sum taken for one client's who has them all.

    Where all have equally many records the mean of their updates is that client's, and who is not
    known is noise of auxiliary records' mean and covariance (`PartialDecode`).
    """
    sums, everybody = view.know(Sums), view.know(EverybodysRecords)
    if not isinstance(view.know(ClientProgram).program, Recipe):
        silent = min(set(sums.clients) - set(everybody.records))
        raise FixData(f"the records of {silent} are not known, and are in the sums too")
    recipe, mine = view.know(ClientProgram).recipe, sums.clients.index(view.client)
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
    link = _mean_client(sums, first, float(len(there) * sizes[0]))
    table, labels = _joined(everybody, names)
    one, defence = view.knowing(link, PublicRecords(table), Labels(labels)), defence_of(view)
    blurred = replace(defence, noise_sd=defence.noise_sd / np.sqrt(len(there)))
    result = PartialDecode()(one.knowing(blurred), rng)
    own = np.repeat(names, sizes) == view.client
    return replace(result, probabilities=result.probabilities[own])


def _joined(everybody: EverybodysRecords, names: Sequence[str]) -> tuple[Records, Any]:
    """The records and labels of these clients, one client's after the other's."""
    tables = [everybody.records[name] for name in names]
    columns = {c: np.concatenate([table[c] for table in tables]) for c in tables[0].columns}
    return Records(columns), np.concatenate([everybody.labels[name] for name in names])


def _mean_client(sums: Sums, row: int, records: float = np.nan) -> Messages:
    """The mean of the participants' updates in a round, as one client's of so many records."""
    sent = sums[row].sent[None]
    returned = (sent - sums[row].total / len(sums[row].participants)).astype(sent.dtype)
    return Messages("model", sums.rounds[[row]], sent, returned, np.array([records]))


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
    candidates: Encoded
    weights: Array
    owner: NDArray[np.intp]
    prior: Array
    ties: NDArray[np.intp]

    def measured(self, totals: Array, noise: Array) -> Measurement:
        """The values, as these sums measure them."""
        known = self.candidates, self.weights
        return inner_products(self.recipe, self.thetas, totals, noise, *known).measurement()

    def posterior(self, totals: Array, noise: Array) -> Posterior:
        """The values, as these sums tell them."""
        result = decode(self.measured(totals, noise), self.prior, options=NOISY)
        return replace(result, probabilities=group_means(result.probabilities, self.ties))

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
