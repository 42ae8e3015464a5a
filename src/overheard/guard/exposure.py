"""What an update would reveal of a client's own records, by letting the decoder loose on it.

The client grants the listener everything but the secret itself: the recipe, the public columns,
the labels (unless they are asked for), how common each value is among its records, and the defence.
What the strongest decoder that we have of each question cannot read, somebody who knows less
cannot read with it either; another decoder may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.label import LinearDecode
from overheard.attacks.membership import CandidateDecode
from overheard.errors import FixConfig, FixData
from overheard.evaluation.scoring import scorer_of
from overheard.federation.pool import pool_of
from overheard.guard.limits import (
    MISLED,
    WRONG,
    Exposure,
    found_by,
    made_certain,
    share_of,
    shares_of,
)
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode, positions
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.observe import MEMBER_COLUMN
from overheard.transcript.payload import update_of
from overheard.transcript.target import LABEL, Target, attribute, membership
from overheard.transcript.view import Attack, View, launch

OWN = "own"
"""Defences after which an update is still a sum over the records, and noise."""
CARELESS = 3.0
"""Rounding errors of a sum of gradients, in units in the last place of its typical size."""
STRANGE, REPLAYED = 3.0, 1e-3
"""A replay of one's own records that is off by so many standard deviations, and by so much of the
update, is not how the client trained."""
Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Secret:
    """What to protect of a client's whole records.

    A sensitive ``column``, and ``values``, what it may be; or the labels, as the column that the
    recipe predicts (``values`` empty); or, with ``strangers``, who is among the records: records of
    people who are not, with the same columns.
    """

    records: Records
    column: str = ""
    values: tuple[Value, ...] = ()
    strangers: Records | None = None

    def __post_init__(self) -> None:
        if self.column and self.column not in self.records.columns:
            raise FixData(f"the records have no column {self.column!r} to protect")
        if bool(self.column) == (self.strangers is not None):
            raise FixConfig("a secret is a column, or who is there among given strangers")

    def target(self, recipe: Recipe) -> Target:
        if self.strangers is not None:
            return membership()
        if self.values:
            return attribute(self.column)
        if self.column != recipe.target.column or recipe.target.classes:
            raise FixConfig(f"column {self.column!r} is no numeric label: name the values it takes")
        return LABEL

    @property
    def decoder(self) -> Attack:
        if self.strangers is not None:
            return CandidateDecode()
        return MaxEntropy() if self.values else LinearDecode()


def exposures(
    recipe: Recipe,
    secrets: Sequence[Secret],
    sent: Array,
    returned: Array,
    defence: AppliedDefence | None = None,
    most: int = 2000,
    seed: int = 0,
) -> list[Exposure]:
    """What messages ``sent`` and ``returned`` ((P,), or one row a round) reveal of each secret.

    With more than ``most`` records and one full-batch step a round, the attribute of a sample of
    that size is decoded and that of the others is taken as known to the listener. Several local
    steps are not linear in the records, and neither are clipped or compressed updates: there all
    records are decoded, which takes seconds. What several secrets share is done once.
    """
    sent, returned = np.atleast_2d(sent), np.atleast_2d(returned)
    if sent.shape != returned.shape or sent.shape[1] != recipe.model.size:
        raise FixData(
            f"messages of {sent.shape} and {returned.shape} numbers for a model of "
            f"{recipe.model.size}; give models of the recipe's own architecture, flattened"
        )
    parts: dict[int, _Part] = {}
    found = []
    for secret in secrets:
        records = secret.records
        part = _Part(recipe, records, returned, defence)
        target = secret.target(recipe)
        if secret.values and len(records) > most and can_sample(recipe, len(records), defence):
            if id(records) not in parts:
                alike = [s for s in secrets if s.records is records and s.values]
                kept = _chosen(alike, most, seed)
                parts[id(records)] = _sample(recipe, records, sent, returned, defence, kept)
            part = parts[id(records)]
        found.append(_decoded(part, secret, target, sent, seed))
    return found


def _chosen(secrets: Sequence[Secret], most: int, seed: int) -> NDArray[np.int64]:
    """Rows of a sample in which rare values are there: without them it would hide what they tell.

    Half of it goes to the values in equal parts, as far as they occur; chance fills the rest.
    """
    rng = stream(seed, "guard sample")
    order = rng.permutation(len(secrets[0].records))
    each = max(1, most // (2 * sum(len(s.values) for s in secrets)))
    first = [
        order[secret.records[secret.column][order] == value][:each]
        for secret in secrets
        for value in secret.values
    ]
    rows = np.concatenate([*first, order])
    return np.sort(rows[np.sort(np.unique(rows, return_index=True)[1])][:most])


@dataclass(frozen=True)
class _Part:
    """What is decoded: everything, or the federation of a sample.

    ``doubt``: why this is not how the client trained.
    """

    recipe: Recipe
    records: Records
    returned: Array
    defence: AppliedDefence | None
    doubt: str = ""


def _decoded(part: _Part, secret: Secret, target: Target, sent: Array, seed: int) -> Exposure:
    recipe, records, attack = part.recipe, part.records, secret.decoder
    view, pools, shares = _view(part, secret, target, sent, seed)
    answer = launch(attack, view, seed)
    scored = scorer_of(recipe, {OWN: records}, target, view, seed, pools)(attack, answer, 0.0)
    found, posterior = scored.finding, scored.posterior
    doubt, alone = part.doubt or found.flag, target.asked.alone(recipe, records, None)
    guess, bits, certain, share = found.majority, None, 0, None
    if posterior is not None:
        bits = float(posterior.listened.mean())
        certain = made_certain(posterior.confidence, posterior.hits, posterior.listened)
        share = share_of(bits, shares)
        doubt = doubt or (WRONG if bits < MISLED else "")
    elif alone is not None:
        guess, share = alone, max(0.0, 1 - found.value / alone) if alone else 0.0
    return found_by(found, guess=guess, certain=certain, bits=bits, share=share, doubt=doubt)


def _view(
    part: _Part, secret: Secret, target: Target, sent: Array, seed: int
) -> tuple[View, dict[str, Records] | None, NDArray[np.float64]]:
    """What the listener holds; who of a pool is a member; and how common each answer is."""
    recipe, records, label = part.recipe, part.records, part.recipe.target.column
    pieces: list[Any] = [
        Link(
            recipe.payload,
            np.arange(len(sent)),
            sent,
            part.returned,
            np.full(len(sent), float(len(records))),
        ),
        LocalTraining(recipe),
    ]
    if part.defence is not None:
        pieces.append(part.defence)
    pools, shares = None, np.ones(1)
    if secret.strangers is not None:
        pool = pool_of(records, secret.strangers, OWN, seed)
        pools = {OWN: Records({MEMBER_COLUMN: pool.member.astype(np.float64)})}
        pieces.append(CandidatePool(pool.records.without(label), pool.records[label]))
        shares = shares_of(pool.member.astype(np.int64), 2)
    elif not secret.values:
        pieces.append(PublicRecords(records.without(label)))
    else:
        shares = shares_of(positions(records[secret.column], secret.values), len(secret.values))
        pieces += [
            PublicRecords(records.without(secret.column, label)),
            Labels(records[label]),
            AttributeDomain(secret.column, secret.values),
            AttributePrior(tuple(map(float, shares))),
        ]
    return View(OWN, target, "server", {type(p): p for p in pieces}), pools, shares


def can_sample(recipe: Recipe, records: int, defence: AppliedDefence | None) -> bool:
    """Can what some records added to an update be taken off it? It must be a sum over records."""
    return (
        recipe.plain
        and recipe.private is None
        and recipe.local_steps(records) == 1
        and (
            defence is None
            or (defence.clip_norm is None and defence.having("additive") == defence.names)
        )
        and network(recipe).factored
    )


def _sample(
    recipe: Recipe,
    records: Records,
    sent: Array,
    returned: Array,
    defence: AppliedDefence | None,
    kept: NDArray[np.int64],
) -> _Part:
    """What the others added to the update is taken off again, in one batched pass."""
    inside = np.isin(np.arange(len(records)), kept)
    inputs, labels = encode(recipe.encoding, records), recipe.target.encode(records)
    share, scale = 1 / len(records), len(kept) / len(records)
    noise_sd = 0.0 if defence is None else defence.noise_sd
    gradients, net = recipe.sends_gradient, network(recipe)
    cleaned, arithmetic, off = [], [], []
    for before, after in zip(sent, returned, strict=True):
        rows = net.rows(before.astype(np.float64), inputs, labels)
        theirs, own = (
            recipe.rate * rows.scaled(np.where(part, share, 0.0)).total()
            for part in (~inside, inside)
        )
        heard = update_of(recipe.payload, before, after)
        left = heard - theirs
        cleaned.append(left / scale if gradients else before - left)
        size = float(np.sqrt(np.mean(heard**2)))
        careless = float(np.finfo(returned.dtype).eps) * size * CARELESS
        last_place = 0.0 if gradients else np.spacing(np.abs(after)).astype(np.float64) / 12**0.5
        arithmetic.append(float(np.sqrt(careless**2 + np.mean(np.square(last_place)))))
        off.append(float(np.sqrt(np.mean((left - own) ** 2))) / max(size, 1e-300))
        expected = float(np.hypot(noise_sd, arithmetic[-1])) / max(size, 1e-300)
        off[-1] = off[-1] if off[-1] > max(STRANGE * expected, REPLAYED) else 0.0
    smaller, sd = recipe, float(np.hypot(noise_sd, max(arithmetic)))
    if gradients:
        sd /= scale
    else:
        smaller = recipe.model_copy(update={"learning_rate": recipe.learning_rate * scale})
    doubt = ""
    if max(off) > 0:
        doubt = (
            f"not how this client trained: replayed on its own records, the recipe is off by "
            f"{max(off):.1%} of the update"
        )
    noisy = AppliedDefence(("gaussian",), noise_sd=sd)
    return _Part(smaller, records.take(kept), np.array(cleaned), noisy, doubt)
