"""Does a sum hide its parts? One linear measurement of everybody's secrets, decoded at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.dense_measurement import summed_measurement
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.attacks.front import (
    answer,
    candidate_inputs,
    refuse_many,
    refuse_numbers,
    refuse_unseen,
)
from overheard.attacks.stranger import beforehand
from overheard.attacks.wire import spread
from overheard.decoding.counts import decode_tied, same_rows
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.private import update_noise
from overheard.programs.records import Records
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


@dataclass(frozen=True)
class SumDecode:
    """Reads the sum of all clients' updates, which is all that secure aggregation shows, as a
    linear measurement of the attribute of every record of every client, and solves for all of them
    together. A sum has as many numbers as one update and more unknowns: it hides its parts only
    where the model is smaller than the federation. Several local steps, and clients of whom nothing
    is known, are decoded as those of one client that has everybody's records.

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
        if not recipe.one_step:
            return as_one_client(view, MaxEntropy(seeds=0), rng)
        if set(names) != set(sums.clients):
            return as_one_client(view, PartialDecode(), rng)
        owner = np.repeat(np.arange(len(names)), [len(everybody.labels[n]) for n in names])
        refuse_many(len(owner) * (len(domain.values) - 1), "audit a smaller federation")
        candidates = np.concatenate(
            [candidate_inputs(view, everybody.records[name]) for name in names], axis=1
        )
        raw = np.concatenate([everybody.labels[name] for name in names])
        labels = recipe.target.encode_values(raw)
        prior = np.concatenate(
            [beforehand(view, everybody.records[n], everybody.labels[n]) for n in names]
        )
        sizes = np.bincount(owner)
        share = recipe.rate / sizes
        told = view.know(AppliedDefence).noise_sd if AppliedDefence in view.kinds else 0.0
        blurred = np.array([told**2 + update_noise(recipe, int(m)) ** 2 for m in sizes])
        used = spread(len(sums), self.rounds)
        thetas, totals, noise, weights = [], [], [], []
        for row in used.tolist():
            heard = sums[row]
            sent = heard.sent.astype(np.float64)
            there = sums.participation[row]
            thetas.append(sent)
            totals.append(heard.total)
            rounding = _rounding(heard.sent, heard.total, int(there.sum()), recipe.wire)
            noise.append(np.hypot(rounding, np.sqrt(there @ blurred)))
            weights.append((there * share)[owner])
        measurement = summed_measurement(
            recipe,
            np.array(thetas),
            np.array(totals),
            np.array(noise),
            candidates,
            labels,
            np.array(weights),
        )
        ties = same_rows(np.column_stack([candidates[0], labels, np.array(weights).T]))
        posterior = decode_tied(measurement, ties, prior)
        mine = owner == names.index(view.client)
        return answer(
            view, replace(posterior, probabilities=posterior.probabilities[mine]), ties[mine]
        )


def as_one_client(
    view: View, decoder: MaxEntropy | PartialDecode, rng: np.random.Generator
) -> AttributeValues:
    """The participants taken for one client that has all their records, known or not.

    Where all have equally many, the mean of their updates is its update, in batches so many times
    as large, but for how far the participants' models part within a round: the decoder's simulated
    clients do not part, and where that matters the message does not look like theirs (a flag).
    """
    sums, everybody = view.know(Sums), view.know(EverybodysRecords)
    recipe, mine = view.know(LocalTraining).recipe, sums.clients.index(view.client)
    groups, which = np.unique(sums.participation, axis=0, return_inverse=True)
    often = np.bincount(which.ravel()) * groups[:, mine]
    used = np.flatnonzero(which.ravel() == often.argmax())
    there = [n for n, took in zip(sums.clients, groups[often.argmax()], strict=True) if took]
    names = [name for name in there if name in everybody.records]
    sizes = {len(everybody.labels[name]) for name in names}
    if not often.any() or view.client not in names:
        raise FixData(f"{view.client!r} took part in no round, or its records are not known")
    if len(sizes) > 1 or recipe.private is not None or recipe.sends_gradient:
        raise ChooseAnotherAttack(
            f"participants have {sorted(sizes)} records; of several steps a round, or beside "
            "unknown clients, reads sums of models of equally many records, not privately trained"
        )
    sent = np.stack([sums[row].sent for row in used.tolist()])
    mean = np.stack([sums[row].total for row in used.tolist()]) / len(there)
    weights = np.full(len(used), float(len(there) * min(sizes)))
    link = Link("model", sums.rounds[used], sent, (sent - mean).astype(sent.dtype), weights)
    if recipe.batch_size is not None:
        recipe = recipe.model_copy(update={"batch_size": len(there) * recipe.batch_size})
    first = everybody.records[names[0]]
    table = {c: np.concatenate([everybody.records[n][c] for n in names]) for c in first.columns}
    labels = np.concatenate([everybody.labels[name] for name in names])
    one = view.knowing(link, LocalTraining(recipe), PublicRecords(Records(table)), Labels(labels))
    if AppliedDefence in view.kinds:
        told = view.know(AppliedDefence)
        one = one.knowing(replace(told, noise_sd=told.noise_sd / np.sqrt(len(there))))
    found = decoder(one, rng)
    own = np.repeat(names, min(sizes)) == view.client
    notes = {**found.diagnostics, "participants": len(there), "known_participants": len(names)}
    return replace(found, probabilities=found.probabilities[own], diagnostics=notes)


def _rounding(sent: NDArray[Any], total: Array, clients: int, wire: str) -> Array:
    """Standard deviation of the rounding in a sum: every client rounds its model to the wire."""
    kind = np.float32 if wire == "float32" else np.float64
    place = np.spacing(np.abs(sent).astype(kind)).astype(np.float64) / np.sqrt(12)
    typical = float(np.sqrt(np.mean(total**2))) / clients
    arithmetic = float(np.finfo(kind).eps) * typical
    return np.asarray(np.sqrt(clients) * np.hypot(place, arithmetic))
